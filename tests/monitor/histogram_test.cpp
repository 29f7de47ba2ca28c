#include "penstock/monitor/histogram.h"

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/monitor/probe.h"

namespace penstock {
namespace {

using std::chrono::nanoseconds;

TEST(Histogram, QuantilesAreWithinAnEighthOfTheTrueOnes) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> spread(12, 3);
  Histogram h;
  std::vector<std::int64_t> values(5000);
  for (auto& v : values) h.add(nanoseconds(v = static_cast<std::int64_t>(spread(random))));
  std::sort(values.begin(), values.end());
  for (const double q : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const auto exact = static_cast<double>(values[static_cast<std::size_t>(q * 5000) - 1]);
    EXPECT_GE(static_cast<double>(h.quantile(q).count()), exact);
    EXPECT_LE(static_cast<double>(h.quantile(q).count()), exact * 1.125 + 1);
  }
  EXPECT_EQ(h.count(), 5000u);
}

TEST(Histogram, TheSmallestAndTheLargestHaveAPlace) {
  Histogram h;
  EXPECT_EQ(h.quantile(0.5).count(), 0);
  h.add(nanoseconds(-5));
  h.add(nanoseconds(3));
  h.add(std::chrono::hours(1000));
  EXPECT_EQ(h.quantile(0.66).count(), 3);
  EXPECT_GT(h.quantile(1), std::chrono::hours(1));
}

TEST(Probe, AddsTheTimeOfItsStageAlsoWhenTheCallThrows) {
  StageClock clock;
  EXPECT_EQ(probe(clock, Stage::mel, [] { return 7; }), 7);
  const auto once = clock.nanoseconds(static_cast<std::size_t>(Stage::mel));
  EXPECT_THROW(probe(clock, Stage::mel,
                     [] {
                       std::this_thread::sleep_for(std::chrono::milliseconds(1));
                       throw 1;
                     }),
               int);
  EXPECT_GE(clock.nanoseconds(static_cast<std::size_t>(Stage::mel)), once + 1'000'000);
  EXPECT_EQ(clock.nanoseconds(static_cast<std::size_t>(Stage::read)), 0u);
}

}  // namespace
}  // namespace penstock
