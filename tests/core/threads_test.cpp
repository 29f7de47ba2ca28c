#include "penstock/core/threads.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/temp_folder.h"

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

class Cgroups : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  double cpus(const std::string& memberships) {
    std::istringstream in(memberships);
    return cgroup_cpus(root_.path(), in);
  }

 private:
  TempFolder root_;
};

TEST_F(Cgroups, AContainerWithTwoCpusOf64HasTwo) {
  write("cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(cpus("0::/\n"), 2);
}

TEST_F(Cgroups, TheLeastQuotaOnTheWayUpCounts) {
  write("a.slice/cpu.max", "150000 100000\n");
  write("a.slice/b.service/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(cpus("0::/a.slice/b.service\n"), 1.5);
  EXPECT_GT(cpus("0::/other\n"), 1e6);
}

TEST_F(Cgroups, TheFirstVersionsCpuControllerCounts) {
  write("cpu/docker/x/cpu.cfs_quota_us", "50000\n");
  write("cpu/docker/x/cpu.cfs_period_us", "100000\n");
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(cpus("12:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n"), 0.5);
  EXPECT_GT(cpus("12:memory:/docker/x\n5:cpuset:/docker/x\n"), 1e6);
}

TEST_F(Cgroups, NonsenseIsNoLimit) {
  write("cpu.max", "many\n");
  EXPECT_GT(cpus("nonsense\n\n0::/\n"), 1e6);
  EXPECT_GT(cpus(""), 1e6);
}

TEST(CpuMeter, ShowsAnotherThreadsTime) {
  CpuMeter meter;
  EXPECT_EQ(meter.read().running, 0);
  std::atomic<bool> stop{false};
  std::jthread spinner([&] {
    meter.attach();
    while (!stop) {
    }
  });
  while (meter.read().running < 0.02) std::this_thread::yield();
  const CpuTime before = meter.read();
  while (meter.read().running < before.running + 0.01) std::this_thread::yield();
  EXPECT_GE(meter.read().ready, before.ready);
  stop = true;
}

TEST(GiveWay, LowersThisThreadAlone) {
  const int before = getpriority(PRIO_PROCESS, 0);
  int inside = 0, policy = 0;
  std::thread([&] {
    give_way();
    inside = getpriority(PRIO_PROCESS, 0);
    policy = sched_getscheduler(0);
  }).join();
  EXPECT_EQ(inside, 19);
  EXPECT_EQ(policy, SCHED_BATCH);
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), before);
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
}

}  // namespace
}  // namespace penstock
