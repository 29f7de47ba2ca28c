// Samples of the machine in a run's log.
#pragma once
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "penstock/monitor/gpu.h"
#include "penstock/monitor/run_log.h"
#include "penstock/monitor/system.h"

namespace penstock {

/// A sample as the object of a log's `gpu` line: {"gpus": [...], "cpu": {...}, "memory": {...}, "disk":
/// {...}, "faults_major": ...}. Bytes, bytes/s and shares; what is not known is left out.
std::string system_json(const SystemSample& system, const std::vector<GpuSample>& gpus);

/// While it lives, a thread of its own adds such a line every `period`. A log that cannot be written any more
/// is left to its other writers to complain of.
class SystemLog {
 public:
  explicit SystemLog(RunLog& log, std::chrono::milliseconds period = std::chrono::seconds(1));

 private:
  std::jthread thread_;
};

}  // namespace penstock
