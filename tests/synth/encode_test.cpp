#include "penstock/synth/encode.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numbers>

#include <gtest/gtest.h>
#include <sndfile.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

Sound sine(double seconds, std::int32_t rate, double hertz = 440) {
  Sound sound{.samples = {}, .sample_rate = rate};
  for (int i = 0; i < seconds * rate; ++i)
    sound.samples.push_back(
        static_cast<std::int16_t>(std::lrint(9000 * std::sin(2 * std::numbers::pi * hertz * i / rate))));
  return sound;
}

/// Reads a file back with libsndfile.
Sound decoded(const std::vector<std::byte>& bytes) {
  const TempFolder folder;
  const auto path = folder / "sound";
  write_file(path, bytes);
  SF_INFO info{};
  SNDFILE* file = sf_open(path.c_str(), SFM_READ, &info);
  if (file == nullptr) throw Error(sf_strerror(nullptr));
  Sound sound{.samples = std::vector<std::int16_t>(static_cast<std::size_t>(info.frames)),
              .sample_rate = info.samplerate};
  sound.samples.resize(static_cast<std::size_t>(sf_read_short(file, sound.samples.data(), info.frames)));
  sf_close(file);
  return sound;
}

class EveryFormat : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Encode, EveryFormat, testing::Values("wav", "flac", "ogg", "mp3"),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(EveryFormat, TheSameSamplesGiveTheSameBytes) {
  const Sound sound = sine(3, 22050);
  EXPECT_EQ(encode(sound, GetParam()), encode(sound, GetParam()));
}

TEST_P(EveryFormat, ItsOutputDecodesToTheSameSound) {
  for (const std::int32_t rate : {8000, 16000, 22050, 44100, 48000}) {
    const Sound in = sine(1.5, rate);
    const Sound out = decoded(encode(in, GetParam()));
    ASSERT_EQ(out.sample_rate, rate);
    ASSERT_EQ(out.samples.size(), in.samples.size());
    double error = 0, energy = 0;
    for (std::size_t i = 0; i < in.samples.size(); ++i) {
      error += std::pow(in.samples[i] - out.samples[i], 2);
      energy += std::pow(in.samples[i], 2);
    }
    EXPECT_LT(error, 0.02 * energy) << rate;
  }
}

TEST(Encode, WavAndFlacLoseNothing) {
  const Sound sound = sine(1, 22050);
  EXPECT_EQ(decoded(encode(sound, "wav")).samples, sound.samples);
  EXPECT_EQ(decoded(encode(sound, "flac")).samples, sound.samples);
}

TEST(Encode, EveryOggPageHasTheSameSerialNumber) {
  const auto bytes = encode(sine(4, 22050), "ogg");
  int pages = 0;
  for (std::size_t at = 0; at + 27 <= bytes.size(); ++at) {
    if (std::memcmp(bytes.data() + at, "OggS", 4) != 0) continue;
    ++pages;
    EXPECT_EQ(std::to_integer<int>(bytes[at + 14]), 1);
    EXPECT_EQ(std::to_integer<int>(bytes[at + 15]), 0);
  }
  EXPECT_GE(pages, 3);
}

TEST(Encode, AnUnknownFormatOrARateThatMpegHasNotIsAnError) {
  EXPECT_THROW(check_format("aac", 22050), Error);
  EXPECT_THROW(check_format("", 22050), Error);
  EXPECT_THROW(check_format("mp3", 20000), Error);
  EXPECT_NO_THROW(check_format("mp3", 24000));
  EXPECT_NO_THROW(check_format("wav", 20000));
}

TEST(Resample, KeepsDurationAndPitch) {
  const Sound in = sine(2, 22050);
  for (const std::int32_t rate : {8000, 16000, 24000, 48000}) {
    const Sound out = resample(in, rate), expected = sine(2, rate);
    ASSERT_EQ(out.samples.size(), expected.samples.size());
    for (std::size_t i = 1000; i + 1000 < out.samples.size(); ++i)
      ASSERT_NEAR(out.samples[i], expected.samples[i], 40) << rate << " at " << i;
  }
}

TEST(Resample, LeavesTheSameRateUntouched) {
  const Sound in = sine(0.5, 22050);
  EXPECT_EQ(resample(in, 22050).samples, in.samples);
}

}  // namespace
}  // namespace penstock
