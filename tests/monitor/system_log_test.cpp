#include "penstock/monitor/system_log.h"

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/monitor/run_reader.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SystemLog, ASampleIsReadBackAsItWas) {
  const SystemSample system{.busy = 0.25,
                            .cores = {0.5, 0},
                            .memory = {.total = 100, .available = 70, .used = 30, .page_cache = 20},
                            .disk = {.read = 5, .write = 6},
                            .faults_major = 7};
  const GpuSample gpu{.index = 1, .name = "A100", .utilisation = 0.9, .memory_used = 3, .pcie_rx = 11};
  TempFolder folder;
  RunLog(folder.path()).add("gpu", system_json(system, {gpu}));
  const RunRecords run = read_run(folder.path());
  ASSERT_EQ(run.system.size(), 1);
  const SystemRecord& read = run.system[0];
  EXPECT_EQ(read.cpu_busy, 0.25);
  EXPECT_EQ(read.cores, system.cores);
  EXPECT_EQ(read.memory_total, 100);
  EXPECT_EQ(read.memory_available, 70);
  EXPECT_EQ(read.memory_used, 30);
  EXPECT_EQ(read.page_cache, 20);
  EXPECT_EQ(read.disk_read, 5);
  EXPECT_EQ(read.disk_write, 6);
  EXPECT_EQ(read.major_faults, 7);
  ASSERT_EQ(read.gpus.size(), 1);
  EXPECT_EQ(read.gpus[0].index, 1);
  EXPECT_EQ(read.gpus[0].name, "A100");
  EXPECT_EQ(read.gpus[0].utilisation, 0.9);
  EXPECT_EQ(read.gpus[0].memory_used, 3);
  EXPECT_EQ(read.gpus[0].pcie_rx, 11);
  EXPECT_THAT(system_json(system, {gpu}), Not(HasSubstr("power_w")));
}

TEST(SystemLog, WritesOnUntilItsEnd) {
  TempFolder folder;
  RunLog log(folder.path());
  {
    const SystemLog samples(log, std::chrono::milliseconds(10));
    RunReader reader(folder.path());
    while (reader.records().system.size() < 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      reader.read_on();
    }
    EXPECT_GT(reader.records().system[0].memory_total, 0);
    EXPECT_FALSE(reader.records().system[0].cores.empty());
  }
  const std::size_t at_its_end = read_run(folder.path()).lines;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(read_run(folder.path()).lines, at_its_end);
}

}  // namespace
}  // namespace penstock
