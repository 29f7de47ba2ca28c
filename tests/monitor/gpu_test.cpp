#include "penstock/monitor/gpu.h"

#include <cstdlib>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "penstock/core/file.h"
#include "tests/monitor/files.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GpuTest : public testing::Test {
 protected:
  Gpus nvidia(std::string_view trace) {
    put(folder / "trace", trace);
    ::setenv("PENSTOCK_NVML_TRACE", (folder / "trace").c_str(), 1);
    return Gpus({.nvml = NVML_STAND_IN, .sys = folder / "sys"});
  }

  std::filesystem::path card(const std::string& name) {
    const auto device = folder / "sys/class/drm" / name / "device";
    put(device / "vendor", "0x1002\n");
    put(device / "device", "0x740c\n");
    put(device / "gpu_busy_percent", "87\n");
    put(device / "mem_info_vram_used", "12000000000\n");
    put(device / "mem_info_vram_total", "64000000000\n");
    put(device / "pp_dpm_sclk", "0: 500Mhz\n1: 1700Mhz *\n");
    put(device / "hwmon/hwmon3/power1_average", "312000000\n");
    return device;
  }

  TempFolder folder;
  Gpus::Clock::time_point now{seconds(100)};
};

TEST_F(GpuTest, NvmlIsReadWithItsUnits) {
  Gpus gpus = nvidia(
      "gpu NVIDIA A100-SXM4-80GB\n97 40000 81920 310 1410 1200 300 4242:39000\n"
      "gpu NVIDIA L4\n3 100 23000 20.5 210 0 0 -\n");
  const auto found = gpus.sample(now);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].index, 0);
  EXPECT_EQ(found[0].name, "NVIDIA A100-SXM4-80GB");
  EXPECT_DOUBLE_EQ(*found[0].utilisation, 0.97);
  EXPECT_EQ(found[0].memory_used, 40'000'000'000u);
  EXPECT_EQ(found[0].memory_total, 81'920'000'000u);
  EXPECT_DOUBLE_EQ(*found[0].power_w, 310);
  EXPECT_DOUBLE_EQ(*found[0].clock_mhz, 1410);
  EXPECT_DOUBLE_EQ(*found[0].pcie_rx, 1.2e9);
  EXPECT_DOUBLE_EQ(*found[0].pcie_tx, 0.3e9);
  ASSERT_EQ(found[0].processes->size(), 1);
  EXPECT_EQ(found[0].processes->front().id, 4242);
  EXPECT_EQ(found[0].processes->front().memory, 39'000'000'000u);
  EXPECT_EQ(found[1].index, 1);
  EXPECT_DOUBLE_EQ(*found[1].power_w, 20.5);
  EXPECT_FALSE(found[1].processes);
  EXPECT_THAT(gpus.news(), IsEmpty());
}

TEST_F(GpuTest, OneGpuWaitsForItsPcieCountersInEachSample) {
  Gpus gpus = nvidia("gpu A\n1 1 1 1 1 10 10 -\ngpu B\n1 1 1 1 1 20 20 -\n");
  auto found = gpus.sample(now);  // the first of all asked the first GPU, and this one the second
  EXPECT_TRUE(found[0].pcie_rx || found[1].pcie_rx);
  found = gpus.sample(now);
  EXPECT_DOUBLE_EQ(*found[0].pcie_rx, 10e6);
  EXPECT_DOUBLE_EQ(*found[1].pcie_rx, 20e6);
}

TEST_F(GpuTest, WhatIsNotSupportedIsAbsentAndNotSpokenOf) {
  Gpus gpus = nvidia("gpu MIG\n- 10 20 - - - - -\n");
  const auto found = gpus.sample(now);
  ASSERT_EQ(found.size(), 1);
  EXPECT_FALSE(found[0].utilisation || found[0].power_w || found[0].clock_mhz || found[0].pcie_rx);
  EXPECT_EQ(found[0].memory_used, 10'000'000u);
  EXPECT_THAT(gpus.news(), IsEmpty());
}

TEST_F(GpuTest, AMissingPermissionIsSaidOnce) {
  Gpus gpus = nvidia("gpu H100\n50 1 2 x 1000 1 1 x\n");
  for (int i = 0; i < 5; ++i) {
    const auto found = gpus.sample(now += seconds(1));
    ASSERT_EQ(found.size(), 1);
    EXPECT_DOUBLE_EQ(*found[0].utilisation, 0.5);
    EXPECT_FALSE(found[0].power_w);
  }
  EXPECT_THAT(gpus.news(), ElementsAre("GPU 0 (H100): power: Insufficient Permissions (4)",
                                       "GPU 0 (H100): processes: Insufficient Permissions (4)"));
}

TEST_F(GpuTest, WhenOneVanishesTheRestGoesOn) {
  Gpus gpus = nvidia("gpu A\n10\n20\nlost\ngpu B\n30\n");
  EXPECT_EQ(gpus.sample(now).size(), 2);
  for (int i = 0; i < 3; ++i) {
    const auto found = gpus.sample(now += seconds(1));
    ASSERT_EQ(found.size(), 1);
    EXPECT_EQ(found[0].index, 1);
    EXPECT_DOUBLE_EQ(*found[0].utilisation, 0.3);
  }
  EXPECT_THAT(gpus.news(), ElementsAre(AllOf(HasSubstr("GPU 0 (A) has vanished"), HasSubstr("GPU is lost"))));
  EXPECT_THAT(gpus.news(), IsEmpty());
}

TEST_F(GpuTest, ADriverThatIsNotLoadedIsNamed) {
  Gpus gpus = nvidia("init 9\n");
  EXPECT_THAT(gpus.sample(now), IsEmpty());
  EXPECT_THAT(gpus.news(), ElementsAre("no NVIDIA GPU: Driver Not Loaded (9)"));
}

TEST_F(GpuTest, WithoutAnyGpuItSaysSo) {
  Gpus gpus({.nvml = "/nowhere/libnvidia-ml.so.1", .sys = folder / "sys"});
  EXPECT_THAT(gpus.sample(now), IsEmpty());
  EXPECT_THAT(gpus.news(), ElementsAre(AllOf(HasSubstr("no NVIDIA GPU"), HasSubstr("/nowhere"))));
}

TEST_F(GpuTest, AmdCardsAreReadFromTheirDriversFiles) {
  const auto first = card("card0");
  const auto second = card("card1");
  put(folder / "sys/class/drm/card1-DP-1/device/vendor", "0x1002\n");  // an output
  put(folder / "sys/class/drm/card2/device/vendor", "0x8086\n");       // another maker's
  put(first / "product_name", "AMD Instinct MI250X\n");
  put(first / "drm/renderD128/dev", "226:128\n");
  put(folder / "sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count 440\ndrm_render_minor 128\n");
  put(folder / "sys/class/kfd/kfd/topology/nodes/1/gpu_id", "51234\n");
  put(folder / "sys/class/kfd/kfd/proc/777/vram_51234", "9000000000\n");
  put(folder / "sys/class/kfd/kfd/proc/778/vram_51234", "0\n");
  Gpus gpus = nvidia("");
  gpus.news();
  auto found = gpus.sample(now);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].name, "AMD Instinct MI250X");
  EXPECT_DOUBLE_EQ(*found[0].utilisation, 0.87);
  EXPECT_EQ(found[0].memory_used, 12'000'000'000u);
  EXPECT_EQ(found[0].memory_total, 64'000'000'000u);
  EXPECT_DOUBLE_EQ(*found[0].power_w, 312);
  EXPECT_DOUBLE_EQ(*found[0].clock_mhz, 1700);
  ASSERT_EQ(found[0].processes->size(), 1);
  EXPECT_EQ(found[0].processes->front().id, 777);
  EXPECT_EQ(found[1].name, "AMD GPU 0x740c");
  EXPECT_FALSE(found[1].processes || found[1].pcie_rx);
  put(first / "gpu_busy_percent", "12\n");
  EXPECT_DOUBLE_EQ(*gpus.sample(now)[0].utilisation, 0.12);
}

TEST_F(GpuTest, AmdPcieTrafficIsCountedWhileTheRestIsSampled) {
  const auto first = card("card0"), second = card("card1"), third = card("card2");
  const auto slow = first / "pcie_bw";
  ASSERT_EQ(::mkfifo(slow.c_str(), 0600), 0);  // who opens it waits for an answer, as with the driver
  put(second / "pcie_bw", "1000 0 0\n");       // does not count
  Gpus gpus = nvidia("");
  for (int i = 0; i < 3; ++i) {
    const auto found = gpus.sample(now += seconds(1));
    ASSERT_EQ(found.size(), 3);
    EXPECT_DOUBLE_EQ(*found[0].utilisation, 0.87);
    EXPECT_FALSE(found[0].pcie_rx || found[1].pcie_rx || found[2].pcie_rx);
  }
  std::filesystem::rename(slow, first / "waiting");
  put(slow, "4000000 1000 256\n");
  const File answer(::open((first / "waiting").c_str(), O_RDWR));
  std::vector<GpuSample> found;
  do found = gpus.sample(now += seconds(1));
  while (!found[0].pcie_rx);
  EXPECT_DOUBLE_EQ(*found[0].pcie_rx, 4e6 * 256);
  EXPECT_DOUBLE_EQ(*found[0].pcie_tx, 1000 * 256);
  EXPECT_FALSE(found[1].pcie_rx || found[2].pcie_rx);
}

TEST_F(GpuTest, AnAmdCardMayLackFilesAndMayVanish) {
  const auto device = card("card0");
  std::filesystem::remove(device / "gpu_busy_percent");
  std::filesystem::remove(device / "pp_dpm_sclk");
  put(device / "hwmon/hwmon3/freq1_input", "1325000000\n");
  Gpus gpus = nvidia("");
  gpus.news();
  const auto found = gpus.sample(now);
  ASSERT_EQ(found.size(), 1);
  EXPECT_FALSE(found[0].utilisation);
  EXPECT_DOUBLE_EQ(*found[0].clock_mhz, 1325);
  EXPECT_THAT(gpus.news(), IsEmpty());
  std::filesystem::remove_all(device);
  EXPECT_THAT(gpus.sample(now), IsEmpty());
  EXPECT_THAT(gpus.news(), ElementsAre(HasSubstr("GPU 0 (AMD GPU 0x740c) has vanished")));
}

TEST_F(GpuTest, AnAmdFileThatWeMayNotReadIsSaidOnce) {
  const auto device = card("card0");
  std::filesystem::permissions(device / "gpu_busy_percent", std::filesystem::perms::none);
  const bool root = ::geteuid() == 0;  // who may read everything
  ASSERT_TRUE(!root || ::seteuid(65534) == 0);
  Gpus gpus({.nvml = NVML_STAND_IN, .sys = folder / "sys"});
  const auto found = gpus.sample(now);
  gpus.sample(now);
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
  ASSERT_EQ(found.size(), 1);
  EXPECT_FALSE(found[0].utilisation);
  EXPECT_DOUBLE_EQ(*found[0].power_w, 312);
  EXPECT_THAT(gpus.news(), Contains("GPU 0 (AMD GPU 0x740c): utilisation: Permission denied").Times(1));
}

}  // namespace
}  // namespace penstock
