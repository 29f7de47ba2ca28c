// Mel -> waveform: what comes out has the mel that went in, as nearly as phases can be found.
#include "penstock/features/griffin_lim.h"

#include <cmath>
#include <limits>
#include <numbers>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "penstock/features/mel.h"

namespace penstock {
namespace {

/// A gliding voice: harmonics under two resonances.
std::vector<float> voice(const MelOptions& options, double seconds) {
  std::vector<float> audio(static_cast<std::size_t>(seconds * options.sample_rate));
  double phase = 0;
  for (std::size_t i = 0; i < audio.size(); ++i) {
    const double t = static_cast<double>(i) / options.sample_rate, pitch = 120 + 40 * std::sin(3 * t);
    phase += 2 * std::numbers::pi * pitch / options.sample_rate;
    double sum = 0;
    for (int h = 1; h * pitch < 5000; ++h) {
      const double f = h * pitch;
      sum += (1 / (1 + std::pow((f - 600) / 150, 2)) + 0.3 / (1 + std::pow((f - 1800) / 250, 2))) *
             std::sin(h * phase);
    }
    audio[i] = static_cast<float>(0.1 * sum);
  }
  return audio;
}

std::vector<float> mel_of(const MelOptions& options, std::span<const float> audio) {
  std::vector<float> mel(
      static_cast<std::size_t>(options.frames(static_cast<std::int64_t>(audio.size())) * options.n_mels));
  mel_reference(options, audio, mel.data(), options.n_mels);
  return mel;
}

/// Mean distance in nepers where there is something to hear, away from the ends.
double distance(const MelOptions& options, std::span<const float> wanted, std::span<const float> got) {
  const auto bins = static_cast<std::size_t>(options.n_mels),
             frames = std::min(wanted.size(), got.size()) / bins;
  const double unit = options.log == MelLog::ln ? 1 : std::log(10.0) / 20;
  double sum = 0, count = 0;
  for (std::size_t i = 4 * bins; i < (frames - 4) * bins; ++i)
    if (wanted[i] * unit > -7) sum += std::abs(wanted[i] - got[i]) * unit, ++count;
  return sum / count;
}

class GriffinLim : public testing::TestWithParam<const char*> {
 protected:
  const MelOptions options_ = *mel_preset(GetParam());
  const std::vector<float> mel_ = mel_of(options_, voice(options_, 1.5));
};

TEST_P(GriffinLim, TheWaveformHasTheMel) {
  const std::vector<float> audio = griffin_lim(options_, mel_);
  const std::vector<float> again = mel_of(options_, audio);
  EXPECT_NEAR(static_cast<double>(again.size()), static_cast<double>(mel_.size()), options_.n_mels);
  EXPECT_LT(distance(options_, mel_, again), 0.3);
  const std::vector<float> noise = griffin_lim(options_, mel_, {.iterations = 0});
  EXPECT_LT(distance(options_, mel_, again), 0.6 * distance(options_, mel_, mel_of(options_, noise)));
}

TEST_P(GriffinLim, MomentumHelps) {
  const auto after = [&](double momentum) {
    return distance(options_, mel_,
                    mel_of(options_, griffin_lim(options_, mel_, {.iterations = 30, .momentum = momentum})));
  };
  EXPECT_LT(after(0.99), after(0));
}

TEST_P(GriffinLim, TheSameArgumentsGiveTheSameSamples) {
  const GriffinLimOptions few{.iterations = 3};
  EXPECT_EQ(griffin_lim(options_, mel_, few), griffin_lim(options_, mel_, few));
  EXPECT_NE(griffin_lim(options_, mel_, few), griffin_lim(options_, mel_, {.iterations = 3, .seed = 1}));
}

TEST_P(GriffinLim, WhatIsNoMelIsNamed) {
  const auto all_but_one = std::span(mel_).first(mel_.size() - 1);
  EXPECT_THROW(griffin_lim(options_, {}), Error);
  EXPECT_THROW(griffin_lim(options_, all_but_one), Error);
  std::vector<float> bad = mel_;
  bad[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(griffin_lim(options_, bad), Error);
}

INSTANTIATE_TEST_SUITE_P(Presets, GriffinLim, testing::Values("hifigan", "myxtts", "librosa"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace penstock
