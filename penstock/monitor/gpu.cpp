#include "penstock/monitor/gpu.h"

#include <utility>

#include "penstock/monitor/gpu_driver.h"

namespace penstock {

Gpus::Gpus(const GpuOptions& options) {
  int count = 0;
  const auto add = [&](std::unique_ptr<GpuDriver> driver) {
    if (!driver) return;
    std::vector<GpuSample> found;
    driver->sample(Clock::time_point{}, found, news_);
    count += static_cast<int>(found.size());
    drivers_.push_back(std::move(driver));
  };
  add(open_nvidia(options.nvml, count, news_));
  add(open_amd(options.sys, count));
  if (drivers_.empty() && news_.empty())
    news_.emplace_back(
        "no GPU: there is no NVIDIA driver (libnvidia-ml.so.1) and no AMD card in /sys/class/drm");
}

Gpus::~Gpus() = default;

std::vector<GpuSample> Gpus::sample(Clock::time_point now) {
  std::vector<GpuSample> gpus;
  for (const auto& driver : drivers_) driver->sample(now, gpus, news_);
  return gpus;
}

std::vector<std::string> Gpus::news() { return std::exchange(news_, {}); }

}  // namespace penstock
