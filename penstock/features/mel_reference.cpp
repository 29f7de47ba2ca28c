// The definition of the log-mel spectrogram, written to be read. mel.cpp computes the same thing fast.
#include <algorithm>
#include <cmath>
#include <complex>

#include "penstock/features/fft.h"
#include "penstock/features/mel.h"
#include "penstock/features/mel_tables.h"

namespace penstock {
namespace {

using Complex = std::complex<double>;

/// The waveform continued beyond its ends. Reflection is numpy.pad's: the end samples are not repeated, a
/// short clip is reflected again and again, and a single sample goes on for ever.
double sample_at(std::span<const float> audio, std::int64_t at, MelPad pad) {
  const auto n = static_cast<std::int64_t>(audio.size());
  if (at >= 0 && at < n) return audio[at];
  if (pad == MelPad::constant) return 0;
  if (n == 1) return audio[0];
  const std::int64_t period = 2 * (n - 1);
  const std::int64_t phase = ((at % period) + period) % period;
  return audio[std::min(phase, period - phase)];
}

}  // namespace

void mel_reference(const MelOptions& options, std::span<const float> audio, float* out,
                   std::ptrdiff_t stride) {
  options.validate();
  const std::vector<double> window = mel_window(options), bank = mel_filterbank(options);
  const int bins = options.n_fft / 2 + 1;
  const std::int64_t frames = options.frames(static_cast<std::int64_t>(audio.size()));
  const Fft fft(static_cast<std::size_t>(options.n_fft));
  std::vector<Complex> frame(options.n_fft), transformed(options.n_fft);
  std::vector<double> spectrum(bins);
  for (std::int64_t f = 0; f < frames; ++f) {
    const std::int64_t first = f * options.hop_length - mel_padding(options);
    for (int i = 0; i < options.n_fft; ++i) frame[i] = window[i] * sample_at(audio, first + i, options.pad);
    fft.transform(frame.data(), transformed.data());
    for (int k = 0; k < bins; ++k) {
      const double power = std::norm(transformed[k]);
      spectrum[k] = options.power == 2 ? power : std::sqrt(power + options.magnitude_eps);
    }
    for (int m = 0; m < options.n_mels; ++m) {
      double sum = 0;
      for (int k = 0; k < bins; ++k) sum += bank[static_cast<std::size_t>(m) * bins + k] * spectrum[k];
      const double value = mel_log_scale(options) * std::log(std::max(sum, options.floor));
      out[options.layout == MelLayout::frames_first ? f * stride + m : m * stride + f] =
          static_cast<float>(value);
    }
  }
}

}  // namespace penstock
