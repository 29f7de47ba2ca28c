// One rate to another.
#pragma once
#include <cstdint>
#include <span>

#include "penstock/core/file.h"

namespace penstock {

/// `in` at rate `from` becomes resampled_length(in.size(), from, to) samples at rate `to`, in memory of
/// `memory`: soxr's high quality (20 bits), single precision, linear phase. The same input gives the same
/// bits, whatever was resampled before. Throws Error when soxr fails.
std::span<float> resample(std::span<const float> in, std::int32_t from, std::int32_t to,
                          Scratch<float>& memory);

}  // namespace penstock
