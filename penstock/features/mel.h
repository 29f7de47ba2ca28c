// Waveform -> log-mel spectrogram: window, real FFT, magnitude or power, sparse filterbank and log in one
// pass.
//
// `Mel` is the fused kernel, dispatched at run time to the best instruction set that was compiled in;
// `mel_reference` is the plain definition in double precision, kept beside it to be compared with.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/core/file.h"
#include "penstock/core/mel_options.h"

namespace penstock {

/// Changes when the same options and audio give other numbers: part of every fingerprint of cached mels.
inline constexpr int mel_version = 1;

/// A worker's memory for Mel::compute; grows on first use, then allocates nothing.
struct MelScratch {
  Scratch<float> floats;
};

/// A planned transform: tables for one set of options. Immutable, so all workers share one.
class Mel {
 public:
  /// Validates the options (Error). `target` is one of targets(), or empty for the best.
  explicit Mel(const MelOptions& options, std::string_view target = {});
  ~Mel();
  Mel(Mel&&) noexcept;
  Mel& operator=(Mel&&) noexcept;

  [[nodiscard]] const MelOptions& options() const;
  [[nodiscard]] std::string_view target() const;

  /// Writes options().frames(audio.size()) frames to `out`: element (frame, bin) goes to out[frame * stride +
  /// bin], or to out[bin * stride + frame] with MelLayout::bins_first. Touches nothing else in `out`.
  void compute(std::span<const float> audio, float* out, std::ptrdiff_t stride, MelScratch& scratch) const;

  /// Instruction sets that were compiled in and that this CPU has, best first: "AVX3" (AVX-512), "AVX2",
  /// "SSSE3", "SCALAR" on x86-64; "NEON" on aarch64.
  static std::vector<std::string> targets();

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

/// The filterbank as librosa.filters.mel makes it, in double: [n_mels][n_fft / 2 + 1].
std::vector<double> mel_filterbank(const MelOptions& options);

/// The same definition as Mel::compute in double precision throughout, without tricks; rounds once, at the
/// end.
void mel_reference(const MelOptions& options, std::span<const float> audio, float* out,
                   std::ptrdiff_t stride);

}  // namespace penstock
