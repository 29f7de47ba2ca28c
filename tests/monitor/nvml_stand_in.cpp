// A libnvidia-ml.so.1 that plays the trace named by PENSTOCK_NVML_TRACE, a text file:
//
//   init 9                      nvmlInit fails with this result
//   gpu NVIDIA A100             a GPU; the lines below are what it says, one for each time it is asked for
//   its 97 40000 81920 310 1410 1200 300 4242:39000    utilisation, then again from the first
//   - x 81920 310 1410 - - -
//   lost                        it vanishes here
//
// utilisation (percent), memory used and total (MB), power (W), clock (MHz), PCIe to it and from it (MB/s),
// one process and its memory (MB). `-`: not supported; `x`: no permission.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "penstock/monitor/nvml.h"

namespace {

namespace nvml = penstock::nvml;

enum Field { utilisation, memory_used, memory_total, power, clock_rate, rx, tx, process };

struct Gpu {
  std::string name;
  std::vector<std::vector<std::string>> lines;
  std::size_t next = 0, now = 0;
};

struct Trace {
  int init = nvml::success;
  std::vector<Gpu> gpus;

  Trace() {
    const char* path = std::getenv("PENSTOCK_NVML_TRACE");
    std::ifstream file(path != nullptr ? path : "");
    if (!file) init = nvml::driver_not_loaded;
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string first;
      words >> first;
      if (first == "init") {
        words >> init;
      } else if (first == "gpu") {
        gpus.push_back({.name = line.substr(4)});
      } else if (!first.empty()) {
        std::vector<std::string> fields = {first};
        for (std::string word; words >> word;) fields.push_back(word);
        fields.resize(8, "-");
        gpus.back().lines.push_back(fields);
      }
    }
  }
};

Trace trace;

/// What it says of a field in its present line, or why not.
int say(void* handle, Field field, std::string& value) {
  const auto& line = static_cast<Gpu*>(handle)->lines[static_cast<Gpu*>(handle)->now];
  if (line[0] == "lost") return nvml::gpu_is_lost;
  value = line[field];
  return value == "-" ? nvml::not_supported : value == "x" ? nvml::no_permission : nvml::success;
}

int say(void* handle, Field field, double unit, unsigned& out) {
  std::string value;
  const int result = say(handle, field, value);
  if (result == nvml::success) out = static_cast<unsigned>(std::stod(value) * unit);
  return result;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  trace = Trace();
  return trace.init;
}
int nvmlShutdown() { return nvml::success; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(trace.gpus.size());
  return nvml::success;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  *gpu = &trace.gpus.at(index);
  return nvml::success;
}

int nvmlDeviceGetName(void* gpu, char* name, unsigned size) {
  std::strncpy(name, static_cast<Gpu*>(gpu)->name.c_str(), size - 1);
  return nvml::success;
}

int nvmlDeviceGetUtilizationRates(void* gpu, nvml::Utilisation* utilisation_out) {
  auto& g = *static_cast<Gpu*>(gpu);
  g.now = g.next;
  if (g.lines[g.now][0] != "lost") g.next = (g.next + 1) % g.lines.size();
  return say(gpu, utilisation, 1, utilisation_out->gpu);
}

int nvmlDeviceGetMemoryInfo(void* gpu, nvml::Memory* memory) {
  unsigned used = 0, total = 0;
  if (const int result = say(gpu, memory_used, 1, used); result != nvml::success) return result;
  if (const int result = say(gpu, memory_total, 1, total); result != nvml::success) return result;
  *memory = {
      .total = total * 1'000'000ULL, .free = (total - used) * 1'000'000ULL, .used = used * 1'000'000ULL};
  return nvml::success;
}

int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) { return say(gpu, power, 1e3, *milliwatts); }

int nvmlDeviceGetClockInfo(void* gpu, int clock, unsigned* mhz) {
  return clock == nvml::clock_sm ? say(gpu, clock_rate, 1, *mhz) : nvml::not_supported;
}

int nvmlDeviceGetPcieThroughput(void* gpu, int counter, unsigned* kilobytes) {
  return say(gpu, counter == nvml::pcie_rx ? rx : tx, 1e3, *kilobytes);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* gpu, unsigned* count, nvml::Process* processes) {
  std::string value;
  if (const int result = say(gpu, process, value); result != nvml::success) return result;
  processes[0] = {.pid = static_cast<unsigned>(std::stoul(value)),
                  .memory = std::stoull(value.substr(value.find(':') + 1)) * 1'000'000};
  *count = 1;
  return nvml::success;
}

const char* nvmlErrorString(int result) {
  switch (result) {
    case nvml::not_supported:
      return "Not Supported";
    case nvml::no_permission:
      return "Insufficient Permissions";
    case nvml::driver_not_loaded:
      return "Driver Not Loaded";
    case nvml::gpu_is_lost:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

}  // extern "C"
