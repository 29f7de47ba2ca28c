// A square of vectors, transposed in registers. Included once per instruction set by mel.cpp.
#if defined(PENSTOCK_FEATURES_MEL_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PENSTOCK_FEATURES_MEL_TRANSPOSE_INL_H_
#undef PENSTOCK_FEATURES_MEL_TRANSPOSE_INL_H_
#else
#define PENSTOCK_FEATURES_MEL_TRANSPOSE_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
template <typename D, typename V = hn::Vec<D>>
HWY_INLINE void transpose(D, V*) {}
#else

/// Four rows; afterwards 128-bit block b of x[i] holds column 4 b + i.
template <typename D, typename V = hn::Vec<D>>
HWY_INLINE void transpose_blocks(D d, V* x) {
  const hn::Repartition<double, D> pairs;
  const V a = hn::InterleaveLower(d, x[0], x[1]), b = hn::InterleaveUpper(d, x[0], x[1]);
  const V e = hn::InterleaveLower(d, x[2], x[3]), f = hn::InterleaveUpper(d, x[2], x[3]);
  const auto lower = [&](V p, V q) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, p), hn::BitCast(pairs, q)));
  };
  const auto upper = [&](V p, V q) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, p), hn::BitCast(pairs, q)));
  };
  x[0] = lower(a, e), x[1] = upper(a, e), x[2] = lower(b, f), x[3] = upper(b, f);
}

/// x[row] lane column -> x[column] lane row, for as many rows as lanes.
template <typename D, typename V = hn::Vec<D>>
HWY_INLINE void transpose(D d, V* x) {
#pragma GCC unroll 4
  for (int row = 0; row < static_cast<int>(HWY_LANES(float)); row += 4) transpose_blocks(d, x + row);
#if HWY_MAX_BYTES == 32
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const V a = x[i], b = x[i + 4];
    x[i] = hn::ConcatLowerLower(d, b, a);
    x[i + 4] = hn::ConcatUpperUpper(d, b, a);
  }
#elif HWY_MAX_BYTES == 64
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const V ac = hn::ConcatLowerLower(d, x[i + 8], x[i]), bd = hn::ConcatLowerLower(d, x[i + 12], x[i + 4]);
    const V eg = hn::ConcatUpperUpper(d, x[i + 8], x[i]), fh = hn::ConcatUpperUpper(d, x[i + 12], x[i + 4]);
    x[i] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(bd), ac);
    x[i + 4] = hn::OddEvenBlocks(bd, hn::SwapAdjacentBlocks(ac));
    x[i + 8] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(fh), eg);
    x[i + 12] = hn::OddEvenBlocks(fh, hn::SwapAdjacentBlocks(eg));
  }
#else
  static_assert(HWY_LANES(float) == 4);
#endif
}
#endif

}  // namespace penstock::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
