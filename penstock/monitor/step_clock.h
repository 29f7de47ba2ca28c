// An emulated device: steps of a given length, and how busy they kept it.
//
//   StepClock clock;
//   for (...) { batch = feed.next(); clock.step(milliseconds(10)); }
//   clock.au();
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>

namespace penstock {

/// One thread.
class StepClock {
 public:
  using Clock = std::chrono::steady_clock;
  /// The end of every step is spun, not slept, since a sleeping thread wakes late.
  static constexpr std::chrono::microseconds spin{300};

  /// `check` is called at the start of every step and whenever a signal ends its sleep. It may throw, which
  /// ends the step.
  explicit StepClock(std::function<void()> check = {}) : check_(std::move(check)) {}

  /// A step that begins now and ends `duration` later: an absolute deadline, so that lateness does not add
  /// up.
  void step(Clock::duration duration) {
    start(duration);
    finish();
  }
  /// The same in two parts: what the host does between them goes on beside the step, as it does beside a
  /// device that computes by itself.
  void start(Clock::duration duration);
  void finish();

  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// From the start of the second step to the end of the last: what AU is a share of. 0 before the second.
  [[nodiscard]] std::chrono::duration<double> elapsed() const;
  /// Accelerator utilisation, 0..1: the lengths of all steps from the second on / elapsed(). 0 before the
  /// second.
  [[nodiscard]] double au() const;

 private:
  std::function<void()> check_;
  std::int64_t steps_ = 0;
  Clock::duration computed_{0};  // from the second step on
  Clock::time_point second_start_, deadline_, end_;
};

}  // namespace penstock
