// Random lives of a stage against the stand-in: everything that a consumer may do, in an order that the seed
// decides, with every byte checked on the device.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "penstock/device/cuda_api.h"
#include "penstock/device/device.h"

namespace penstock {

using OpenDevice = std::function<std::shared_ptr<Device>(std::shared_ptr<const CudaApi>, int ordinal)>;

/// What went wrong in the life of this seed; empty: every batch was what had been filled, in order, and the
/// stand-in has nothing to report.
std::string run_schedule(std::uint64_t seed, const OpenDevice& open);

}  // namespace penstock
