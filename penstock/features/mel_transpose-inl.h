// Transposing by 128-bit blocks: four vectors at a time, two shuffles each, and the rest is done by where
// blocks are loaded from and stored to. Included once per instruction set by mel.cpp.
#if defined(PENSTOCK_FEATURES_MEL_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PENSTOCK_FEATURES_MEL_TRANSPOSE_INL_H_
#undef PENSTOCK_FEATURES_MEL_TRANSPOSE_INL_H_
#else
#define PENSTOCK_FEATURES_MEL_TRANSPOSE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

/// Lanes 4 g .. 4 g + 3 come from rows[4 g] + at.
template <typename D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const float* const* rows, std::ptrdiff_t at) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, rows[0] + at);
  } else {
    constexpr std::ptrdiff_t half = hn::MaxLanes(D()) / 2;
    const hn::Half<D> h;
    return hn::Combine(d, load_blocks(h, rows + half, at), load_blocks(h, rows, at));
  }
}

/// Lanes 4 g .. 4 g + 3 go to at[4 g * stride].
template <typename D>
HWY_INLINE void store_blocks(D d, hn::Vec<D> x, float* at, std::ptrdiff_t stride) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(x, d, at);
  } else {
    constexpr std::ptrdiff_t half = hn::MaxLanes(D()) / 2;
    const hn::Half<D> h;
    store_blocks(h, hn::LowerHalf(h, x), at, stride);
    store_blocks(h, hn::UpperHalf(h, x), at + half * stride, stride);
  }
}

/// In every block: lane j of x[i] and lane i of x[j] change places.
template <typename D, typename V = hn::Vec<D>>
HWY_INLINE void transpose_blocks(D d, V* x) {
  const hn::Repartition<double, D> pairs;
  const auto a = hn::BitCast(pairs, hn::InterleaveLower(d, x[0], x[1]));
  const auto b = hn::BitCast(pairs, hn::InterleaveUpper(d, x[0], x[1]));
  const auto e = hn::BitCast(pairs, hn::InterleaveLower(d, x[2], x[3]));
  const auto f = hn::BitCast(pairs, hn::InterleaveUpper(d, x[2], x[3]));
  x[0] = hn::BitCast(d, hn::InterleaveLower(pairs, a, e));
  x[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, a, e));
  x[2] = hn::BitCast(d, hn::InterleaveLower(pairs, b, f));
  x[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, b, f));
}

#endif

}  // namespace penstock::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
