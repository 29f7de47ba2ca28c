#include "penstock/monitor/series.h"

#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/long_run.h"

namespace penstock {
namespace {

struct Wave {
  std::vector<double> values;
  double period = 0;  // the mean of its whole cycles
};

/// `count` values of a wave whose cycles last `period`, each up to `jitter` (a share) longer or shorter.
Wave wave(std::mt19937& random, std::size_t count, double period, double jitter, double noise,
          const std::function<double(double phase)>& shape) {
  std::normal_distribution<double> normal(0, noise);
  std::uniform_real_distribution<double> uniform(-jitter, jitter);
  Wave made;
  double start = -period * std::uniform_real_distribution<double>(0, 1)(random), length = period;
  double whole = 0, cycles = 0;
  for (std::size_t i = 0; i < count; ++i) {
    while (static_cast<double>(i) >= start + length) {
      if (start >= 0) whole += length, cycles += 1;
      start += length;
      length = period * (1 + uniform(random));
    }
    made.values.push_back(10 + shape((static_cast<double>(i) - start) / length) + normal(random));
  }
  made.period = whole / cycles;
  return made;
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

struct Pattern {
  const char* name;
  double (*shape)(double);
  double jitter, noise;
};

TEST(Series, PeriodsAreFoundWithinATenth) {
  std::mt19937 random(1);
  for (const Pattern& p :
       {Pattern{"square waves", square, 0, 0.15}, Pattern{"sawtooth waves", sawtooth, 0, 0.09},
        Pattern{"square waves whose cycles vary by 15 %", square, 0.15, 0.15},
        Pattern{"sawtooth waves whose cycles vary by 15 %", sawtooth, 0.15, 0.09}}) {
    const int draws = cases(100, 2'000);
    int right = 0;
    for (int i = 0; i < draws; ++i) {
      const auto count = std::uniform_int_distribution<std::size_t>(60, 1000)(random);
      const double period = std::uniform_real_distribution<double>(5, static_cast<double>(count) / 5)(random);
      const Wave made = wave(random, count, period, p.jitter, p.noise, p.shape);
      const double found = find_oscillation(made.values).period;
      right += std::abs(found - made.period) < 0.1 * made.period ? 1 : 0;
    }
    std::printf("periods of %s within 10 %%: %d of %d\n", p.name, right, draws);
    EXPECT_GE(right, draws * 95 / 100) << p.name;
  }
}

TEST(Series, AStallNowAndThenHasAPeriod) {
  std::mt19937 random(2);
  for (const double period : {10.0, 25.0, 40.0}) {
    const Oscillation o = find_oscillation(wave(random, 300, period, 0, 0.3, stall).values);
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
    std::printf("periods claimed in white noise (%s): %d of %d\n", even ? "normal" : "exponential", claimed,
                draws);
    EXPECT_LE(claimed, draws / 100);
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
