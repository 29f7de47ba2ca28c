// float32 and IEEE half precision (float16): the two ways a cache stores a mel.
#pragma once
#include <cstdint>
#include <span>

namespace penstock {

/// to[i] = from[i], exactly. Same size; `from` needs no alignment.
void widen_half(std::span<const std::uint16_t> from, float* to);
/// Rounds to nearest even, as NumPy's astype(float16); what is too large becomes infinity.
void narrow_to_half(std::span<const float> from, std::uint16_t* to);
/// values[i] becomes what it would be after a float16 cache.
void round_through_half(std::span<float> values);

/// to[i] = from[i], exactly, written past the CPU's caches: cheaper for a row that a device fetches or that
/// is read much later, dearer when a CPU reads all of it soon. Other threads see the row after the caller's
/// next release, as usual.
void copy_row(std::span<const float> from, float* to);
void copy_row(std::span<const std::uint16_t> from, float* to);

}  // namespace penstock
