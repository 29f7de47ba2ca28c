#include "penstock/monitor/system.h"

#include <atomic>
#include <csignal>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/monitor/files.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

using std::chrono::seconds;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class SystemTest : public testing::Test {
 protected:
  /// One line for each CPU that this process may run on, and one for a CPU that it may not.
  void put_cores(const std::string& first, const std::string& others) const {
    std::string text = "cpu  999999 0 0 0 0 0 0 0 0 0\n";
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    bool is_first = true;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set))
        text += fmt::format("cpu{} {}\n", cpu, std::exchange(is_first, false) ? first : others);
    put(folder / "proc/stat", text + "cpu1023 7777 0 0 0 0 0 0 0 0 0\nintr 5 0 0\n");
  }
  SystemRoots roots() { return {.proc = folder / "proc", .sys = folder / "sys"}; }

  TempFolder folder;
  SampleClock::time_point now{seconds(100)};
};

TEST_F(SystemTest, CoresAreSharesOfTheTimeBetweenTwoSamples) {
  put_cores("100 0 100 1000 10 0 0 0 0 0", "0 0 0 0 0 0 0 0 0 0");
  SystemSampler machine(roots());
  const SystemSample first = machine.sample(now);
  EXPECT_EQ(first.busy, 0);
  EXPECT_EQ(first.seconds, 0);
  // 60 ticks of work (user, nice, system, irq, soft irq), 20 idle, 10 waiting for a disk, 10 stolen.
  put_cores("120 10 110 1020 20 10 10 10 0 0", "0 0 0 100 0 0 0 0 0 0");
  const SystemSample then = machine.sample(now + seconds(1));
  EXPECT_DOUBLE_EQ(then.seconds, 1);
  EXPECT_DOUBLE_EQ(then.cores.front(), 0.6);
  const auto cores = static_cast<double>(then.cores.size());
  EXPECT_NEAR(then.busy, 0.6 / cores, 1e-12);
  EXPECT_NEAR(then.steal, 0.1 / cores, 1e-12);
  EXPECT_NEAR(then.io_wait, 0.1 / cores, 1e-12);
  EXPECT_GE(then.available_cpus, 1);
  EXPECT_LE(then.available_cpus, cores);
}

TEST_F(SystemTest, MemoryThatFilesTakeIsThePageCacheAndSharedMemoryIsNot) {
  put(folder / "proc/meminfo",
      "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\nBuffers:          50 kB\n"
      "Cached:          400 kB\nSwapCached:       99 kB\nShmem:            30 kB\n");
  const MemorySample memory = SystemSampler(roots()).sample(now).memory;
  EXPECT_EQ(memory.total, 1000u * 1024);
  EXPECT_EQ(memory.available, 600u * 1024);
  EXPECT_EQ(memory.used, 400u * 1024);
  EXPECT_EQ(memory.page_cache, 420u * 1024);
}

TEST_F(SystemTest, OnlyPhysicalDisksCount) {
  std::filesystem::create_directories(folder / "sys/block/vda/device");
  std::filesystem::create_directories(folder / "sys/block/dm-0");
  const auto disks = [&](int read, int written, int busy_ms) {
    put(folder / "proc/diskstats",
        fmt::format(
            " 254 0 vda 9 9 {0} 9 9 9 {1} 9 0 {2} 9 9 0 9 9 9 9\n 254 1 vda1 9 9 {0} 9 9 9 {1} 9 0 {2} 9\n"
            " 253 0 dm-0 9 9 {0} 9 9 9 {1} 9 0 {2} 9\n",
            read, written, busy_ms));
  };
  disks(1000, 500, 100);
  SystemSampler machine(roots());
  machine.sample(now);
  disks(3000, 600, 600);
  const DiskSample disk = machine.sample(now + seconds(2)).disk;
  EXPECT_DOUBLE_EQ(disk.read, 2000 * 512 / 2.0);
  EXPECT_DOUBLE_EQ(disk.write, 100 * 512 / 2.0);
  EXPECT_DOUBLE_EQ(disk.busy, 0.25);
}

TEST_F(SystemTest, PageFaultsAreRates) {
  put(folder / "proc/vmstat", "pgfault 1000\npgmajfault 10\npgmajfault_x 5\n");
  SystemSampler machine(roots());
  machine.sample(now);
  put(folder / "proc/vmstat", "pgfault 1500\npgmajfault 30\npgmajfault_x 5\n");
  const SystemSample sample = machine.sample(now + seconds(2));
  EXPECT_DOUBLE_EQ(sample.faults_major, 10);
  EXPECT_DOUBLE_EQ(sample.faults_minor, 240);
}

TEST_F(SystemTest, FilesThatAreNotThereLeaveZeros) {
  SystemSampler machine(roots());
  machine.sample(now);
  const SystemSample sample = machine.sample(now + seconds(1));
  EXPECT_EQ(sample.busy, 0);
  EXPECT_EQ(sample.memory.total, 0);
  EXPECT_EQ(sample.disk.read, 0);
}

class TreeTest : public SystemTest {
 protected:
  struct Times {
    int user = 0, system = 0, children = 0, major = 0, threads = 1, pages = 0;
  };
  void put_process(int id, int parent, const std::string& name, const Times& t) const {
    put(folder / "proc" / std::to_string(id) / "stat",
        fmt::format("{} ({}) S {} 1 1 0 -1 4194304 100 0 {} 0 {} {} {} 0 20 0 {} 0 5000 123456 {} 99\n", id,
                    name, parent, t.major, t.user, t.system, t.children, t.threads, t.pages));
  }
  void put_thread(int process, int thread, const std::string& name, std::uint64_t ran, std::uint64_t waited,
                  const std::string& children = "") const {
    const auto task = folder / "proc" / std::to_string(process) / "task" / std::to_string(thread);
    put(task / "comm", name + "\n");
    put(task / "schedstat", fmt::format("{} {} 12\n", ran, waited));
    put(task / "children", children);
  }
  void put_io(int id, std::uint64_t any, std::uint64_t storage) const {
    put(folder / "proc" / std::to_string(id) / "io",
        fmt::format("rchar: {}\nwchar: 0\nsyscr: 1\nsyscw: 1\nread_bytes: {}\nwrite_bytes: "
                    "0\ncancelled_write_bytes: 0\n",
                    any, storage));
  }
};

TEST_F(TreeTest, AProcessIsItsThreadsAndAllThatItStarted) {
  put_process(10, 1, "python (x) y", {.user = 100, .major = 5, .threads = 2, .pages = 10});
  put_thread(10, 10, "python", 1'000'000'000, 0);
  put_thread(10, 11, "loader", 500'000'000, 0, "20 ");
  put_io(10, 1000, 100);
  put_process(20, 10, "worker", {.user = 50});
  put_thread(20, 20, "worker", 500'000'000, 0);
  ProcessTree tree(10, roots());
  const TreeSample first = tree.sample(now);
  ASSERT_THAT(first.processes, SizeIs(2));
  EXPECT_EQ(first.cpu, 0);

  put_process(10, 1, "python (x) y", {.user = 140, .system = 10, .major = 25, .threads = 2, .pages = 10});
  put_thread(10, 10, "python", 1'200'000'000, 400'000'000);
  put_thread(10, 11, "loader", 700'000'000, 0, "20 ");
  put_io(10, 5000, 2100);
  put_process(20, 10, "worker", {.user = 150, .pages = 7});
  put_thread(20, 20, "worker", 1'500'000'000, 100'000'000);
  const TreeSample then = tree.sample(now + std::chrono::milliseconds(500));
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto cpus = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_DOUBLE_EQ(then.cpu, std::min(150 / ticks / 0.5, cpus));
  EXPECT_DOUBLE_EQ(then.cpu_seconds, 150 / ticks);
  EXPECT_DOUBLE_EQ(then.faults_major, 40);
  EXPECT_DOUBLE_EQ(*then.read, 4000);
  EXPECT_DOUBLE_EQ(*then.read_cached, 8000);
  EXPECT_EQ(then.resident, 17u * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_THAT(then.waiting, DoubleNear(0.8 + 0.2, 1e-9));
  const ProcessSample& python = then.processes[0];
  EXPECT_EQ(python.name, "python (x) y");
  EXPECT_EQ(python.state, 'S');
  ASSERT_THAT(python.threads, SizeIs(2));
  EXPECT_EQ(python.threads[1].name, "loader");
  EXPECT_THAT(python.threads[0].cpu, DoubleNear(0.4, 1e-9));
  EXPECT_THAT(python.threads[0].waiting, DoubleNear(0.8, 1e-9));
  EXPECT_FALSE(then.processes[1].read);  // that file is not there
  EXPECT_EQ(then.processes[1].parent, 10);
}

TEST_F(TreeTest, ThePastOfANewChildIsNoRate) {
  put_process(10, 1, "python", {.user = 100});
  put_thread(10, 10, "python", 0, 0);
  ProcessTree tree(10, roots());
  tree.sample(now);
  put_thread(10, 10, "python", 0, 0, "20 ");
  put_process(20, 10, "worker", {.user = 70});
  put_thread(20, 20, "worker", 0, 0);
  const TreeSample sample = tree.sample(now + seconds(1));
  ASSERT_THAT(sample.processes, SizeIs(2));
  EXPECT_EQ(sample.cpu, 0);
  EXPECT_DOUBLE_EQ(sample.cpu_seconds, 70.0 / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

TEST_F(TreeTest, WhatAChildUsedStaysWhenItHasEnded) {
  put_process(10, 1, "python", {.user = 100});
  put_thread(10, 10, "python", 0, 0, "20 ");
  put_process(20, 10, "worker", {.user = 70});
  put_thread(20, 20, "worker", 0, 0);
  ProcessTree tree(10, roots());
  tree.sample(now);
  std::filesystem::remove_all(folder / "proc/20");
  put(folder / "proc/20/stat", "");
  put_thread(10, 10, "python", 0, 0);
  put_process(10, 1, "python", {.user = 110, .children = 80});
  TreeSample sample = tree.sample(now + seconds(1));
  ASSERT_THAT(sample.processes, SizeIs(1));
  EXPECT_DOUBLE_EQ(sample.cpu, 20.0 / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

TEST_F(TreeTest, ARootThatHasGoneLeavesNothing) {
  ProcessTree tree(10, roots());
  EXPECT_THAT(tree.sample(now).processes, IsEmpty());
  EXPECT_THAT(tree.sample(now + seconds(1)).processes, IsEmpty());
}

TEST(ProcessStat, ANameMayHoldBracketsAndBlanksAndNiceMayBeNegative) {
  const auto stat = process_stat(
      "42 (a) R (b) S 7 42 42 0 -1 4194304 100 200 3 4 50 60 70 80 10 -10 5 0 12345 999999 17 1844 1 1\n");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->name, "a) R (b");
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->faults_major, 7);
  EXPECT_EQ(stat->ticks, 110);
  EXPECT_EQ(stat->ticks_of_children, 150);
  EXPECT_EQ(stat->nice, -10);
  EXPECT_EQ(stat->threads, 5);
  EXPECT_EQ(stat->resident_pages, 17);
}

TEST(ProcessStat, WhatIsNoneIsNone) {
  for (const char* text : {"", "42", "42 (sh", "42 (sh)", "42 (sh) ", ") ("})
    EXPECT_FALSE(process_stat(text)) << text;
}

TEST(RealSystem, TheKernelsFilesAreUnderstood) {
  SystemSampler machine;
  ProcessTree own(::getpid());
  machine.sample();
  own.sample();
  std::atomic<bool> stop = false;
  std::jthread busy([&] {
    ::prctl(PR_SET_NAME, "spinning");
    while (!stop) {
    }
  });
  TreeSample tree;
  SystemSample system;
  const auto spinning = [&] {
    for (const ThreadSample& t : tree.processes.at(0).threads)
      if (t.name == "spinning" && t.cpu > 0) return true;
    return false;
  };
  // Until it is seen at work: how long that takes is the scheduler's affair. Its name comes with a search.
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    system = machine.sample();
    tree = own.sample();
  } while (!spinning());
  stop = true;
  EXPECT_GT(tree.cpu_seconds, 0);
  EXPECT_GT(tree.resident, 1u << 20);
  EXPECT_GE(system.memory.total, system.memory.available);
  EXPECT_GT(system.memory.available, 0u);
  EXPECT_GE(cpus_of_others(system, tree), 0);
}

TEST(RealSystem, AChildIsFoundAndItsEndIsNoticed) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::close(ends[1]);
    ::_exit(::read(ends[0], &byte, 1) < 0 ? 1 : 0);
  }
  ProcessTree own(::getpid());
  const auto ids = [&] {
    std::vector<int> found;
    for (const ProcessSample& p : own.sample().processes) found.push_back(p.id);
    return found;
  };
  EXPECT_THAT(ids(), ElementsAre(::getpid(), child));
  ::close(ends[0]);
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
  EXPECT_THAT(ids(), ElementsAre(::getpid()));
}

}  // namespace
}  // namespace penstock
