#include "penstock/monitor/step_clock.h"

#include <thread>

#include <gtest/gtest.h>

namespace penstock {
namespace {

using std::chrono::milliseconds;

TEST(StepClock, AStepNeverEndsBeforeItsTime) {
  StepClock clock;
  for (const auto length : {StepClock::Clock::duration(0), StepClock::Clock::duration(1000),
                            StepClock::Clock::duration(milliseconds(2))}) {
    const auto start = StepClock::Clock::now();
    clock.step(length);
    EXPECT_GE(StepClock::Clock::now() - start, length);
  }
  EXPECT_EQ(clock.steps(), 3);
}

TEST(StepClock, UtilisationCountsFromTheSecondStepOn) {
  StepClock clock;
  EXPECT_EQ(clock.au(), 0);
  clock.step(milliseconds(1));
  EXPECT_EQ(clock.au(), 0);
  EXPECT_EQ(clock.elapsed().count(), 0);
  std::this_thread::sleep_for(milliseconds(5));  // before the second step: does not count
  clock.step(milliseconds(2));
  const double first = clock.elapsed().count();
  EXPECT_GE(first, 0.002);
  EXPECT_NEAR(clock.au(), 0.002 / first, 1e-9);
  std::this_thread::sleep_for(milliseconds(4));
  clock.step(milliseconds(3));
  EXPECT_GE(clock.elapsed().count(), first + 0.007);
  EXPECT_NEAR(clock.au(), 0.005 / clock.elapsed().count(), 1e-9);  // steps may differ in length
  EXPECT_LE(clock.au(), 5.0 / 9);
}

TEST(StepClock, TheCheckMayEndAStep) {
  int calls = 0;
  StepClock clock([&] {
    if (++calls == 2) throw 7;
  });
  clock.step(milliseconds(0));
  EXPECT_THROW(clock.step(std::chrono::hours(1)), int);
}

}  // namespace
}  // namespace penstock
