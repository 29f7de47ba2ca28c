#include "penstock/monitor/step_clock.h"

#include <time.h>

namespace penstock {

void StepClock::start(Clock::duration duration) {
  const Clock::time_point start = Clock::now();
  deadline_ = start + duration;
  if (++steps_ == 2) second_start_ = start;
  if (steps_ >= 2) computed_ += duration;
}

void StepClock::finish() {
  if (check_) check_();
  if (const Clock::time_point wake = deadline_ - spin; wake > Clock::now()) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(wake.time_since_epoch()).count();
    const timespec at{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) != 0)
      if (check_) check_();
  }
  while ((end_ = Clock::now()) < deadline_) {
  }
}

std::chrono::duration<double> StepClock::elapsed() const {
  return steps_ < 2 ? Clock::duration{0} : end_ - second_start_;
}

double StepClock::au() const {
  return steps_ < 2 ? 0 : std::chrono::duration<double>(computed_).count() / elapsed().count();
}

}  // namespace penstock
