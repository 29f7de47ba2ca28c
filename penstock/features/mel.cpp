// The fused log-mel kernel. A block is as many consecutive frames as a vector has lanes; lane = frame:
//
//   waveform --transpose--> samples --fold, FFT--> power rows --root, filters--> mel rows --log--> out
//                            [hop]                 [n_fft/2+1]                   [n_mels]
//
// MelPrecision::exact folds and transforms in doubles, a part of the block's frames at a time; the rest is
// the same. Nothing is shuffled in between, and a sample is transposed once however many frames it lies in.
// docs/decisions/0003-mel-kernel.md has the reasons and the measurements.

// AVX-512, AVX2 and any x86-64 (SSSE3, else plain code); NEON on aarch64.
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "penstock/features/mel.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once more for each instruction set.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "hwy/highway.h"
#include "penstock/core/error.h"
#include "penstock/features/mel.h"
#include "penstock/features/mel_fft-inl.h"
#include "penstock/features/mel_segments.h"
#include "penstock/features/mel_tables.h"
#include "penstock/features/mel_transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;
constexpr Tag tag;
constexpr int lanes = block_frames;

/// The audio of a block, transposed. The waveform is cut into segments of `hop` samples, counted from the
/// first frame's first sample; a column holds a segment, and the block's frame f begins with column f. So
/// frame f's sample i is in row i % hop, column f + i / hop, and one unaligned load gives it for all frames.
/// For n_fft = 4 hop:
///
///             kept from the last block | new                 sample 0:       row 0 from column 0 on
///   row 0      s0[0]   s1[0]   s2[0]   | s3[0]   s4[0] ...    sample hop + 1: row 1 from column 1 on
///   row 1      s0[1]   s1[1]   s2[1]   | s3[1]   s4[1] ...
struct FrameBlock {
  float* at;
  int hop, kept;  // `kept` columns come first: the overlap in whole small vectors

  /// Columns that fit every load and the copies of keep().
  static constexpr int columns(int kept) { return kept + lanes; }

  HWY_INLINE void keep(float* row) const {
    const hn::CappedTag<float, 4> few;
    constexpr int step = static_cast<int>(hn::MaxLanes(few));
    // The usual case first and by itself: the compiler makes a call of memmove of the loop.
    hn::StoreU(hn::LoadU(few, row + lanes), few, row);
    for (int i = step; i < kept; i += step) hn::StoreU(hn::LoadU(few, row + lanes + i), few, row + i);
  }

  void advance(const float* const* segments) const {
    const int stride = columns(kept);
    int i = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; i + 4 <= hop; i += 4) {
      V x[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) x[j] = load_blocks(tag, segments + j, i);
      transpose_blocks(tag, x);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        float* row = at + (i + j) * stride;
        keep(row);
        hn::StoreU(x[j], tag, row + kept);
      }
    }
#endif
    for (; i < hop; ++i) {
      float* row = at + i * stride;
      keep(row);
      for (int s = 0; s < lanes; ++s) row[kept + s] = segments[s][i];
    }
  }
};

/// 2 sqrt(x) for x >= 0, to about two units in the last place. The filter weights of power 1 are halved
/// instead.
HWY_INLINE V twice_root(V x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSSE3
  // One Newton step on the approximate reciprocal root: the divider would be the bottleneck of the whole
  // kernel.
  const V inverse = hn::ApproximateReciprocalSqrt(hn::Max(x, hn::Set(tag, 1.2e-38F)));  // not 0 * infinity
  const V guess = hn::Mul(x, inverse);
  return hn::Mul(guess, hn::NegMulAdd(guess, inverse, hn::Set(tag, 3.0F)));
#else
  const V y = hn::Sqrt(x);
  return hn::Add(y, y);
#endif
}

template <int power>
HWY_INLINE void apply_filters(const MelTables& t, const float* spectrum, float* mel) {
  const MelTap* tap = t.taps.data();
  V falling = hn::Zero(tag), rising = hn::Zero(tag);
  for (int segment = 0; segment <= t.options.n_mels; ++segment) {
    for (const MelTap* end = tap + t.segment_taps[segment]; tap != end; ++tap) {
      V x = hn::Load(tag, spectrum + tap->row * lanes);
      if constexpr (power == 1) x = twice_root(x);
      falling = hn::MulAdd(x, hn::Set(tag, tap->falling), falling);
      rising = hn::MulAdd(x, hn::Set(tag, tap->rising), rising);
    }
    if (segment > 0) hn::Store(falling, tag, mel + (segment - 1) * lanes);
    falling = rising;
    rising = hn::Zero(tag);
  }
}

/// The wanted logarithm of x = 2^e (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1), at least `floor`. ln(1 + f) =
/// f + f^2 P(f), where P is a minimax fit, 4e-8 at most; e's factor is in two parts, so that only the last
/// addition rounds. Zero counts as 2^-127, far below any floor.
HWY_INLINE V log_of(V x, const MelTables& t) {
  const hn::RebindToSigned<Tag> bits;
  const auto raw = hn::BitCast(bits, x);
  const auto e = hn::ShiftRight<23>(hn::Sub(raw, hn::Set(bits, 0x3F3504F3)));  // the bits of sqrt(1/2)
  const V f = hn::Sub(hn::BitCast(tag, hn::Sub(raw, hn::ShiftLeft<23>(e))), hn::Set(tag, 1.0F));
  V p = hn::Set(tag, -0.100346133F);
  p = hn::MulAdd(p, f, hn::Set(tag, 0.163356411F));
  p = hn::MulAdd(p, f, hn::Set(tag, -0.173259948F));
  p = hn::MulAdd(p, f, hn::Set(tag, 0.198882775F));
  p = hn::MulAdd(p, f, hn::Set(tag, -0.249614652F));
  p = hn::MulAdd(p, f, hn::Set(tag, 0.333352614F));
  p = hn::MulAdd(p, f, hn::Set(tag, -0.500005844F));
  p = hn::Mul(hn::MulAdd(p, hn::Mul(f, f), f), hn::Set(tag, t.log_scale));
  const V exponent = hn::ConvertTo(tag, e);
  p = hn::MulAdd(exponent, hn::Set(tag, t.log_of_2_low), p);
  return hn::Max(hn::MulAdd(exponent, hn::Set(tag, t.log_of_2), p), hn::Set(tag, t.log_floor));
}

/// Logarithms of a block's mel rows, written where the caller wants them: `frames` of the lanes, nothing
/// else.
HWY_INLINE void write_logs(const MelTables& t, const float* mel, int frames, float* out,
                           std::ptrdiff_t stride) {
  const auto log_row = [&](int bin) HWY_ATTR { return log_of(hn::Load(tag, mel + bin * lanes), t); };
  const int bins = t.options.n_mels;
  const bool frames_first = t.options.layout == MelLayout::frames_first;
  int bin = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; frames_first && frames == lanes && bin + 4 <= bins; bin += 4) {
    V x[4] = {log_row(bin), log_row(bin + 1), log_row(bin + 2), log_row(bin + 3)};
    transpose_blocks(tag, x);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) store_blocks(tag, x[j], out + j * stride + bin, stride);
  }
#endif
  for (; bin < bins; ++bin) {
    const V x = log_row(bin);
    if (!frames_first && frames == lanes) {
      hn::StoreU(x, tag, out + bin * stride);
    } else {
      HWY_ALIGN float values[lanes];
      hn::Store(x, tag, values);
      for (int f = 0; f < frames; ++f) out[frames_first ? f * stride + bin : bin * stride + f] = values[f];
    }
  }
}

template <typename T>
void spectra(const MelTables& t, const float* audio, T* rows, T* block, float* power) {
  const auto run = Fft<T>::power_spectra_of(t.options.n_fft);
  const auto& [window, twiddles, eps] = std::get<MelTransform<T>>(t.transform);
  for (int frame = 0; frame < lanes; frame += Fft<T>::lanes)
    run({audio + frame, t.offsets.data(), window.data()}, twiddles.data(), eps, rows, block, power + frame);
}

struct Layout {
  std::size_t frames, rows, block, power, mel, edges, end;
};

/// The scratch's parts, in floats from its start; `rows` and `block` are of T.
template <typename T>
Layout layout_of(const MelTables& t) {
  const auto line = [](std::size_t elements, std::size_t size = sizeof(float)) {
    return (elements * size + 63) / 64 * 16;
  };
  const MelOptions& o = t.options;
  Layout l{};
  l.rows = l.frames + line(static_cast<std::size_t>(o.hop_length) * FrameBlock::columns(t.kept));
  l.block = l.rows + line(static_cast<std::size_t>(o.n_fft / 4) * Fft<T>::lanes, sizeof(T));
  l.power = l.block + line(Fft<T>::block_size(o.n_fft), sizeof(T));
  l.mel = l.power + line(static_cast<std::size_t>(o.n_fft / 2 + 1) * lanes);
  l.edges = l.mel + line(static_cast<std::size_t>(o.n_mels + lanes) * lanes);
  l.end = l.edges + line(static_cast<std::size_t>(o.hop_length) * lanes);
  return l;
}

template <typename T>
void compute_in(const MelTables& t, std::span<const float> audio, float* out, std::ptrdiff_t stride,
                MelScratch& scratch) {
  const MelOptions& o = t.options;
  const std::int64_t frames = o.frames(static_cast<std::int64_t>(audio.size()));
  if (frames == 0) return;
  const MelSegments source{audio, o.pad, mel_padding(o), o.hop_length, frames + t.overlap};
  const Layout at = layout_of<T>(t);
  float* memory = scratch.floats.of(at.end).data();
  T* rows = reinterpret_cast<T*>(memory + at.rows);
  T* transformed = reinterpret_cast<T*>(memory + at.block);
  const FrameBlock block{memory + at.frames, o.hop_length, t.kept};

  // Blocks before the first only bring in the overlap.
  std::int64_t first = -static_cast<std::int64_t>((t.overlap + lanes - 1) / lanes) * lanes;
  for (; first < frames; first += lanes) {
    std::array<const float*, lanes> segments{};
    for (int i = 0; i < lanes; ++i)
      segments[i] =
          source.at(first + t.overlap + i, memory + at.edges + static_cast<std::ptrdiff_t>(i) * o.hop_length);
    block.advance(segments.data());
    if (first < 0) continue;
    spectra(t, block.at, rows, transformed, memory + at.power);
    if (o.power == 1)
      apply_filters<1>(t, memory + at.power, memory + at.mel);
    else
      apply_filters<2>(t, memory + at.power, memory + at.mel);
    const std::ptrdiff_t step = o.layout == MelLayout::frames_first ? stride : 1;
    write_logs(t, memory + at.mel, static_cast<int>(std::min<std::int64_t>(lanes, frames - first)),
               out + first * step, stride);
  }
}

void compute(const MelTables& t, std::span<const float> audio, float* out, std::ptrdiff_t stride,
             MelScratch& scratch) {
  if (t.options.precision == MelPrecision::exact)
    compute_in<double>(t, audio, out, stride, scratch);
  else
    compute_in<float>(t, audio, out, stride, scratch);
}

constexpr int lanes_of_target = lanes;

}  // namespace penstock::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock {
namespace {

/// A compiled instruction set.
struct Kernel {
  std::int64_t target;
  int lanes;
  decltype(&HWY_STATIC_DISPATCH(compute)) compute;
};

// Best first. A table instead of HWY_EXPORT, because two Mels of one process may run on different targets.
constexpr Kernel kernels[] = {
#if HWY_TARGETS & HWY_AVX3
    {HWY_AVX3, N_AVX3::lanes_of_target, &N_AVX3::compute},
#endif
#if HWY_TARGETS & HWY_AVX2
    {HWY_AVX2, N_AVX2::lanes_of_target, &N_AVX2::compute},
#endif
#if HWY_TARGETS & HWY_SSSE3
    {HWY_SSSE3, N_SSSE3::lanes_of_target, &N_SSSE3::compute},
#endif
#if HWY_TARGETS & HWY_NEON
    {HWY_NEON, N_NEON::lanes_of_target, &N_NEON::compute},
#endif
#if HWY_TARGETS & HWY_EMU128
    {HWY_EMU128, N_EMU128::lanes_of_target, &N_EMU128::compute},
#endif
#if HWY_TARGETS & HWY_SCALAR
    {HWY_SCALAR, N_SCALAR::lanes_of_target, &N_SCALAR::compute},
#endif
};

bool runs_here(const Kernel& kernel) { return (hwy::SupportedTargets() & kernel.target) != 0; }

const Kernel& kernel_for(std::string_view target) {
  for (const Kernel& kernel : kernels)
    if (runs_here(kernel) && (target.empty() || target == hwy::TargetName(kernel.target))) return kernel;
  throw Error(
      fmt::format("mel: target must be one of {}, but is {}", fmt::join(Mel::targets(), ", "), target));
}

}  // namespace

struct Mel::Tables {
  Tables(const MelOptions& options, const Kernel& chosen) : kernel(chosen), tables(options, chosen.lanes) {}
  Kernel kernel;
  MelTables tables;
};

Mel::Mel(const MelOptions& options, std::string_view target) {
  options.validate();
  tables_ = std::make_unique<const Tables>(options, kernel_for(target));
}
Mel::~Mel() = default;
Mel::Mel(Mel&&) noexcept = default;
Mel& Mel::operator=(Mel&&) noexcept = default;

const MelOptions& Mel::options() const { return tables_->tables.options; }
std::string_view Mel::target() const { return hwy::TargetName(tables_->kernel.target); }

void Mel::compute(std::span<const float> audio, float* out, std::ptrdiff_t stride,
                  MelScratch& scratch) const {
  tables_->kernel.compute(tables_->tables, audio, out, stride, scratch);
}

std::vector<std::string> Mel::targets() {
  std::vector<std::string> names;
  for (const Kernel& kernel : kernels)
    if (runs_here(kernel)) names.emplace_back(hwy::TargetName(kernel.target));
  return names;
}

}  // namespace penstock
#endif
