#include "penstock/features/griffin_lim.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <random>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/features/fft.h"
#include "penstock/features/mel.h"
#include "penstock/features/mel_tables.h"

namespace penstock {
namespace {

using Complex = std::complex<double>;

/// A filter without its zeros.
struct Band {
  int first = 0;
  std::vector<double> weights;
};

std::vector<Band> bands_of(const MelOptions& options) {
  const std::vector<double> bank = mel_filterbank(options);
  const int bins = options.n_fft / 2 + 1;
  std::vector<Band> bands;
  for (int m = 0; m < options.n_mels; ++m) {
    const double* row = bank.data() + static_cast<std::ptrdiff_t>(m) * bins;
    int first = 0, end = bins;
    while (first < end && row[first] == 0) ++first;
    while (end > first && row[end - 1] == 0) --end;
    bands.push_back({.first = first, .weights = std::vector<double>(row + first, row + end)});
  }
  return bands;
}

/// Frames with `hop` between them, over a signal that begins with the first frame and ends with the last.
class Stft {
 public:
  explicit Stft(const MelOptions& options)
      : fft_(static_cast<std::size_t>(options.n_fft)),
        hop_(static_cast<std::size_t>(options.hop_length)),
        window_(mel_window(options)),
        in_(fft_.size()),
        out_(fft_.size()) {}

  [[nodiscard]] std::size_t bins() const { return fft_.size() / 2 + 1; }
  [[nodiscard]] std::size_t samples(std::size_t frames) const { return (frames - 1) * hop_ + fft_.size(); }

  void forward(std::span<const double> signal, std::span<Complex> spectra) {
    for (std::size_t f = 0; f * bins() < spectra.size(); ++f) {
      for (std::size_t i = 0; i < fft_.size(); ++i) in_[i] = window_[i] * signal[f * hop_ + i];
      fft_.transform(in_.data(), out_.data());
      std::copy_n(out_.begin(), bins(), spectra.begin() + static_cast<std::ptrdiff_t>(f * bins()));
    }
  }

  /// The signal whose frames are nearest to these: windowed again, added up, and divided by what the windows
  /// add up to.
  void inverse(std::span<const Complex> spectra, std::span<double> signal) {
    weights_.assign(signal.size(), 0);
    std::ranges::fill(signal, 0);
    const double scale = 1 / static_cast<double>(fft_.size());
    for (std::size_t f = 0; f * bins() < spectra.size(); ++f) {
      const Complex* spectrum = spectra.data() + f * bins();
      // The transform's conjugate is the inverse one.
      in_[0] = spectrum[0].real();
      for (std::size_t k = 1; k < bins(); ++k) {
        in_[k] = std::conj(spectrum[k]);
        in_[fft_.size() - k] = spectrum[k];
      }
      fft_.transform(in_.data(), out_.data());
      for (std::size_t i = 0; i < fft_.size(); ++i) {
        signal[f * hop_ + i] += window_[i] * out_[i].real() * scale;
        weights_[f * hop_ + i] += window_[i] * window_[i];
      }
    }
    for (std::size_t i = 0; i < signal.size(); ++i)
      signal[i] = weights_[i] > 1e-6 ? signal[i] / weights_[i] : 0;
  }

 private:
  Fft fft_;
  std::size_t hop_;
  std::vector<double> window_, weights_;
  std::vector<Complex> in_, out_;
};

std::size_t frames_of(const MelOptions& options, std::span<const float> mel) {
  options.validate();
  const auto bins = static_cast<std::size_t>(options.n_mels);
  if (mel.empty() || mel.size() % bins != 0)
    throw Error(fmt::format("a mel must be frames of {} bins, but has {} values", bins, mel.size()));
  if (!std::ranges::all_of(mel, [](float x) { return std::isfinite(x); }))
    throw Error("a mel must be finite, but is not");
  return mel.size() / bins;
}

}  // namespace

std::vector<double> mel_to_magnitudes(const MelOptions& options, std::span<const float> mel) {
  const std::size_t frames = frames_of(options, mel), bins = static_cast<std::size_t>(options.n_fft) / 2 + 1;
  const std::vector<Band> bands = bands_of(options);
  std::vector<double> all(frames * bins), wanted(bins), got(bins), energy(bands.size());
  const auto back = [&](std::span<const double> values, std::vector<double>& spectrum) {
    std::ranges::fill(spectrum, 0);
    for (std::size_t m = 0; m < bands.size(); ++m)
      for (std::size_t i = 0; i < bands[m].weights.size(); ++i)
        spectrum[static_cast<std::size_t>(bands[m].first) + i] += bands[m].weights[i] * values[m];
  };
  for (std::size_t f = 0; f < frames; ++f) {
    for (std::size_t m = 0; m < bands.size(); ++m)
      energy[m] = std::exp(static_cast<double>(mel[f * bands.size() + m]) / mel_log_scale(options));
    back(energy, wanted);
    const auto spectrum = std::span(all).subspan(f * bins, bins);
    std::ranges::copy(wanted, spectrum.begin());
    // Multiplicative updates (Lee and Seung) keep all values positive, and bring the mel nearer with each.
    for (int round = 0; round < 60; ++round) {
      for (std::size_t m = 0; m < bands.size(); ++m) {
        energy[m] = 0;
        for (std::size_t i = 0; i < bands[m].weights.size(); ++i)
          energy[m] += bands[m].weights[i] * spectrum[static_cast<std::size_t>(bands[m].first) + i];
      }
      back(energy, got);
      for (std::size_t k = 0; k < bins; ++k) spectrum[k] = got[k] > 0 ? spectrum[k] * wanted[k] / got[k] : 0;
    }
    if (options.power == 2)
      for (double& x : spectrum) x = std::sqrt(x);
  }
  return all;
}

std::vector<float> griffin_lim(const MelOptions& options, std::span<const float> mel,
                               const GriffinLimOptions& how) {
  const std::size_t frames = frames_of(options, mel);
  const std::vector<double> magnitudes = mel_to_magnitudes(options, mel);
  Stft stft(options);
  std::vector<double> signal(stft.samples(frames));
  std::vector<Complex> spectra(magnitudes.size()), now(spectra.size()), before(spectra.size());
  std::mt19937_64 random(how.seed);
  for (std::size_t i = 0; i < spectra.size(); ++i) {
    // The generator's own bits: distributions differ between standard libraries.
    const double turn = static_cast<double>(random() >> 11) * 0x1p-53;
    spectra[i] = std::polar(magnitudes[i], 2 * std::numbers::pi * turn);
  }
  for (int round = 0; round < how.iterations; ++round) {
    stft.inverse(spectra, signal);
    stft.forward(signal, now);
    for (std::size_t i = 0; i < spectra.size(); ++i) {
      const Complex ahead = round == 0 ? now[i] : now[i] + how.momentum * (now[i] - before[i]);
      const double size = std::abs(ahead);
      spectra[i] = size > 1e-12 ? ahead * (magnitudes[i] / size) : Complex(magnitudes[i]);
    }
    now.swap(before);
  }
  stft.inverse(spectra, signal);
  const auto padding = static_cast<std::ptrdiff_t>(mel_padding(options));
  return {signal.begin() + padding, signal.end() - padding};
}

}  // namespace penstock
