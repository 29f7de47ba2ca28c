// The stand-in under CUDA's own names, for tests that load it as if it were libcudart.
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "penstock/device/sim/runtime.h"

namespace {

/// SIMULATED_CUDART_LATEST_MS: nothing runs before somebody waits for it, or so much time has passed.
penstock::sim::Options options() {
  penstock::sim::Options chosen{.devices = 2};
  if (const char* latest = std::getenv("SIMULATED_CUDART_LATEST_MS")) {
    chosen.lateness = penstock::sim::Lateness::latest;
    chosen.latest = std::chrono::milliseconds(std::atoi(latest));
  }
  return chosen;
}

penstock::sim::Runtime& runtime() {
  static penstock::sim::Runtime the_one(options());
  return the_one;
}

}  // namespace

extern "C" {
#define PENSTOCK_EXPORT(result, name, parameters, arguments) \
  result name parameters { return runtime().name arguments; }
PENSTOCK_CUDA_FUNCTIONS(PENSTOCK_EXPORT)
#undef PENSTOCK_EXPORT

/// As in CUDA 12: to be preferred over the one without the suffix.
// NOLINTNEXTLINE(readability-identifier-naming)
int cudaGetDeviceProperties_v2(void* properties, int /*device*/) {
  std::strcpy(static_cast<char*>(properties), "simulated, second version");
  return 0;
}
}
