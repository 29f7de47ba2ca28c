// What the fused kernel reads but never changes: window, twiddles, filterbank, logarithm. Computed in double,
// once per Mel.
#pragma once
#include <cstdint>
#include <variant>
#include <vector>

#include "penstock/core/mel_options.h"

namespace penstock {

/// Points of an FFT pass that is done in registers, for a transform of `points` complex values
/// (mel_fft-inl.h).
constexpr int mel_pass_radix(int points) {
  if (points <= 16) return points;
  if (points == 256 || points >= 1024) return 16;
  return points >= 64 ? 8 : 4;
}

/// A spectrum row and what it adds to the two filters whose triangles cover it.
struct MelTap {
  std::int32_t row;  ///< the kernel's spectrum is in the FFT's own order, so rows are not bins
  float
      falling;   ///< weight in the filter that ends in this segment; halved for power 1 (mel.cpp, twice_root)
  float rising;  ///< the same for the filter that begins in this segment
};

/// What the transform reads, in the type that it computes in.
template <typename T>
struct MelTransform {
  explicit MelTransform(const MelOptions& options);

  std::vector<T> window;    ///< [n_fft], zeros around a shorter win_length
  std::vector<T> twiddles;  ///< (cos, tan) pairs in the order in which the FFT asks for them
  T power_eps;              ///< added to re^2 + im^2
};

struct MelTables {
  /// For a kernel that computes `lanes` frames at once.
  MelTables(const MelOptions& options, int lanes);

  MelOptions options;
  int overlap;  ///< segments of hop samples that a frame touches, beyond its first
  int kept;     ///< columns of transposed audio that a block takes over from the last one
  std::vector<std::int32_t>
      offsets;  ///< [n_fft] where the transposed audio holds a frame's samples (mel.cpp, FrameBlock)
  std::variant<MelTransform<float>, MelTransform<double>> transform;  ///< fast or exact

  /// Filter edges cut the frequency axis into n_mels + 1 segments; in segment s filter s rises and filter s -
  /// 1 falls.
  std::vector<MelTap> taps;                ///< used bins, ascending
  std::vector<std::int32_t> segment_taps;  ///< [n_mels + 1] taps of each segment

  float log_scale;               ///< log(x) = log_scale * ln(x)
  float log_of_2, log_of_2_low;  ///< log(2) rounded, and what the rounding left
  float log_floor;               ///< what silence becomes: exactly log(floor)
};

/// Periodic Hann of win_length, centred in n_fft.
std::vector<double> mel_window(const MelOptions& options);

/// n_mels + 2 frequencies, evenly spaced on the mel scale: filter m rises from edge m to m + 1 and falls to m
/// + 2.
std::vector<double> mel_edges(const MelOptions& options);

/// Samples in front of the waveform's first that the first frame begins with.
std::int64_t mel_padding(const MelOptions& options);

/// The factor from ln to the wanted logarithm.
double mel_log_scale(const MelOptions& options);

}  // namespace penstock
