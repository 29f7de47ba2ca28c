#include "penstock/monitor/series.h"

#include <cmath>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/long_run.h"

namespace penstock {
namespace {

/// `count` values of a wave whose cycles last `period`, each up to `jitter` (a share) longer or shorter.
std::vector<double> wave(std::mt19937& random, std::size_t count, double period, double jitter, double noise,
                         const std::function<double(double phase)>& shape) {
  std::normal_distribution<double> normal(0, noise);
  std::uniform_real_distribution<double> uniform(-jitter, jitter);
  std::vector<double> values;
  double start = -period * std::uniform_real_distribution<double>(0, 1)(random), length = period;
  for (std::size_t i = 0; i < count; ++i) {
    while (static_cast<double>(i) >= start + length) {
      start += length;
      length = period * (1 + uniform(random));
    }
    values.push_back(10 + shape((static_cast<double>(i) - start) / length) + normal(random));
  }
  return values;
}

double square(double phase) { return phase < 0.5 ? 1 : 0; }
double sawtooth(double phase) { return phase; }
double stall(double phase) { return phase < 0.1 ? 5 : 0; }

TEST(Series, SummaryOfKnownValues) {
  const SeriesSummary s = summarise({4, 1, 3, 2});
  EXPECT_EQ(s.count, 4);
  EXPECT_DOUBLE_EQ(s.mean, 2.5);
  EXPECT_DOUBLE_EQ(s.deviation, std::sqrt(1.25));
  EXPECT_DOUBLE_EQ(s.cv, std::sqrt(1.25) / 2.5);
  EXPECT_EQ(s.p50, 2);
  EXPECT_EQ(s.p95, 4);
  EXPECT_EQ(s.max, 4);
}

TEST(Series, AnEmptySeriesHasNoFigures) {
  EXPECT_EQ(summarise({}).mean, 0);
  EXPECT_FALSE(find_oscillation({}));
}

TEST(Series, PeriodsAreFoundWithinATenth) {
  std::mt19937 random(1);
  int seen = 0, right = 0;
  for (int i = 0; i < cases(300, 5'000); ++i) {
    const std::size_t count = std::uniform_int_distribution<std::size_t>(60, 1000)(random);
    const double period = std::uniform_real_distribution<double>(5, static_cast<double>(count) / 5)(random);
    const double jitter = i % 3 == 0 ? 0 : 0.15;
    const auto shape = i % 2 == 0 ? square : sawtooth;
    const double amplitude = i % 2 == 0 ? 0.5 : 0.29;
    const auto values = wave(random, count, period, jitter, 0.3 * amplitude, shape);
    const Oscillation o = find_oscillation(values);
    ++seen;
    // What the series itself has: cycles of random length are not all of their mean.
    right += std::abs(o.period - period) < 0.1 * period ? 1 : 0;
  }
  EXPECT_GE(right, seen * 95 / 100) << right << " of " << seen;
}

TEST(Series, AStallNowAndThenHasAPeriod) {
  std::mt19937 random(2);
  for (const double period : {10.0, 25.0, 40.0}) {
    const Oscillation o = find_oscillation(wave(random, 300, period, 0, 0.3, stall));
    EXPECT_NEAR(o.period, period, 0.1 * period);
    EXPECT_GT(o.strength, 0.5);
  }
}

TEST(Series, WhiteNoiseHasNoPeriod) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(100, 10);
  std::exponential_distribution<double> exponential(0.1);
  for (const bool even : {true, false}) {
    int claimed = 0;
    const int draws = cases(1'000, 10'000);
    for (int i = 0; i < draws; ++i) {
      std::vector<double> values(std::uniform_int_distribution<std::size_t>(20, 600)(random));
      for (double& v : values) v = even ? normal(random) : 5 + exponential(random);
      claimed += find_oscillation(values) ? 1 : 0;
    }
    EXPECT_LE(claimed, draws / 100) << (even ? "normal" : "exponential");
  }
}

TEST(Series, ATrendAJumpAndAConstantHaveNone) {
  std::mt19937 random(4);
  std::normal_distribution<double> normal(0, 0.1);
  std::vector<double> trend, jump, bend;
  for (int i = 0; i < 200; ++i) {
    trend.push_back(i * 0.05 + normal(random));
    jump.push_back((i < 80 ? 1 : 3) + normal(random));
    bend.push_back(std::exp(-i / 40.0) * 5 + normal(random));
  }
  EXPECT_FALSE(find_oscillation(trend));
  EXPECT_FALSE(find_oscillation(jump));
  EXPECT_FALSE(find_oscillation(bend));
  EXPECT_FALSE(find_oscillation(std::vector<double>(100, 7.0)));
}

}  // namespace
}  // namespace penstock
