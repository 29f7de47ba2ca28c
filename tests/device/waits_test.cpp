// cuda.cpp a second time, with each of its waits left out in turn: none is there for nothing, and the
// stand-in sees when one is missing.
#include "penstock/device/waits.h"

#include <atomic>
#include <iostream>
#include <string_view>

#include <gtest/gtest.h>

#include "../long_run.h"
#include "schedules.h"

namespace penstock {
namespace {
std::atomic<int> left_out{-1};
bool omitted(Wait wait) { return static_cast<int>(wait) == left_out; }
}  // namespace
}  // namespace penstock

#define PENSTOCK_OMIT_WAITS
#define cuda_device cuda_device_without_a_wait
#define runtime_of runtime_of_device_without_a_wait
#include "penstock/device/cuda.cpp"  // NOLINT(bugprone-suspicious-include)

namespace penstock {
namespace {

constexpr std::string_view names[wait_count] = {
    "copy_before_use",  "use_before_copy", "copy_before_refill", "copy_before_reuse", "use_before_growth",
    "free_buffer",      "arrival",         "copies_at_the_end",  "uses_at_the_end",   "copy_after_failure",
    "use_after_failure"};

/// In which schedule something went wrong first; 0: in none of `most`.
int schedules_until_caught(int wait, int most, std::string& problem) {
  left_out = wait;
  int tried = 0;
  while (tried < most && problem.empty())
    problem = run_schedule(static_cast<std::uint64_t>(tried++), [](auto api, int ordinal) {
      return cuda_device_without_a_wait(std::move(api), ordinal);
    });
  left_out = -1;
  return problem.empty() ? 0 : tried;
}

TEST(Waits, EachOneThatIsLeftOutIsCaught) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "what is caught here are data races: the sanitizer would end the program at the first";
#endif
  for (int wait = 0; wait < wait_count; ++wait) {
    std::string problem;
    const int tried = schedules_until_caught(wait, 1000, problem);
    EXPECT_GT(tried, 0) << names[wait];
    std::cout << names[wait] << ": caught in schedule " << tried << ": " << problem << '\n';
  }
}

TEST(Waits, TheSecondCompilationWithAllOfThemIsRight) {
  std::string problem;
  EXPECT_EQ(schedules_until_caught(-1, cases(50, 1000), problem), 0) << problem;
}

}  // namespace
}  // namespace penstock
