// What this machine's GPUs are doing: NVIDIA's by NVML, which is loaded at run time, AMD's by the files of
// their driver.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

struct GpuProcess {
  int id = 0;
  std::optional<std::uint64_t> memory;  ///< bytes
};

/// What a GPU does not support, or we may not know, is absent.
struct GpuSample {
  int index = 0;
  std::string name;
  std::optional<double>
      utilisation;  ///< 0..1: share of the driver's last period in which it computed anything
  std::optional<std::uint64_t> memory_used, memory_total;  ///< bytes
  std::optional<double> power_w, clock_mhz;
  std::optional<double> pcie_rx, pcie_tx;            ///< bytes/s to the GPU and from it, asked once a second
  std::optional<std::vector<GpuProcess>> processes;  ///< asked once a second
};

struct GpuOptions {
  std::string nvml;  ///< NVML's library; empty: the driver's, where the linker finds it
  std::filesystem::path sys = "/sys";
};

class GpuDriver;

/// All of them. One thread.
class Gpus {
 public:
  using Clock = std::chrono::steady_clock;
  /// Never throws: what is not there is said by news().
  explicit Gpus(const GpuOptions& options = {});
  ~Gpus();

  /// Those that answer, by index.
  std::vector<GpuSample> sample(Clock::time_point now = Clock::now());
  /// What a person should know and was not told yet: that there is no GPU and why, that one has vanished,
  /// that a permission is missing.
  std::vector<std::string> news();

 private:
  std::vector<std::unique_ptr<GpuDriver>> drivers_;
  std::vector<std::string> news_;
};

}  // namespace penstock
