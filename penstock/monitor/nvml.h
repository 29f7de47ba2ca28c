// The few functions of NVML that we call, declared by us: nothing of NVIDIA is needed to build.
#pragma once

// F(name, parameters): each returns a Result. A GPU is a handle (void*), enums are int.
#define PENSTOCK_NVML_CALLS(F)                                                             \
  F(nvmlInit_v2, ())                                                                       \
  F(nvmlShutdown, ())                                                                      \
  F(nvmlDeviceGetCount_v2, (unsigned* count))                                              \
  F(nvmlDeviceGetHandleByIndex_v2, (unsigned index, void** gpu))                           \
  F(nvmlDeviceGetName, (void* gpu, char* name, unsigned size))                             \
  F(nvmlDeviceGetUtilizationRates, (void* gpu, penstock::nvml::Utilisation* utilisation))  \
  F(nvmlDeviceGetMemoryInfo, (void* gpu, penstock::nvml::Memory* memory))                  \
  F(nvmlDeviceGetPowerUsage, (void* gpu, unsigned* milliwatts))                            \
  F(nvmlDeviceGetClockInfo, (void* gpu, int clock, unsigned* mhz))                         \
  F(nvmlDeviceGetPcieThroughput, (void* gpu, int counter, unsigned* kilobytes_per_second)) \
  F(nvmlDeviceGetComputeRunningProcesses_v3, (void* gpu, unsigned* count, penstock::nvml::Process* processes))

namespace penstock::nvml {

enum Result : int {
  success = 0,
  not_supported = 3,
  no_permission = 4,
  insufficient_size = 7,
  driver_not_loaded = 9,
  function_not_found = 13,
  gpu_is_lost = 15,
  reset_required = 16,
};

struct Utilisation {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long memory;  // all ones: not known
  unsigned gpu_instance, compute_instance;
};
constexpr int clock_sm = 1, pcie_tx = 0, pcie_rx = 1;

}  // namespace penstock::nvml
