// Everything that defines a log-mel spectrogram, and the definitions that people train with.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock {

enum class MelScale { slaney, htk };
enum class MelNorm { slaney, none };
/// What the ends are padded by: n_fft / 2; `same`, HiFi-GAN's (n_fft - hop) / 2, so that frames = samples /
/// hop; nothing.
enum class MelFraming { centered, same, valid };
enum class MelPad { reflect, constant };
enum class MelLog { ln, log10, db };
/// What window and FFT are computed in: float32, as torch does, or float64, as librosa does whatever the
/// audio's type. They differ by up to 1e-4 in bins far below their frame's peak; `exact` takes 1.75 times as
/// long.
enum class MelPrecision { fast, exact };
/// A row's memory: [frames, bins] or [bins, frames].
enum class MelLayout { frames_first, bins_first };

struct MelOptions {
  std::int32_t sample_rate = 22050;
  std::int32_t n_fft = 1024;       ///< a power of two, 256 to 4096
  std::int32_t win_length = 1024;  ///< periodic Hann, centred in n_fft when shorter
  std::int32_t hop_length = 256;
  std::int32_t n_mels = 80;
  double fmin = 0;
  double fmax = 8000;
  MelScale scale = MelScale::slaney;
  MelNorm norm = MelNorm::slaney;
  std::int32_t power = 1;    ///< 1: magnitude, 2: power
  double magnitude_eps = 0;  ///< added to re^2 + im^2 before the root (power 1 only)
  MelFraming framing = MelFraming::centered;
  MelPad pad = MelPad::reflect;
  MelLog log = MelLog::ln;  ///< ln, log10, or db: 10 log10(x) for power 2, 20 log10(x) for power 1
  double floor = 1e-5;      ///< x = max(x, floor) before the log
  MelPrecision precision = MelPrecision::fast;
  MelLayout layout = MelLayout::frames_first;

  bool operator==(const MelOptions&) const = default;

  /// Frames of a waveform of this many samples at `sample_rate`.
  [[nodiscard]] std::int64_t frames(std::int64_t samples) const;

  /// Throws Error naming the key whose value is out of range.
  void validate() const;
};

/// `hifigan`, `myxtts` or `librosa`; nothing for another name.
///  - hifigan: 22,050 Hz, 1024/1024/256, `same` framing with reflection, eps 1e-9, 80 bins to 8 kHz,
///    ln(max(x, 1e-5)); fast
///  - myxtts: the same, but centred with zeros, plain magnitude, to 11,025 Hz, exact
///  - librosa: librosa.feature.melspectrogram's defaults (2048/512, power 2, 128 bins, zeros, to sr/2), then
///    librosa.power_to_db with ref 1, amin 1e-10 and top_db None; exact
std::optional<MelOptions> mel_preset(std::string_view name);

}  // namespace penstock
