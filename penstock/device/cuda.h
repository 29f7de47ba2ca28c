// Batches on a CUDA device, through whatever runtime it is given.
#pragma once
#include <memory>
#include <string>

#include "penstock/device/cuda_api.h"
#include "penstock/device/device.h"

namespace penstock {

/// Device number `ordinal` of a runtime. Throws Error when there is none, or no driver.
std::shared_ptr<Device> cuda_device(std::shared_ptr<const CudaApi> api, int ordinal = 0);

/// The runtime behind a device, to make streams with and to put work on them; null for the host.
std::shared_ptr<const CudaApi> runtime_of(const Device& device);

}  // namespace penstock
