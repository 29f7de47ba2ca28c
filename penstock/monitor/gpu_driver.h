// The two kinds of GPUs behind Gpus.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "penstock/monitor/gpu.h"

namespace penstock {

class GpuDriver {
 public:
  GpuDriver() = default;
  GpuDriver(const GpuDriver&) = delete;
  GpuDriver& operator=(const GpuDriver&) = delete;
  virtual ~GpuDriver() = default;
  /// Appends its GPUs, and what there is to say about them.
  virtual void sample(Gpus::Clock::time_point now, std::vector<GpuSample>& gpus,
                      std::vector<std::string>& news) = 0;
};

/// Null where there are none of the kind, with a reason in `news` where it is not simply that.
std::unique_ptr<GpuDriver> open_nvidia(const std::string& library, int first_index,
                                       std::vector<std::string>& news);
std::unique_ptr<GpuDriver> open_amd(const std::filesystem::path& sys, int first_index);

/// How often what is slow to ask for is asked for.
constexpr std::chrono::milliseconds slow_period{1000};

}  // namespace penstock
