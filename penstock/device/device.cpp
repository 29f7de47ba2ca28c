#include "penstock/device/device.h"

#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/device/cuda.h"
#include "penstock/device/host.h"
#include "penstock/device/sim/runtime.h"

namespace penstock {
namespace {

/// PENSTOCK_SIMULATED_BANDWIDTH: bytes a second, to see what a slow link does.
double simulated_bandwidth() {
  const char* given = std::getenv("PENSTOCK_SIMULATED_BANDWIDTH");
  if (given == nullptr) return 12e9;
  char* end = nullptr;
  const double bandwidth = std::strtod(given, &end);
  if (*given == '\0' || *end != '\0' || !(bandwidth > 0))
    throw Error(
        fmt::format("PENSTOCK_SIMULATED_BANDWIDTH must be bytes a second, such as 2e9, but is '{}'", given));
  return bandwidth;
}

}  // namespace

std::shared_ptr<Device> open_device(const std::string& name) {
  if (name == "cpu") return host_device();
  if (name == "cuda") return cuda_device(load_cuda());
  if (name == "simulated")
    return cuda_device(sim::api_of(std::make_shared<sim::Runtime>(sim::Options{
        .bandwidth = simulated_bandwidth(), .latency = std::chrono::microseconds(10), .poison = false})));
  int ordinal = -1;
  if (name.starts_with("cuda:")) {
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data() + 5, end, ordinal).ptr == end && ordinal >= 0)
      return cuda_device(load_cuda(), ordinal);
  }
  throw Error(fmt::format("device: must be cpu, cuda, cuda:N (N from 0) or simulated, but is '{}'", name));
}

}  // namespace penstock
