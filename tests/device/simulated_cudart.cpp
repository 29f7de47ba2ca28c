// The stand-in under CUDA's own names, for tests that load it as if it were libcudart.
#include <cstring>

#include "penstock/device/sim/runtime.h"

namespace {

penstock::sim::Runtime& runtime() {
  static penstock::sim::Runtime the_one({.devices = 2});
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
