// Every instruction set, in both precisions, against the double-precision reference. test_mel.py compares the
// reference with librosa and torch.
#include "penstock/features/mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

using Audio = std::vector<float>;

constexpr float untouched_mel = -12345.5F;
constexpr MelPrecision precisions[] = {MelPrecision::fast, MelPrecision::exact};

Audio noise(std::size_t samples, float level = 0.3F) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, level);
  Audio audio(samples);
  for (float& x : audio) x = normal(random);
  return audio;
}

/// A gliding voice with formants, pauses and a little noise: loud lows, quiet highs, soft onsets.
Audio voice(std::size_t samples) {
  Audio audio = noise(samples, 1e-4F);
  for (std::size_t i = 0; i < samples; ++i) {
    const double t = static_cast<double>(i) / 22050;
    double sum = 0;
    for (int harmonic = 1; harmonic <= 30; ++harmonic) {
      const double pitch = 120 + 30 * std::sin(3 * t);
      sum += std::sin(2 * std::numbers::pi * harmonic * pitch * t) / (harmonic * harmonic);
    }
    audio[i] += static_cast<float>(0.4 * std::max(0.0, std::sin(9 * t)) * sum);
  }
  return audio;
}

Audio square(std::size_t samples) {
  Audio audio(samples);
  for (std::size_t i = 0; i < samples; ++i) audio[i] = i / 50 % 2 == 0 ? 1.0F : -1.0F;
  return audio;
}

std::size_t index_of(const MelOptions& options, std::int64_t frame, int bin, std::ptrdiff_t stride) {
  return static_cast<std::size_t>(options.layout == MelLayout::frames_first ? frame * stride + bin
                                                                            : bin * stride + frame);
}

/// A filled row of a batch, with room behind the frames and behind the bins that nobody may touch.
struct Row {
  std::ptrdiff_t stride;
  std::vector<float> values;
};

Row row_for(const MelOptions& options, std::int64_t frames) {
  const bool frames_first = options.layout == MelLayout::frames_first;
  const std::ptrdiff_t stride = (frames_first ? options.n_mels : frames) + 5;
  const auto lines = static_cast<std::size_t>(frames_first ? frames : options.n_mels);
  return {stride, std::vector<float>(static_cast<std::size_t>(stride) * (lines + 3), untouched_mel)};
}

double log_scale(const MelOptions& options) {
  if (options.log == MelLog::ln) return 1;
  return (options.log == MelLog::log10 ? 1 : options.power == 2 ? 10 : 20) / std::numbers::ln10;
}

/// What rounding may do to a mel value x: an FFT's error is a few units in the last place of the frame's
/// norm, whatever the size of the bin; filters and logarithm are float32 in both precisions.
double allowed(const MelOptions& options, double x, double frame_norm, double filter_sum) {
  const bool exact = options.precision == MelPrecision::exact;
  const double bin = (exact ? 1e-15 : 5e-7) * frame_norm;
  const double spectrum =
      options.power == 1 ? filter_sum * bin : 2 * std::sqrt(x * filter_sum) * bin + filter_sum * bin * bin;
  return spectrum + (exact ? 2e-6 : 3e-6) * x;
}

void expect_equal(MelOptions options, const Audio& audio, const std::string& what) {
  const std::int64_t frames = options.frames(static_cast<std::int64_t>(audio.size()));
  Row expected = row_for(options, frames);
  mel_reference(options, audio, expected.values.data(), expected.stride);

  const std::vector<double> bank = mel_filterbank(options);
  const int spectrum = options.n_fft / 2 + 1;
  float peak = 0;
  for (const float x : audio) peak = std::max(peak, std::abs(x));
  const double norm =
      peak * std::sqrt(0.375 * options.win_length);  // a full-scale square through a Hann window

  const auto expect_row = [&](Row row, const std::string& how) {
    for (int bin = 0; bin < options.n_mels; ++bin) {
      const auto filter = bank.begin() + static_cast<std::ptrdiff_t>(bin) * spectrum;
      const double filter_sum = std::accumulate(filter, filter + spectrum, 0.0);
      for (std::int64_t frame = 0; frame < frames; ++frame) {
        const std::size_t at = index_of(options, frame, bin, row.stride);
        const double want = std::exp(expected.values[at] / log_scale(options));
        const double have = std::exp(row.values[at] / log_scale(options));
        ASSERT_NEAR(have, want, allowed(options, want, norm, filter_sum))
            << how << ", frame " << frame << " of " << frames << ", bin " << bin;
        row.values[at] = untouched_mel;
      }
    }
    ASSERT_TRUE(std::ranges::all_of(row.values, [](float x) { return x == untouched_mel; })) << how;
  };
  for (const MelPrecision precision : precisions) {
    options.precision = precision;
    for (const std::string& target : Mel::targets()) {
      MelScratch scratch;
      Row row = row_for(options, frames);
      Mel(options, target).compute(audio, row.values.data(), row.stride, scratch);
      const char* name = precision == MelPrecision::exact ? "exact" : "fast";
      ASSERT_NO_FATAL_FAILURE(expect_row(std::move(row), fmt::format("{}, {}, {}", what, name, target)));
    }
  }
}

std::vector<std::pair<std::string, Audio>> signals(std::size_t samples) {
  return {{"voice", voice(samples)},
          {"noise", noise(samples)},
          {"silence", Audio(samples)},
          {"dc", Audio(samples, 0.5F)},
          {"square", square(samples)}};
}

TEST(MelTest, PresetsAreTheReferenceOnEveryTarget) {
  for (const char* name : {"hifigan", "myxtts", "librosa"})
    for (const auto& [what, audio] : signals(9000))
      expect_equal(*mel_preset(name), audio, fmt::format("{} {}", name, what));
}

TEST(MelTest, EveryTransformLengthIsTheReference) {
  for (int n_fft = 256; n_fft <= 4096; n_fft *= 2)
    for (const int win_length : {n_fft, n_fft * 3 / 4 + 1})
      for (const auto& [what, audio] : signals(4 * n_fft))
        expect_equal({.n_fft = n_fft, .win_length = win_length, .hop_length = n_fft / 4}, audio,
                     fmt::format("n_fft {} win {} {}", n_fft, win_length, what));
}

TEST(MelTest, AnyHopIsTheReference) {
  for (const int hop : {1, 3, 4, 15, 63, 100, 255, 256, 300, 511, 512})
    for (const MelFraming framing : {MelFraming::centered, MelFraming::same, MelFraming::valid})
      expect_equal({.n_fft = 512, .win_length = 400, .hop_length = hop, .framing = framing},
                   voice(511 + 37 * hop), fmt::format("hop {}", hop));
}

TEST(MelTest, ShortClipsAreTheReference) {
  for (const std::size_t samples : {1, 2, 3, 100, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025})
    for (const MelFraming framing : {MelFraming::centered, MelFraming::same, MelFraming::valid})
      for (const MelPad pad : {MelPad::reflect, MelPad::constant})
        expect_equal({.framing = framing, .pad = pad}, noise(samples), fmt::format("{} samples", samples));
}

TEST(MelTest, EveryNumberOfFramesInABlockIsTheReference) {
  for (const MelLayout layout : {MelLayout::frames_first, MelLayout::bins_first})
    for (int frames = 1; frames <= 35; ++frames)
      expect_equal({.n_fft = 256, .win_length = 256, .hop_length = 64, .n_mels = 23, .layout = layout},
                   noise(64 * (frames - 1) + 1), fmt::format("{} frames", frames));
}

TEST(MelTest, EveryDefinitionIsTheReference) {
  const Audio audio = voice(5000);
  for (const MelScale scale : {MelScale::slaney, MelScale::htk})
    for (const MelNorm norm : {MelNorm::slaney, MelNorm::none})
      for (const int power : {1, 2})
        for (const MelLog log : {MelLog::ln, MelLog::log10, MelLog::db})
          for (const MelLayout layout : {MelLayout::frames_first, MelLayout::bins_first})
            for (const int n_mels : {1, 40, 81, 200})
              expect_equal({.n_fft = 512,
                            .win_length = 512,
                            .hop_length = 160,
                            .n_mels = n_mels,
                            .fmin = n_mels == 40 ? 55.0 : 0.0,
                            .fmax = n_mels == 81 ? 11025.0 : 7600.0,
                            .scale = scale,
                            .norm = norm,
                            .power = power,
                            .magnitude_eps = n_mels == 1 ? 1e-6 : 0,
                            .log = log,
                            .layout = layout},
                           audio, fmt::format("{} bins", n_mels));
}

TEST(MelTest, SilenceIsExactlyTheFloorsLogarithm) {
  for (const double floor : {1e-5, 1e-10, 1e-30, 1.0}) {
    for (const MelLog log : {MelLog::ln, MelLog::log10, MelLog::db}) {
      for (const MelPrecision precision : precisions) {
        const MelOptions options{.log = log, .floor = floor, .precision = precision};
        for (const std::string& target : Mel::targets()) {
          std::vector<float> out(11 * 80);
          MelScratch scratch;
          Mel(options, target).compute(Audio(2600), out.data(), 80, scratch);
          const auto expected = static_cast<float>(log_scale(options) * std::log(floor));
          EXPECT_TRUE(std::ranges::all_of(out, [&](float x) { return x == expected; }))
              << target << " " << floor;
        }
      }
    }
  }
}

TEST(MelTest, AFrameDoesNotDependOnTheOthers) {
  const Audio audio = noise(1024 + 40 * 256);
  Audio changed = audio;
  for (std::size_t i = 1024 + 20 * 256; i < changed.size(); ++i) changed[i] = 1e6F;
  for (const MelPrecision precision : precisions) {
    for (const std::string& target : Mel::targets()) {
      const Mel mel({.framing = MelFraming::valid, .precision = precision}, target);
      MelScratch scratch;
      std::vector<float> before(41 * 80), after(41 * 80);
      mel.compute(audio, before.data(), 80, scratch);
      mel.compute(changed, after.data(), 80, scratch);
      EXPECT_TRUE(std::equal(before.begin(), before.begin() + 21 * 80, after.begin())) << target;
    }
  }
}

TEST(MelTest, EmptyAudioWritesNothing) {
  float out = untouched_mel;
  MelScratch scratch;
  Mel(MelOptions{}).compute({}, &out, 80, scratch);
  EXPECT_EQ(out, untouched_mel);
}

TEST(MelTest, ScratchDoesNotGrowWithTheClip) {
  for (const MelPrecision precision : precisions) {
    for (const std::string& target : Mel::targets()) {
      const Mel mel({.framing = MelFraming::same, .precision = precision}, target);
      MelScratch scratch;
      std::vector<float> out(200 * 80);
      mel.compute(noise(300), out.data(), 80, scratch);
      const float* memory = scratch.floats.of(1).data();
      mel.compute(noise(200 * 256), out.data(), 80, scratch);
      EXPECT_EQ(scratch.floats.of(1).data(), memory) << target;
    }
  }
}

TEST(MelTest, BothPrecisionsCanShareAScratch) {
  const Audio audio = voice(9000);
  for (const std::string& target : Mel::targets()) {
    MelScratch shared;
    for (const MelPrecision precision : {MelPrecision::exact, MelPrecision::fast, MelPrecision::exact}) {
      const Mel mel({.precision = precision}, target);
      MelScratch own;
      std::vector<float> alone(36 * 80), after(36 * 80);
      mel.compute(audio, alone.data(), 80, own);
      mel.compute(audio, after.data(), 80, shared);
      EXPECT_EQ(alone, after) << target;
    }
  }
}

TEST(MelTest, TargetsAreBestFirstAndTheBestIsTheDefault) {
  ASSERT_FALSE(Mel::targets().empty());
  EXPECT_EQ(Mel(MelOptions{}).target(), Mel::targets().front());
  for (const std::string& target : Mel::targets()) EXPECT_EQ(Mel(MelOptions{}, target).target(), target);
}

TEST(MelTest, AnUnknownTargetIsAnErrorThatNamesTheOthers) {
  try {
    const Mel mel(MelOptions{}, "AVX9");
    FAIL() << mel.target();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(Mel::targets().front()), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("AVX9"), std::string::npos) << e.what();
  }
}

TEST(MelTest, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(Mel({.n_fft = 1000}), Error);
  EXPECT_THROW(Mel({.win_length = 2048}), Error);
  EXPECT_THROW(Mel({.hop_length = 0}), Error);
  EXPECT_THROW(Mel({.fmin = 9000}), Error);
  EXPECT_THROW(Mel({.fmax = 12000}), Error);
  EXPECT_THROW(Mel({.power = 3}), Error);
}

}  // namespace
}  // namespace penstock
