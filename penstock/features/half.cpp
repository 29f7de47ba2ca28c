// Conversions of whole rows, and copies that leave the caches alone. Vectors where the CPU converts halves by
// itself; elsewhere, and for the few elements that fill no vector, the plain definition, which gives the same
// bits.

// As for the mel kernel: AVX-512, AVX2 and any x86-64; NEON on aarch64.
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "penstock/features/half.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once more for each instruction set.
#include <algorithm>
#include <bit>
#include <cstddef>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "penstock/features/half.h"

#ifndef PENSTOCK_FEATURES_HALF_PLAIN
#define PENSTOCK_FEATURES_HALF_PLAIN
namespace penstock::half {

/// A NaN keeps the upper part of its payload and becomes quiet, as in hardware.
inline float widen(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16, exponent = half & 0x7C00U, mantissa = half & 0x03FFU;
  const std::uint32_t magnitude = (half & 0x7FFFU) << 13;
  if (exponent == 0x7C00U)
    return std::bit_cast<float>(sign | 0x7F800000U | magnitude | (mantissa != 0 ? 0x400000U : 0));
  if (exponent != 0) return std::bit_cast<float>(sign | (magnitude + ((127U - 15U) << 23)));
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24F));
}

inline std::uint16_t narrow(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U)  // NaN
    half = 0x7E00U | (magnitude >> 13 & 0x3FFU);
  else if (magnitude >= 0x477FF000U)  // 65,520 is halfway between the largest half and what would follow it
    half = 0x7C00U;
  else if (magnitude >= 0x38800000U)  // 2^-14, the smallest normal half; a carry moves on to the exponent
    half = (magnitude - ((127U - 15U) << 23) + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
  else  // a subnormal half counts units of 2^-24, which is the last place of 0.5
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  return static_cast<std::uint16_t>(sign | half);
}

inline float as_float(float value) { return value; }
inline float as_float(std::uint16_t half) { return widen(half); }

}  // namespace penstock::half
#endif

HWY_BEFORE_NAMESPACE();
namespace penstock::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;
constexpr Tag tag;
constexpr std::size_t lanes = hn::MaxLanes(tag);

HWY_INLINE V load(const float* from) { return hn::LoadU(tag, from); }

// Highway has a substitute for CPUs without these instructions, but one that cuts instead of rounding.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON
constexpr hn::Rebind<hwy::float16_t, Tag> half_tag;
constexpr hn::Rebind<std::uint16_t, Tag> bits_tag;

HWY_INLINE V load(const std::uint16_t* from) {
  return hn::PromoteTo(tag, hn::BitCast(half_tag, hn::LoadU(bits_tag, from)));
}
HWY_INLINE void store_halves(V x, std::uint16_t* to) {
  hn::StoreU(hn::BitCast(bits_tag, hn::DemoteTo(half_tag, x)), bits_tag, to);
}
#else
HWY_INLINE V load(const std::uint16_t* from) {
  HWY_ALIGN float values[lanes];
  std::transform(from, from + lanes, values, half::widen);
  return hn::Load(tag, values);
}
HWY_INLINE void store_halves(V x, std::uint16_t* to) {
  HWY_ALIGN float values[lanes];
  hn::Store(x, tag, values);
  std::transform(values, values + lanes, to, half::narrow);
}
#endif

void widen(const std::uint16_t* from, std::size_t n, float* to) {
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load(from + i), tag, to + i);
  for (; i < n; ++i) to[i] = half::widen(from[i]);
}

void narrow(const float* from, std::size_t n, std::uint16_t* to) {
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store_halves(load(from + i), to + i);
  for (; i < n; ++i) to[i] = half::narrow(from[i]);
}

void round_through(float* values, std::size_t n) {
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    std::uint16_t halves[lanes];
    store_halves(load(values + i), halves);
    hn::StoreU(load(halves), tag, values + i);
  }
  for (; i < n; ++i) values[i] = half::widen(half::narrow(values[i]));
}

constexpr std::size_t line = 16;  // in floats

template <typename T>
HWY_INLINE void stream_two_lines(const T* from, float* to) {
  for (std::size_t i = 0; i < 2 * line; i += lanes) hn::Stream(load(from + i), tag, to + i);
}

/// Four pages of the source side by side: a CPU's own prefetching stops at a page's end, so the more of them
/// are under way, the less it waits.
template <typename T>
HWY_INLINE void stream(const T* from, std::size_t n, float* to) {
  constexpr std::size_t page = 4096 / sizeof(T);
  const std::size_t unaligned = (0 - reinterpret_cast<std::uintptr_t>(to) / sizeof(float)) % line;
  std::size_t i = 0;
  for (; i < std::min(unaligned, n); ++i) to[i] = half::as_float(from[i]);
  for (; i + 4 * page <= n; i += 4 * page)
    for (std::size_t j = i; j < i + page; j += 2 * line)
      for (std::size_t k = j; k < j + 4 * page; k += page) stream_two_lines(from + k, to + k);
  for (; i + 2 * line <= n; i += 2 * line) stream_two_lines(from + i, to + i);
  for (; i < n; ++i) to[i] = half::as_float(from[i]);
  hwy::FlushStream();  // such stores are not ordered by a later release
}

void copy_floats(const float* from, std::size_t n, float* to) { stream(from, n, to); }
void copy_halves(const std::uint16_t* from, std::size_t n, float* to) { stream(from, n, to); }

}  // namespace penstock::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);
HWY_EXPORT(round_through);
HWY_EXPORT(copy_floats);
HWY_EXPORT(copy_halves);

void widen_half(std::span<const std::uint16_t> from, float* to) {
  HWY_DYNAMIC_DISPATCH(widen)(from.data(), from.size(), to);
}
void narrow_to_half(std::span<const float> from, std::uint16_t* to) {
  HWY_DYNAMIC_DISPATCH(narrow)(from.data(), from.size(), to);
}
void round_through_half(std::span<float> values) {
  HWY_DYNAMIC_DISPATCH(round_through)(values.data(), values.size());
}
void copy_row(std::span<const float> from, float* to) {
  HWY_DYNAMIC_DISPATCH(copy_floats)(from.data(), from.size(), to);
}
void copy_row(std::span<const std::uint16_t> from, float* to) {
  HWY_DYNAMIC_DISPATCH(copy_halves)(from.data(), from.size(), to);
}

}  // namespace penstock
#endif
