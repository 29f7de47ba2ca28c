// The real FFT of as many frames as a vector has lanes, in float or in double. Included once per instruction
// set by mel.cpp.
//
// Lane l of every vector belongs to frame l: the code below is an FFT of scalars that happen to be wide.
// Nothing is shuffled, the lane count does not matter, and what one frame holds cannot leak into another.
//
// The even bins of a real transform of n points are the transform of n / 2 real points; the odd ones are one
// complex transform of n / 4 points (bins 4m + 1 directly, 4m + 3 as conjugates), so no pass is spent on
// separating them:
//
//   x[0 .. n)  --fold-->  n/2 reals    x[i] + x[i + n/2]                                    even bins
//                         n/4 complex  x[i] - x[i + n/2] - j (x[i + n/4] - x[i + 3n/4])     X[4m + 1]
//
// X[4m + 1] = sum c[i] exp(-2 pi j i (m + 1/4) / M), M = n/4, is a transform at frequencies shifted by theta
// = 1/4. Halving it, c[i] +- w c[i + M/2] with w = exp(-pi j theta), gives two transforms of M / 2 points at
// shifts theta / 2 and (theta + 1) / 2. So a factor belongs to a node of this tree, not to an element: it is
// loaded once for a whole row of butterflies. The sibling's factor is -j times its own.
#if defined(PENSTOCK_FEATURES_MEL_FFT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PENSTOCK_FEATURES_MEL_FFT_INL_H_
#undef PENSTOCK_FEATURES_MEL_FFT_INL_H_
#else
#define PENSTOCK_FEATURES_MEL_FFT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "penstock/features/mel_tables.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Frames of a block, and so the floats of a power row: a vector of floats. Doubles take them in parts.
constexpr int block_frames = static_cast<int>(HWY_LANES(float));

/// The transform, computed in T; samples come and powers leave as floats.
template <typename T>
struct Fft {
  using Tag = hn::ScalableTag<T>;
  using V = hn::Vec<Tag>;
  static constexpr Tag tag{};
  static constexpr int lanes = static_cast<int>(HWY_LANES(T));
  using Floats = hn::Rebind<float, Tag>;  // as many as there are lanes

  static HWY_INLINE V load_floats(const float* from) {
    if constexpr (std::is_same_v<T, float>)
      return hn::LoadU(tag, from);
    else
      return hn::PromoteTo(tag, hn::LoadU(Floats(), from));
  }

  static HWY_INLINE void store_floats(V x, float* to) {
    if constexpr (std::is_same_v<T, float>)
      hn::Store(x, tag, to);
    else
      hn::Store(hn::DemoteTo(Floats(), x), Floats(), to);
  }

  struct Complex {
    // Written out, because g++ compiles implied constructors without the target's instructions.
    HWY_INLINE Complex() {}
    HWY_INLINE Complex(V real, V imaginary) : re(real), im(imaginary) {}
    V re, im;
  };

  /// a, b = a + w b, a - w b; with `turned` -j w in place of w. w = cos (1 + j tan) costs six multiply-adds
  /// instead of eight operations, and a large tangent loses nothing: its product is scaled back by the small
  /// cosine.
  template <bool turned>
  static HWY_INLINE void butterfly(Complex& a, Complex& b, const T* w) {
    const V cos = hn::Set(tag, w[0]), tan = hn::Set(tag, w[1]);
    const V re = hn::NegMulAdd(tan, b.im, b.re);
    const V im = hn::MulAdd(tan, b.re, b.im);
    if constexpr (turned) {
      b.re = hn::NegMulAdd(cos, im, a.re);
      b.im = hn::MulAdd(cos, re, a.im);
      a.re = hn::MulAdd(cos, im, a.re);
      a.im = hn::NegMulAdd(cos, re, a.im);
    } else {
      b.re = hn::NegMulAdd(cos, re, a.re);
      b.im = hn::NegMulAdd(cos, im, a.im);
      a.re = hn::MulAdd(cos, re, a.re);
      a.im = hn::MulAdd(cos, im, a.im);
    }
  }

  /// Two levels: `w` for the node, `below` for its children.
  template <bool turned>
  static HWY_INLINE void butterfly4(Complex& a, Complex& b, Complex& c, Complex& d, const T* w,
                                    const T* below) {
    butterfly<turned>(a, c, w);
    butterfly<turned>(b, d, w);
    butterfly<false>(a, b, below);
    butterfly<true>(c, d, below);
  }

  /// All levels of one node of `radix` points. Loads and stores stand where the values are needed, four at a
  /// time, because the compiler keeps this order and sixteen complex values fill the registers.
  template <int radix, typename Load, typename Store>
  static HWY_INLINE void pass(const T* w, const Load& load, const Store& store) {
    if constexpr (radix == 1) {
      store(0, load(0));
    } else if constexpr (radix == 2) {
      Complex a = load(0), b = load(1);
      butterfly<false>(a, b, w);
      store(0, a), store(1, b);
    } else if constexpr (radix == 4) {
      Complex a = load(0), b = load(1), c = load(2), d = load(3);
      butterfly4<false>(a, b, c, d, w, w + 2);
      store(0, a), store(1, b), store(2, c), store(3, d);
    } else if constexpr (radix == 8) {
      Complex x[8];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        x[i] = load(i), x[i + 4] = load(i + 4);
        butterfly<false>(x[i], x[i + 4], w);
      }
      butterfly4<false>(x[0], x[1], x[2], x[3], w + 2, w + 4);
      store(0, x[0]), store(1, x[1]), store(2, x[2]), store(3, x[3]);
      butterfly4<true>(x[4], x[5], x[6], x[7], w + 2, w + 6);
      store(4, x[4]), store(5, x[5]), store(6, x[6]), store(7, x[7]);
    } else {
      static_assert(radix == 16);
      Complex x[16];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        x[i] = load(i), x[i + 4] = load(i + 4), x[i + 8] = load(i + 8), x[i + 12] = load(i + 12);
        butterfly4<false>(x[i], x[i + 4], x[i + 8], x[i + 12], w, w + 2);
      }
#pragma GCC unroll 2
      for (int i = 0; i < 16; i += 8) {
        butterfly4<false>(x[i], x[i + 1], x[i + 2], x[i + 3], w + 4 + i / 4, w + 8 + i / 2);
        store(i, x[i]), store(i + 1, x[i + 1]), store(i + 2, x[i + 2]), store(i + 3, x[i + 3]);
        butterfly4<true>(x[i + 4], x[i + 5], x[i + 6], x[i + 7], w + 4 + i / 4, w + 10 + i / 2);
        store(i + 4, x[i + 4]), store(i + 5, x[i + 5]), store(i + 6, x[i + 6]), store(i + 7, x[i + 7]);
      }
    }
  }

  /// Complex rows (re, im) at a stride.
  struct Block {
    T* at;
    std::ptrdiff_t stride;
    HWY_INLINE Complex operator()(int i) const {
      return {hn::Load(tag, at + i * stride), hn::Load(tag, at + i * stride + lanes)};
    }
    HWY_INLINE void operator()(int i, const Complex& x) const {
      hn::Store(x.re, tag, at + i * stride);
      hn::Store(x.im, tag, at + i * stride + lanes);
    }
  };

  /// Where the tree's leaves go: re^2 + im^2 + eps, row after row.
  struct PowerRows {
    float* at;
    V eps;
    HWY_INLINE void operator()(int i, const Complex& x) const {
      store_floats(hn::MulAdd(x.re, x.re, hn::MulAdd(x.im, x.im, eps)), at + i * block_frames);
    }
  };

  /// What the passes of a transform move along: the next twiddles and the next leaf.
  struct Cursor {
    const T* w;
    float* power;
    V eps;
  };

  /// Frames as the transposed audio holds them (FrameBlock in mel.cpp), and their window.
  struct Samples {
    const float* audio;
    const std::int32_t* offsets;  // of sample i of all frames
    const T* window;
    HWY_INLINE V operator()(int i) const { return load_floats(audio + offsets[i]); }
    HWY_INLINE V weight(int i) const { return hn::Set(tag, window[i]); }
  };

  /// The fold of the drawing for n = 4 * quarter windowed samples: point i is sample first + i * step.
  template <int quarter, int step>
  struct FoldSamples {
    Samples x;
    int first;
    T* even;  // row i: the real half's point i
    HWY_INLINE Complex operator()(int i) const {
      const int n0 = first + i * step, n1 = n0 + quarter, n2 = n1 + quarter, n3 = n2 + quarter;
      const V x0 = hn::Mul(x(n0), x.weight(n0)), x3 = hn::Mul(x(n3), x.weight(n3));
      const V x1 = x(n1), w1 = x.weight(n1), x2 = x(n2), w2 = x.weight(n2);
      hn::Store(hn::MulAdd(x2, w2, x0), tag, even + i * lanes);
      hn::Store(hn::MulAdd(x1, w1, x3), tag, even + (i + quarter / step) * lanes);
      return {hn::NegMulAdd(x2, w2, x0), hn::NegMulAdd(x1, w1, x3)};
    }
  };

  /// The same for rows: four of them, `in_quarter` apart, to two, `out_quarter` apart. The strides are in
  /// elements.
  struct FoldRows {
    const T* in;
    std::ptrdiff_t in_stride, in_quarter;
    T* even;
    std::ptrdiff_t even_stride, even_quarter;
    HWY_INLINE Complex operator()(int i) const {
      const T* x = in + i * in_stride;
      const V x0 = hn::Load(tag, x), x1 = hn::Load(tag, x + in_quarter);
      const V x2 = hn::Load(tag, x + 2 * in_quarter), x3 = hn::Load(tag, x + 3 * in_quarter);
      hn::Store(hn::Add(x0, x2), tag, even + i * even_stride);
      hn::Store(hn::Add(x1, x3), tag, even + i * even_stride + even_quarter);
      return {hn::Sub(x0, x2), hn::Sub(x3, x1)};
    }
  };

  /// Elements between the outputs of a first pass over columns of `rows` complex rows. A line more than they
  /// need: strides of a power of two would put all of a column into the same few sets of the L1 cache.
  static constexpr std::ptrdiff_t column_stride(int rows) {
    constexpr std::ptrdiff_t line = 64 / sizeof(T);
    return rows * 2 * lanes + (rows * lanes >= 8 * line ? line : 0);
  }

  /// The trees below `blocks` blocks of complex rows, in place. A function of its own, shared by all levels:
  /// the code of a whole transform in one function would be too much for the instruction caches and for the
  /// compiler.
  template <int points>
  static HWY_NOINLINE void transform_blocks(T* block, int blocks, std::ptrdiff_t block_stride,
                                            Cursor& cursor) {
    constexpr int radix = mel_pass_radix(points), rows = points / radix;
    Cursor next = cursor;
    for (int b = 0; b < blocks; ++b, block += block_stride) {
      const T* w = next.w;
      next.w += radix;
      if constexpr (rows == 1) {
        pass<radix>(w, Block{block, 2 * lanes}, PowerRows{next.power, next.eps});
        next.power += points * block_frames;
      } else {
        for (int i = 0; i < rows; ++i) {
          const Block column{block + i * 2 * lanes, rows * 2 * lanes};
          pass<radix>(w, column, column);
        }
        transform_blocks<rows>(block, radix, rows * 2 * lanes, next);
      }
    }
    cursor = next;
  }

  /// All bins of a real transform of n rows: the odd ones, then the others, down to the last two: 0 and n
  /// / 2.
  template <int n>
  static HWY_NOINLINE void transform_rows(T* x, T* block, Cursor& next) {
    if constexpr (n == 2) {
      const V even = hn::Load(tag, x), odd = hn::Load(tag, x + lanes);
      const PowerRows out{next.power, next.eps};
      out(0, {hn::Add(even, odd), hn::Zero(tag)});
      out(1, {hn::Sub(even, odd), hn::Zero(tag)});
    } else {
      constexpr int points = n / 4, radix = mel_pass_radix(points), rows = points / radix;
      const auto fold = [x](int first) HWY_ATTR {
        T* at = x + first * lanes;
        return FoldRows{at, rows * lanes, points * lanes, at, rows * lanes, points * lanes};
      };
      if constexpr (rows == 1) {
        pass<radix>(next.w, fold(0), PowerRows{next.power, next.eps});
        next.power += points * block_frames;
        next.w += radix > 1 ? radix : 0;
      } else {
        for (int i = 0; i < rows; ++i)
          pass<radix>(next.w, fold(i), Block{block + i * 2 * lanes, column_stride(rows)});
        next.w += radix;
        transform_blocks<rows>(block, radix, column_stride(rows), next);
      }
      transform_rows<n / 2>(x, block, next);
    }
  }

  /// Scratch of power_spectra(), in elements.
  static constexpr std::ptrdiff_t block_size(int n) {
    const int radix = mel_pass_radix(n / 4);
    return (radix + radix / 2) * column_stride(n / 4 / radix);
  }

  /// Power spectra of `lanes` frames: power[row * block_frames + frame], rows in the order of
  /// mel_tables.cpp's rows_of_bins(). `quarter` is scratch for n / 4 rows, `block` for block_size(n).
  ///
  /// The first two levels (odd bins, and odd multiples of 2) are folded together, column by column: the real
  /// half of the first fold is consumed while it is in the L1 cache, and only its own real half, a quarter of
  /// the samples, goes to memory.
  template <int n>
  static HWY_NOINLINE void power_spectra(const Samples& x, const T* w, T eps, T* quarter, T* block,
                                         float* power) {
    constexpr int radix = mel_pass_radix(n / 4), rows = n / 4 / radix;
    constexpr std::ptrdiff_t stride = column_stride(rows);
    T* second = block + radix * stride;
    for (int i = 0; i < rows; ++i) {
      HWY_ALIGN T even[2 * radix * lanes];
      pass<radix>(w, FoldSamples<n / 4, rows>{x, i, even}, Block{block + i * 2 * lanes, stride});
      const FoldRows fold{even, lanes, radix / 2 * lanes, quarter + i * lanes, rows * lanes, n / 8 * lanes};
      pass<radix / 2>(w + radix, fold, Block{second + i * 2 * lanes, stride});
    }
    Cursor next{w + radix + radix / 2, power, hn::Set(tag, eps)};
    transform_blocks<rows>(block, radix + radix / 2, stride, next);
    transform_rows<n / 4>(quarter, block, next);
  }

  static auto power_spectra_of(int n) {
    switch (n) {
      case 256:
        return &power_spectra<256>;
      case 512:
        return &power_spectra<512>;
      case 1024:
        return &power_spectra<1024>;
      case 2048:
        return &power_spectra<2048>;
      default:
        return &power_spectra<4096>;
    }
  }
};

}  // namespace penstock::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
