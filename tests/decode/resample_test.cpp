#include <algorithm>

#include <gmock/gmock.h>

#include "tests/decode/files.h"

namespace penstock::test {
namespace {

Bytes float_wav(const std::vector<float>& samples, std::uint32_t rate) {
  return WavFile{.tag = 3, .sample_rate = rate, .bits = 32, .data = bytes_of(samples)}.bytes();
}

TEST(Resample, LengthIsRoundedHalfUp) {
  EXPECT_EQ(resampled_length(100, 22050, 22050), 100);
  EXPECT_EQ(resampled_length(1, 44100, 22050), 1);
  EXPECT_EQ(resampled_length(3, 44100, 22050), 2);
  EXPECT_EQ(resampled_length(4, 44100, 22050), 2);
  EXPECT_EQ(resampled_length(1, 48000, 16000), 0);
  EXPECT_EQ(resampled_length(2, 48000, 16000), 1);
  EXPECT_EQ(resampled_length(16000, 16000, 22050), 22050);
  EXPECT_EQ(resampled_length(std::int64_t{4} * 3600 * 384000, 384000, 1000), 4 * 3600 * 1000);
}

TEST(Resample, EveryLengthComesOutExactly) {
  for (const int from : {8000, 16000, 22050, 24000, 44100, 48000, 11025, 37800, 44101}) {
    Decoder decoder({.sample_rate = 22050});
    for (const std::size_t n : {1U, 2U, 3U, 7U, 100U, 1001U, 4096U, 9999U, 50001U}) {
      const auto length = resampled_length(static_cast<std::int64_t>(n), from, 22050);
      if (length == 0) continue;
      const Bytes bytes = float_wav(tones(n, from), static_cast<std::uint32_t>(from));
      EXPECT_EQ(decoder.decode(bytes, "clip").size(), static_cast<std::size_t>(length)) << from << ' ' << n;
    }
  }
}

TEST(Resample, AToneIsTheSameToneAtTheOtherRate) {
  for (const int from : {16000, 24000, 44100, 48000}) {
    const auto expected = tones(22050, 22050);
    const auto got =
        decode(float_wav(tones(static_cast<std::size_t>(from), from), static_cast<std::uint32_t>(from)));
    ASSERT_EQ(got.size(), expected.size());
    double worst = 0;
    // Away from the ends, where the tone begins and stops at once; 20 bits of precision.
    for (std::size_t i = 1000; i + 1000 < got.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])));
    EXPECT_LT(worst, 1e-5) << from;
  }
}

TEST(Resample, TheEndIsNotSilenced) {
  const auto got = decode(float_wav(std::vector<float>(44100, 0.5F), 44100));
  ASSERT_EQ(got.size(), 22050U);
  // A step down at the end overshoots, but the last samples still belong to the signal.
  EXPECT_NEAR(got[got.size() - 200], 0.5, 0.01);
  EXPECT_GT(got.back(), 0.2F);
}

TEST(Resample, BitsDoNotDependOnWhatWasResampledBefore) {
  const Bytes clip = float_wav(tones(30011, 44100), 44100);
  const auto fresh = decode(clip);
  Decoder decoder({});
  for (const std::uint32_t rate : {44100U, 16000U, 48000U, 44100U}) {
    decoder.decode(float_wav(tones(7777, rate), rate), "other");
    EXPECT_TRUE(std::ranges::equal(decoder.decode(clip, "clip"), fresh));
  }
}

TEST(Resample, AnotherRateIsRefusedWhenConfigured) {
  const Bytes bytes = float_wav(tones(1000, 16000), 16000);
  EXPECT_EQ(cause_of(bytes, true, {.sample_rate = 22050, .resample = false}),
            "sample rate must be 22050, but is 16000; set resample: true to convert");
  EXPECT_EQ(decode(bytes, {.sample_rate = 16000, .resample = false}), tones(1000, 16000));
}

TEST(Resample, AClipTooShortForOneSampleIsRefused) {
  EXPECT_EQ(cause_of(float_wav({0.5F}, 48000), true, {.sample_rate = 16000}),
            "must be at least 1 sample at 16000 Hz, but is 1 at 48000 Hz");
}

TEST(Resample, OverflowInTheFilterIsAnError) {
  std::vector<float> extreme(5000);
  for (std::size_t i = 0; i < extreme.size(); ++i) extreme[i] = (i / 2) % 2 == 0 ? 3.4e38F : -3.4e38F;
  EXPECT_THAT(cause_of(float_wav(extreme, 44100), true), testing::HasSubstr("samples must be finite"));
}

TEST(Resample, AWantedRateOutOfRangeIsMisuse) {
  EXPECT_THROW(Decoder({.sample_rate = 0}), Error);
  EXPECT_THROW(Decoder({.sample_rate = 1'000'000}), Error);
}

}  // namespace
}  // namespace penstock::test
