#include "penstock/core/threads.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

namespace penstock {
namespace {

TEST(ParallelFor, CallsEveryIndexOnce) {
  for (const int threads : {-1, 1, 2, 9}) {
    std::vector<std::atomic<int>> calls(1000);
    parallel_for(calls.size(), threads, [&](std::size_t i) { ++calls[i]; });
    for (const auto& n : calls) ASSERT_EQ(n, 1);
  }
  parallel_for(0, 4, [](std::size_t) { FAIL(); });
}

TEST(ParallelFor, ThrowsWhatABodyThrewAndEndsTheLoop) {
  std::atomic<int> calls{0};
  EXPECT_THROW(parallel_for(1'000'000, 3,
                            [&](std::size_t i) {
                              ++calls;
                              if (i == 10) throw std::runtime_error("ten");
                            }),
               std::runtime_error);
  EXPECT_LT(calls, 1'000'000);
}

TEST(AvailableCpus, RespectsTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_GE(available_cpus(), 1);
  EXPECT_LE(available_cpus(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(available_cpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(GiveWay, LowersThisThreadAlone) {
  const int before = getpriority(PRIO_PROCESS, 0);
  int inside = 0;
  std::thread([&] {
    give_way();
    inside = getpriority(PRIO_PROCESS, 0);
  }).join();
  EXPECT_EQ(inside, std::max(before, 15));
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), before);
}

}  // namespace
}  // namespace penstock
