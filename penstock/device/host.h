// The device that is none: batches stay where they were filled.
#pragma once
#include <memory>

#include "penstock/device/device.h"

namespace penstock {

/// Its stage calls the source inside next() and hands the slot over; nothing is copied, nothing limits how
/// many batches the consumer keeps but the source.
std::shared_ptr<Device> host_device();

}  // namespace penstock
