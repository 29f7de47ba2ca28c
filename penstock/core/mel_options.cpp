#include "penstock/core/mel_options.h"

#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

template <typename T>
void in_range(const char* key, T value, T low, T high) {
  if (!(value >= low && value <= high))
    throw Error(fmt::format("{} must be from {} to {}, but is {}", key, low, high, value));
}

}  // namespace

std::int64_t MelOptions::frames(std::int64_t samples) const {
  if (samples <= 0) return 0;
  switch (framing) {
    case MelFraming::centered:
      return 1 + samples / hop_length;
    case MelFraming::same:
      samples += (n_fft - hop_length) / 2 * 2;
      break;
    case MelFraming::valid:
      break;
  }
  return samples < n_fft ? 0 : 1 + (samples - n_fft) / hop_length;
}

void MelOptions::validate() const {
  in_range("sample_rate", sample_rate, 1000, 384000);
  if (n_fft < 256 || n_fft > 4096 || (n_fft & (n_fft - 1)) != 0)
    throw Error(fmt::format("n_fft must be a power of two from 256 to 4096, but is {}", n_fft));
  in_range("win_length", win_length, 2, n_fft);
  in_range("hop_length", hop_length, 1, n_fft);
  in_range("n_mels", n_mels, 1, 512);
  in_range("mel_fmax", fmax, 1.0, sample_rate / 2.0);
  if (!(fmin >= 0 && fmin < fmax))
    throw Error(fmt::format("mel_fmin must be from 0 to below mel_fmax ({}), but is {}", fmax, fmin));
  in_range("mel_power", power, 1, 2);
  in_range("mel_eps", magnitude_eps, 0.0, 1.0);
  in_range("mel_floor", floor, 1e-30, 1.0);
}

std::optional<MelOptions> mel_preset(std::string_view name) {
  if (name == "hifigan") return MelOptions{.magnitude_eps = 1e-9, .framing = MelFraming::same};
  if (name == "myxtts")
    return MelOptions{.fmax = 11025, .pad = MelPad::constant, .precision = MelPrecision::exact};
  if (name == "librosa")
    return MelOptions{.n_fft = 2048,
                      .win_length = 2048,
                      .hop_length = 512,
                      .n_mels = 128,
                      .fmax = 11025,
                      .power = 2,
                      .pad = MelPad::constant,
                      .log = MelLog::db,
                      .floor = 1e-10,
                      .precision = MelPrecision::exact};
  return std::nullopt;
}

}  // namespace penstock
