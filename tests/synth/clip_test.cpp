#include "penstock/synth/clip.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Clip, TargetsAreSpreadLikeLjSpeech) {
  constexpr int n = 20000;
  std::vector<double> seconds(n);
  for (int i = 0; i < n; ++i) seconds[i] = target_seconds(7, i);
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / n;
  double variance = 0;
  for (const double s : seconds) variance += (s - mean) * (s - mean) / n;
  EXPECT_NEAR(mean, 6.57, 0.05);
  EXPECT_NEAR(std::sqrt(variance), 2.19, 0.05);
  const auto [low, high] = std::minmax_element(seconds.begin(), seconds.end());
  EXPECT_GT(*low, 1.1);
  EXPECT_LT(*low, 1.5);
  EXPECT_GT(*high, 10);
  EXPECT_LT(*high, 10.1);
}

TEST(Clip, TargetsDependOnSeedAndNumberAlone) {
  EXPECT_EQ(target_seconds(3, 5), target_seconds(3, 5));
  EXPECT_NE(target_seconds(3, 5), target_seconds(3, 6));
  EXPECT_NE(target_seconds(3, 5), target_seconds(4, 5));
}

TEST(Clip, EverySpeakerHasOneClipOfEachRound) {
  std::set<std::vector<std::int32_t>> orders;
  for (std::int64_t round = 0; round < 20; ++round) {
    std::vector<std::int32_t> order;
    for (std::int64_t i = 0; i < 7; ++i) order.push_back(speaker_of(11, round * 7 + i, 7));
    orders.insert(order);
    EXPECT_EQ(std::set<std::int32_t>(order.begin(), order.end()),
              (std::set<std::int32_t>{0, 1, 2, 3, 4, 5, 6}));
  }
  EXPECT_GT(orders.size(), 15u);
}

TEST(Clip, NinetyNineSpeakersHaveNinetyNineVoices) {
  for (const char* name : {"en", "fa", "de+f3"}) {
    std::set<std::tuple<std::string, int, int>> voices;
    for (int speaker = 0; speaker < 99; ++speaker) {
      const Voice v = speaker_voice(name, speaker);
      voices.insert({v.name, v.pitch, v.speed});
      EXPECT_GE(v.pitch, 20);
      EXPECT_LE(v.pitch, 80);
    }
    EXPECT_EQ(voices.size(), 99u) << name;
  }
  EXPECT_EQ(speaker_voice("fa", 0).name, "fa");
  EXPECT_EQ(speaker_voice("de+f3", 5).name, "de+f3");
}

TEST(Clip, ATonesLengthIsItsTargetExactly) {
  const SynthOptions options{.seed = 9, .voice = "tone", .sample_rate = 16000};
  for (std::int64_t i = 0; i < 20; ++i) {
    const Clip clip = make_clip(options, i);
    EXPECT_EQ(static_cast<std::int64_t>(clip.sound.samples.size()),
              std::llround(target_seconds(9, i) * 16000));
  }
}

TEST(Clip, AToneIsLoudEnoughHasPausesAndNeverClips) {
  for (const std::int32_t rate : {8000, 22050, 48000}) {
    for (std::int64_t i = 0; i < 30; ++i) {
      const Clip clip = make_clip({.voice = "tone", .speakers = 99, .sample_rate = rate}, i);
      double energy = 0;
      int peak = 0;
      std::size_t quiet = 0;
      for (const std::int16_t x : clip.sound.samples) {
        energy += static_cast<double>(x) * x;
        peak = std::max(peak, std::abs(int{x}));
        quiet += std::abs(int{x}) < 40;
      }
      const auto n = static_cast<double>(clip.sound.samples.size());
      EXPECT_GT(std::sqrt(energy / n), 800);
      EXPECT_LT(peak, 20000);
      EXPECT_GT(static_cast<double>(quiet) / n, 0.02);
    }
  }
}

}  // namespace
}  // namespace penstock
