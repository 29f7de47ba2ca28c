// The fused log-mel kernel. A block is as many consecutive frames as a vector has lanes (4, 8 or 16), lane = frame:
//
//   waveform --transpose--> samples --fold, FFT--> power rows --root, filters--> mel rows --log, transpose--> out
//              once each     [hop]                 [n_fft/2+1]                   [n_mels]
//
// Every arrow works on whole vectors without shuffling; samples are transposed once however many frames they lie in.
// docs/decisions/0003-mel-kernel.md has the reasons and the measurements.

// AVX-512, AVX2 and any x86-64 (SSSE3, else plain code); NEON on aarch64.
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "penstock/features/mel.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once more for each instruction set.
#include <algorithm>
#include <array>
#include <cstring>

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

/// The audio of a block, transposed. The waveform is cut into segments of `hop` samples, counted from the first frame's
/// first sample; segment s of the clip is column s - (the block's first frame), so that frame f's sample i is in row
/// i % hop, column f + i / hop, and one unaligned load gives sample i of all frames:
///
///              column 0    1   ...  lanes-1 | lanes ... lanes+overlap-1
///   row 0         s0[0]  s1[0]              |                            sample 0:        load at column 0
///   row 1         s0[1]  s1[1]              |                            sample hop + 1:  load at row 1, column 1
///
/// The next block keeps the last `overlap` columns and transposes `lanes` new segments.
struct FrameBlock {
  float* at;
  int hop, overlap;

  static int columns(int overlap) { return lanes + overlap; }
  /// The last row's loads may run over its end.
  static std::size_t floats(int hop, int overlap) { return static_cast<std::size_t>(hop) * columns(overlap) + lanes; }

  HWY_INLINE void keep_overlap(float* row) const {
    for (int column = 0; column < overlap; column += lanes)
      hn::StoreU(hn::LoadU(tag, row + column + lanes), tag, row + column);
  }

  void advance(const float* const* segments) const {
    const int stride = columns(overlap);
    int i = 0;
    for (; i + lanes <= hop; i += lanes) {
      V x[lanes];
      for (int s = 0; s < lanes; ++s) x[s] = hn::LoadU(tag, segments[s] + i);
      transpose(tag, x);
      for (int s = 0; s < lanes; ++s) {
        float* row = at + (i + s) * stride;
        keep_overlap(row);
        hn::StoreU(x[s], tag, row + overlap);
      }
    }
    for (; i < hop; ++i) {
      float* row = at + i * stride;
      keep_overlap(row);
      for (int s = 0; s < lanes; ++s) row[overlap + s] = segments[s][i];
    }
  }
};

/// sqrt(x) for x >= 0, to about two units in the last place.
HWY_INLINE V root(V x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSSE3
  // One Newton step on the approximate reciprocal root: the divider would be the bottleneck of the whole kernel.
  const V half = hn::Set(tag, 0.5F);
  const V inverse = hn::ApproximateReciprocalSqrt(hn::Max(x, hn::Set(tag, 1.2e-38F)));  // not 0 * infinity
  const V guess = hn::Mul(x, inverse);
  const V error = hn::NegMulAdd(guess, hn::Mul(inverse, half), half);
  return hn::MulAdd(guess, error, guess);
#else
  return hn::Sqrt(x);
#endif
}

template <int power>
HWY_INLINE void apply_filters(const MelTables& t, const float* spectrum, float* mel) {
  const V eps = hn::Set(tag, static_cast<float>(t.options.magnitude_eps));
  const MelTap* tap = t.taps.data();
  V falling = hn::Zero(tag), rising = hn::Zero(tag);
  for (int segment = 0; segment <= t.options.n_mels; ++segment) {
    for (const MelTap* end = tap + t.segment_taps[segment]; tap != end; ++tap) {
      V x = hn::Load(tag, spectrum + tap->row * lanes);
      if constexpr (power == 1) x = root(hn::Add(x, eps));
      falling = hn::MulAdd(x, hn::Set(tag, tap->falling), falling);
      rising = hn::MulAdd(x, hn::Set(tag, tap->rising), rising);
    }
    if (segment > 0) hn::Store(falling, tag, mel + (segment - 1) * lanes);
    falling = rising;
    rising = hn::Zero(tag);
  }
}

/// max(scale * ln(x), floor): x = 2^e (1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1), ln(1 + f) = f + f^2 P(f). P is a minimax
/// fit, 4e-8 at most; zero counts as 2^-127, far below any floor.
HWY_INLINE V log_of(V x, V scale, V floor) {
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
  p = hn::MulAdd(p, hn::Mul(f, f), f);
  const V ln = hn::MulAdd(hn::ConvertTo(tag, e), hn::Set(tag, 0.693147181F), p);
  return hn::Max(hn::Mul(ln, scale), floor);
}

/// Logarithms of a block's mel rows, written where the caller wants them: `frames` of the lanes, nothing else.
HWY_INLINE void write_logs(const MelTables& t, const float* mel, int frames, float* out, std::ptrdiff_t stride) {
  const V scale = hn::Set(tag, t.log_scale), floor = hn::Set(tag, t.log_floor);
  const int bins = t.options.n_mels;
  if (t.options.layout == MelLayout::bins_first) {
    for (int bin = 0; bin < bins; ++bin) {
      const V x = log_of(hn::Load(tag, mel + bin * lanes), scale, floor);
      if (frames == lanes)
        hn::StoreU(x, tag, out + bin * stride);
      else
        hn::BlendedStore(x, hn::FirstN(tag, frames), tag, out + bin * stride);
    }
    return;
  }
  for (int first = 0; first < bins; first += lanes) {
    V x[lanes];
    for (int i = 0; i < lanes; ++i) x[i] = log_of(hn::Load(tag, mel + (first + i) * lanes), scale, floor);
    transpose(tag, x);
    if (frames == lanes && first + lanes <= bins) {
      for (int i = 0; i < lanes; ++i) hn::StoreU(x[i], tag, out + i * stride + first);
    } else {
      const auto inside = hn::FirstN(tag, std::min(lanes, bins - first));
      for (int i = 0; i < frames; ++i) hn::BlendedStore(x[i], inside, tag, out + i * stride + first);
    }
  }
}

void spectra(int n_fft, const float* audio, const std::int32_t* offsets, const MelTables& t, float* rows, float* block,
             float* power) {
  const auto run = n_fft == 256    ? &power_spectra<256>
                   : n_fft == 512  ? &power_spectra<512>
                   : n_fft == 1024 ? &power_spectra<1024>
                   : n_fft == 2048 ? &power_spectra<2048>
                                   : &power_spectra<4096>;
  run(audio, offsets, t.window.data(), t.twiddles.data(), rows, block, power);
}

struct Layout {
  std::size_t frames, rows, block, power, mel, edges, end;
};

/// The scratch's parts, in floats from its start.
Layout layout_of(const MelTables& t) {
  const auto line = [](std::size_t floats) { return (floats + 15) / 16 * 16; };
  const MelOptions& o = t.options;
  Layout l{};
  l.rows = l.frames + line(FrameBlock::floats(o.hop_length, t.overlap));
  l.block = l.rows + line(static_cast<std::size_t>(o.n_fft / 2) * lanes);
  l.power = l.block + line(block_floats(o.n_fft / 4));
  l.mel = l.power + line(static_cast<std::size_t>(o.n_fft / 2 + 1) * lanes);
  l.edges = l.mel + line(static_cast<std::size_t>(o.n_mels + lanes) * lanes);
  l.end = l.edges + line(static_cast<std::size_t>(o.hop_length) * lanes);
  return l;
}

void compute(const MelTables& t, std::span<const float> audio, float* out, std::ptrdiff_t stride, MelScratch& scratch) {
  const MelOptions& o = t.options;
  const std::int64_t frames = o.frames(static_cast<std::int64_t>(audio.size()));
  const MelSegments source{audio, o.pad, mel_padding(o), o.hop_length, frames + t.overlap};
  const Layout at = layout_of(t);
  float* memory = scratch.floats.of(at.end).data();
  const FrameBlock block{memory + at.frames, o.hop_length, t.overlap};

  // Blocks before the first only bring in the overlap.
  std::int64_t first = -static_cast<std::int64_t>((t.overlap + lanes - 1) / lanes) * lanes;
  for (; first < frames; first += lanes) {
    std::array<const float*, lanes> segments{};
    for (int i = 0; i < lanes; ++i)
      segments[i] = source.at(first + t.overlap + i, memory + at.edges + static_cast<std::ptrdiff_t>(i) * o.hop_length);
    block.advance(segments.data());
    if (first < 0) continue;
    spectra(o.n_fft, block.at, t.offsets.data(), t, memory + at.rows, memory + at.block, memory + at.power);
    if (o.power == 1)
      apply_filters<1>(t, memory + at.power, memory + at.mel);
    else
      apply_filters<2>(t, memory + at.power, memory + at.mel);
    const std::ptrdiff_t step = o.layout == MelLayout::frames_first ? stride : 1;
    write_logs(t, memory + at.mel, static_cast<int>(std::min<std::int64_t>(lanes, frames - first)), out + first * step,
               stride);
  }
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
  throw Error(fmt::format("mel: target must be one of {}, but is {}", fmt::join(Mel::targets(), ", "), target));
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

void Mel::compute(std::span<const float> audio, float* out, std::ptrdiff_t stride, MelScratch& scratch) const {
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
