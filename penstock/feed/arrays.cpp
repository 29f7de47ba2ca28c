#include "penstock/feed/arrays.h"

#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/features/half.h"

namespace penstock {
namespace {

template <typename T>
T load(const std::byte* from, std::int64_t i) {
  T value;
  std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(T)), sizeof value);
  return value;
}

/// Every element in the order of the file: the index that runs slowly outside.
template <typename Put>
void each_element(const NpyHeader& h, Placement p, Put&& put) {
  const std::int64_t slow = h.fortran ? h.shape[1] : h.shape[0], fast = h.fortran ? h.shape[0] : h.shape[1];
  const std::ptrdiff_t slow_stride = h.fortran ? p.column_stride : p.row_stride;
  const std::ptrdiff_t fast_stride = h.fortran ? p.row_stride : p.column_stride;
  for (std::int64_t s = 0, i = 0; s < slow; ++s)
    for (std::int64_t f = 0; f < fast; ++f, ++i) put(i, s * slow_stride + f * fast_stride);
}

/// The array lies in the row as it lies in the file.
bool is_plain(const NpyHeader& h, Placement p) {
  return h.fortran ? p.row_stride == 1 && p.column_stride == h.shape[0]
                   : p.column_stride == 1 && p.row_stride == h.shape[1];
}

}  // namespace

void place_floats(const NpyHeader& h, std::span<const std::byte> data, float* to, Placement p,
                  Scratch<float>& scratch) {
  const auto count = static_cast<std::size_t>(h.shape[0] * h.shape[1]);
  const std::byte* from = data.data();
  switch (h.type) {
    case NpyType::float16: {
      const std::span halves(reinterpret_cast<const std::uint16_t*>(from), count);
      if (is_plain(h, p)) return widen_half(halves, to);
      const std::span<float> wide = scratch.of(count);
      widen_half(halves, wide.data());
      return each_element(
          h, p, [&](std::int64_t i, std::ptrdiff_t at) { to[at] = wide[static_cast<std::size_t>(i)]; });
    }
    case NpyType::float32:
      if (is_plain(h, p)) {
        std::memcpy(to, from, count * sizeof(float));
        return;
      }
      return each_element(h, p, [&](std::int64_t i, std::ptrdiff_t at) { to[at] = load<float>(from, i); });
    case NpyType::float64:
      return each_element(h, p, [&](std::int64_t i, std::ptrdiff_t at) {
        to[at] = static_cast<float>(load<double>(from, i));
      });
    case NpyType::int32:
      return each_element(h, p, [&](std::int64_t i, std::ptrdiff_t at) {
        to[at] = static_cast<float>(load<std::int32_t>(from, i));
      });
    case NpyType::int64:
      return each_element(h, p, [&](std::int64_t i, std::ptrdiff_t at) {
        to[at] = static_cast<float>(load<std::int64_t>(from, i));
      });
  }
}

void place_ints(const NpyHeader& h, std::span<const std::byte> data, std::int32_t* to, Placement p) {
  const std::byte* from = data.data();
  if (h.type == NpyType::int32)
    return each_element(h, p,
                        [&](std::int64_t i, std::ptrdiff_t at) { to[at] = load<std::int32_t>(from, i); });
  if (h.type != NpyType::int64)
    throw Error(fmt::format("must hold whole numbers, but is of type {}", npy_type_name(h.type)));
  each_element(h, p, [&](std::int64_t i, std::ptrdiff_t at) {
    const auto value = load<std::int64_t>(from, i);
    using Limits = std::numeric_limits<std::int32_t>;
    if (value < Limits::min() || value > Limits::max())
      throw Error(fmt::format("must hold numbers of 32 bits, but has {}", value));
    to[at] = static_cast<std::int32_t>(value);
  });
}

}  // namespace penstock
