// Whatever is in a file: a SampleError that names it, or finite samples of the length that was promised.
#include <algorithm>
#include <system_error>

#include <gmock/gmock.h>
#include <unistd.h>

#include "penstock/core/random.h"
#include "tests/decode/files.h"
#include "tests/long_run.h"

// libsndfile 1.2.0 forgets this block when an OGG's header is bad; it is not ours to free.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT: the sanitizer's name
  return "leak:vorbis_info_init";
}

namespace penstock::test {
namespace {

using testing::HasSubstr;

/// Probes and decodes: true for good samples, false for a SampleError; everything else fails the test.
bool survives(Decoder& decoder, const Bytes& bytes, std::int32_t wanted_rate) {
  AudioInfo info;
  std::string problem;
  try {
    info = probe(bytes);
  } catch (const SampleError& e) {
    problem = e.cause;
    EXPECT_EQ(e.path, "clip");
    EXPECT_FALSE(e.cause.empty());
  }
  try {
    const auto samples = decoder.decode(bytes, "clip");
    EXPECT_EQ(problem, "") << "decoded, though probing failed";
    EXPECT_EQ(static_cast<std::int64_t>(samples.size()),
              resampled_length(info.samples, info.sample_rate, wanted_rate));
    EXPECT_TRUE(std::ranges::all_of(samples, [](float x) { return std::isfinite(x); }));
    return true;
  } catch (const SampleError& e) {
    EXPECT_EQ(e.path, "clip");
    EXPECT_FALSE(e.cause.empty());
    return false;
  }
}

/// Makes every page's checksum right again, so that the damage behind it reaches the codec.
void repair_ogg(Bytes& bytes) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  for (std::size_t page = 0; page + 27 <= bytes.size() && at(page) == 'O' && at(page + 1) == 'g';) {
    std::size_t end = page + 27 + at(page + 26);
    for (std::size_t i = page + 27; i < std::min(page + 27 + at(page + 26), bytes.size()); ++i) end += at(i);
    if (end > bytes.size()) return;
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(page) + 22, 4, std::byte{0});
    std::uint32_t crc = 0;
    for (std::size_t i = page; i < end; ++i) {
      crc ^= at(i) << 24;
      for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ ((crc & 0x80000000) != 0 ? 0x04C11DB7 : 0);
    }
    std::memcpy(bytes.data() + page + 22, &crc, 4);
    page = end;
  }
}

struct Sample {
  const char* name;
  Bytes bytes;
};

std::vector<Sample> samples() {
  WavFile chunks{.channels = 2,
                 .before_format = chunk("JUNK", 7),
                 .between = chunk("LIST", 30),
                 .behind = chunk("id3 ", 9)};
  chunks.data.resize(4000, std::byte{3});
  WavFile floats{.tag = 3, .bits = 32, .data = bytes_of(tones(1000, 22050)), .extensible = true};
  return {{"wav", WavFile{}.bytes()},
          {"wav with chunks", chunks.bytes()},
          {"float wav", floats.bytes()},
          {"u-law wav", encode(SF_FORMAT_WAV | SF_FORMAT_ULAW, 2000, 22050)},
          {"flac", encode(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 9000, 22050)},
          {"stereo flac", encode(SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 9000, 44100, 2)},
          {"vorbis", encode(SF_FORMAT_OGG | SF_FORMAT_VORBIS, 9000, 22050)},
          {"opus", encode(SF_FORMAT_OGG | SF_FORMAT_OPUS, 9000, 24000)},
          {"mp3", encode(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 9000, 22050)}};
}

TEST(Damage, AnEmptyFileIsNamed) { EXPECT_EQ(cause_of({}), "must be an audio file, but is empty"); }

TEST(Damage, AFileOfAnotherKindIsNamedWithItsBeginning) {
  Bytes text;
  append_text(text, "id|text|normalised\n");
  EXPECT_EQ(cause_of(text), "must be WAV, FLAC, OGG, Opus or MP3, but begins with 69 64 7c 74");
  EXPECT_THAT(cause_of(Bytes(5000)), HasSubstr("but begins with 00 00 00 00"));
}

TEST(Damage, AWavHeaderCutAtAnyByteIsAnError) {
  const Bytes wav = WavFile{}.bytes();
  for (std::size_t n = 0; n < wav.size(); ++n) EXPECT_NE(cause_of({wav.begin(), wav.begin() + n}), "") << n;
}

TEST(Damage, AnExtensibleWavWithChunksCutAtAnyByteBeforeItsEndIsAnError) {
  const WavFile file{.extensible = true, .before_format = chunk("JUNK", 7), .between = chunk("LIST", 30)};
  const Bytes wav = file.bytes();
  for (std::size_t n = 0; n < wav.size(); ++n) EXPECT_NE(cause_of({wav.begin(), wav.begin() + n}), "") << n;
}

TEST(Damage, AnyFileCutAnywhereIsAnErrorOrWhole) {
  Decoder decoder({});
  for (const auto& [name, bytes] : samples()) {
    SCOPED_TRACE(name);
    const std::size_t step = std::max<std::size_t>(1, bytes.size() / 150);
    for (std::size_t n = 0; n < bytes.size(); n += n < 64 ? 1 : step) {
      const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
      survives(decoder, cut, 22050);
    }
  }
}

TEST(Damage, FlippedBytesNeverDoMoreThanSpoilTheFile) {
  Decoder decoder({});
  std::uint64_t seed = 1;
  for (const auto& [name, bytes] : samples()) {
    SCOPED_TRACE(name);
    int good = 0;
    const int rounds = cases(400, 20'000);
    for (int round = 0; round < rounds; ++round) {
      Bytes spoiled = bytes;
      const std::uint64_t flips = 1 + mix(++seed) % 4;
      for (std::uint64_t i = 0; i < flips; ++i) {
        // Every other one in the header, where it matters most.
        const std::uint64_t range = round % 2 == 0 ? std::min<std::size_t>(64, bytes.size()) : bytes.size();
        const std::uint64_t word = mix(++seed);
        spoiled[(word >> 8) % range] = static_cast<std::byte>(word);
      }
      if (round % 4 < 3) repair_ogg(spoiled);
      good += survives(decoder, spoiled, 22050) ? 1 : 0;
    }
    EXPECT_GT(good, 0);
    EXPECT_LT(good, rounds);
  }
}

TEST(Damage, RandomBytesBehindAnyMagicAreRefused) {
  Decoder decoder({});
  std::uint64_t seed = 99;
  for (const std::string_view magic : {"RIFF", "RIFX", "RF64", "riff", "fLaC", "OggS", "ID3\3",
                                       "\xFF\xFB\x90\x64", "FORM", ".snd", "caff", "NIST"}) {
    for (int round = 0; round < cases(50, 2'000); ++round) {
      Bytes bytes;
      append_text(bytes, magic);
      while (bytes.size() < 600) bytes.push_back(static_cast<std::byte>(mix(++seed)));
      EXPECT_FALSE(survives(decoder, bytes, 22050)) << magic;
    }
  }
}

TEST(Damage, ADirectoryIsASampleErrorOfReading) {
  const TempFolder folder;
  try {
    probe_audio(File::open((folder / ".").c_str()), "wavs");
    FAIL() << "a directory was probed";
  } catch (const SampleError& e) {
    EXPECT_EQ(e.stage, "read");
    EXPECT_EQ(std::string(e.what()), "read: wavs: cannot be read: Is a directory");
  }
}

TEST(Damage, AMissingFileFailsWhenItIsOpened) {
  const TempFolder folder;
  EXPECT_THROW(File::open((folder / "none.wav").c_str()), std::system_error);
}

TEST(Damage, AForbiddenFileFailsWhenItIsOpened) {
  const TempFolder folder;
  const auto path = folder / "forbidden.wav";
  write_file(path, WavFile{}.bytes());
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const auto user = ::geteuid();
  if (user == 0 && seteuid(65534) != 0) FAIL();  // root may read everything
  EXPECT_THROW(File::open(path.c_str()), std::system_error);
  ASSERT_EQ(::seteuid(user), 0);
}

TEST(Damage, AFileThatShrinksWhileItIsProbedIsAnError) {
  const TempFolder folder;
  const auto path = folder / "clip";
  write_file(path, encode(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 9000, 22050));
  const File file = File::open(path.c_str());
  std::filesystem::resize_file(path, 20);
  EXPECT_THROW(probe_audio(file, "clip"), SampleError);
}

}  // namespace
}  // namespace penstock::test
