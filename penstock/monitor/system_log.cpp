#include "penstock/monitor/system_log.h"

#include <cmath>
#include <condition_variable>
#include <mutex>

#include <nlohmann/json.hpp>

#include "penstock/core/error.h"

namespace penstock {
namespace {

using nlohmann::json;

/// Four digits: more of a share would be noise, and a long run's log is large enough.
double rounded(double share) { return std::round(share * 1e4) / 1e4; }

json gpu_json(const GpuSample& gpu) {
  json out = {{"index", gpu.index}, {"name", gpu.name}};
  const auto put = [&](const char* key, const auto& value) {
    if (value) out[key] = *value;
  };
  put("utilisation", gpu.utilisation);
  put("memory_used", gpu.memory_used);
  put("memory_total", gpu.memory_total);
  put("power_w", gpu.power_w);
  put("clock_mhz", gpu.clock_mhz);
  put("pcie_rx", gpu.pcie_rx);
  put("pcie_tx", gpu.pcie_tx);
  return out;
}

}  // namespace

std::string system_json(const SystemSample& system, const std::vector<GpuSample>& gpus) {
  json cards = json::array(), cores = json::array();
  for (const GpuSample& gpu : gpus) cards.push_back(gpu_json(gpu));
  for (const double core : system.cores) cores.push_back(rounded(core));
  const MemorySample& memory = system.memory;
  return json{{"gpus", cards},
              {"cpu", {{"busy", rounded(system.busy)}, {"cores", cores}, {"steal", rounded(system.steal)}}},
              {"memory",
               {{"total", memory.total},
                {"available", memory.available},
                {"used", memory.used},
                {"page_cache", memory.page_cache}}},
              {"disk",
               {{"read", std::round(system.disk.read)},
                {"write", std::round(system.disk.write)},
                {"busy", rounded(system.disk.busy)}}},
              {"faults_major", rounded(system.faults_major)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

SystemLog::SystemLog(RunLog& log, std::chrono::milliseconds period)
    : thread_([&log, period](const std::stop_token& stop) {
        SystemSampler machine;
        Gpus gpus;
        machine.sample();
        std::mutex mutex;
        std::condition_variable_any ended;
        std::unique_lock lock(mutex);
        // After a time in which the process was stopped it goes on; what was missed is not made up for.
        for (auto next = SampleClock::now() + period;; next = std::max(next + period, SampleClock::now())) {
          ended.wait_until(lock, stop, next, [] { return false; });
          if (stop.stop_requested()) return;
          try {
            log.add("gpu", system_json(machine.sample(), gpus.sample()));
          } catch (const Error&) {
            return;
          }
        }
      }) {}

}  // namespace penstock
