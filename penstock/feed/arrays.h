// .npy data into the rows of a batch: any of its types, in either order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "penstock/cache/npy.h"
#include "penstock/core/file.h"

namespace penstock {

/// Where element (i, j) of an array, as NumPy counts them, goes: to[i * row_stride + j * column_stride].
struct Placement {
  std::ptrdiff_t row_stride = 0, column_stride = 1;
};

/// Converts to float32 (float16 exactly, the others rounded). `scratch` is for types and orders that take two
/// steps.
void place_floats(const NpyHeader& header, std::span<const std::byte> data, float* to, Placement placement,
                  Scratch<float>& scratch);

/// The same for whole numbers. Throws Error for one that does not fit into 32 bits.
void place_ints(const NpyHeader& header, std::span<const std::byte> data, std::int32_t* to,
                Placement placement);

}  // namespace penstock
