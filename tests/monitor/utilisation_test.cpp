#include "penstock/monitor/utilisation.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using testing::HasSubstr;

std::vector<double> square(std::size_t count, std::size_t period, double low, double high) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(i % period < period / 2 ? high : low);
  return values;
}

TEST(Utilisation, ADeviceThatWaitsByTurnsSwingsWithItsPeriod) {
  const auto j = judge_utilisation(square(300, 18, 0.02, 0.4), 0.1);
  EXPECT_EQ(j.pressure, Pressure::swings);
  EXPECT_NEAR(j.period_s, 1.8, 0.18);
  EXPECT_NEAR(j.low_share, 0.5, 0.05);
  EXPECT_NEAR(j.seconds, 30, 1e-9);
  EXPECT_THAT(verdict(j, "GPU 0"), HasSubstr("GPU 0 swings between 2 % and 40 % every 1.8 s"));
}

TEST(Utilisation, ABusyDeviceIsSteadyAlsoWhereItBreathes) {
  const auto j = judge_utilisation(square(300, 10, 0.92, 1.0), 0.1);
  EXPECT_EQ(j.pressure, Pressure::steady);
  EXPECT_THAT(verdict(j, "GPU 1"), HasSubstr("kept busy: 96 %"));
}

TEST(Utilisation, EvenlyHalfBusyIsNoSwing) {
  EXPECT_EQ(judge_utilisation(std::vector<double>(100, 0.5), 0.1).pressure, Pressure::partly);
}

TEST(Utilisation, AnIdleDeviceIsCalledSo) {
  const auto j = judge_utilisation(std::vector<double>(100, 0.03), 0.1);
  EXPECT_EQ(j.pressure, Pressure::idle);
  EXPECT_EQ(j.low_share, 1);
}

TEST(Utilisation, AFewSamplesAreNotJudged) {
  EXPECT_EQ(judge_utilisation(std::vector<double>(5, 0.5), 0.1).pressure, Pressure::unknown);
  EXPECT_EQ(judge_utilisation({}, 0.1).pressure, Pressure::unknown);
}

}  // namespace
}  // namespace penstock
