#include "penstock/features/mel_tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "penstock/features/mel.h"

namespace penstock {
namespace {

constexpr double pi = std::numbers::pi;

// Slaney's scale: linear below 1 kHz, logarithmic above.
constexpr double slaney_hz_per_mel = 200.0 / 3;
constexpr double slaney_break_hz = 1000;
constexpr double slaney_break_mel = slaney_break_hz / slaney_hz_per_mel;
const double slaney_log_step = std::log(6.4) / 27;

double hz_to_mel(double hz, MelScale scale) {
  if (scale == MelScale::htk) return 2595 * std::log10(1 + hz / 700);
  if (hz < slaney_break_hz) return hz / slaney_hz_per_mel;
  return slaney_break_mel + std::log(hz / slaney_break_hz) / slaney_log_step;
}

double mel_to_hz(double mel, MelScale scale) {
  if (scale == MelScale::htk) return 700 * (std::pow(10, mel / 2595) - 1);
  if (mel < slaney_break_mel) return mel * slaney_hz_per_mel;
  return slaney_break_hz * std::exp(slaney_log_step * (mel - slaney_break_mel));
}

// One pass of `radix` points at shift `theta`: level by level, a (cos, tan) pair for each first child; its
// sibling's factor is the same times -i. Returns the shifts of the pass's outputs.
template <typename T>
std::vector<double> append_pass(double theta, int radix, std::vector<T>& twiddles) {
  std::vector<double> shifts = {theta};
  while (static_cast<int>(shifts.size()) < radix) {
    const std::size_t step = shifts.size() == 1 ? 1 : 2;
    for (std::size_t i = 0; i < shifts.size(); i += step) {
      const auto cos = static_cast<T>(std::cos(pi * shifts[i]));
      twiddles.push_back(cos);
      twiddles.push_back(
          static_cast<T>(-std::sin(pi * shifts[i]) / cos));  // so that their product is rounded once
    }
    std::vector<double> children;
    for (const double shift : shifts) {
      children.push_back(shift / 2);
      children.push_back((shift + 1) / 2);
    }
    shifts = std::move(children);
  }
  return shifts;
}

template <typename T>
void append_tree(double theta, int points, std::vector<T>& twiddles) {
  const int radix = mel_pass_radix(points);
  for (const double shift : append_pass(theta, radix, twiddles))
    if (radix < points) append_tree(shift, points / radix, twiddles);
}

// In the order of power_spectra(): the first two levels' passes together, what is below them, the other
// levels.
template <typename T>
std::vector<T> fft_twiddles(int n_fft) {
  constexpr double odd_bins = 0.25;
  std::vector<T> twiddles;
  const int radix = mel_pass_radix(n_fft / 4);
  const std::vector<double> first = append_pass(odd_bins, radix, twiddles);
  const std::vector<double> second = append_pass(odd_bins, radix / 2, twiddles);
  for (const double shift : first) append_tree(shift, n_fft / 4 / radix, twiddles);
  for (const double shift : second) append_tree(shift, n_fft / 4 / radix, twiddles);
  for (int n = n_fft / 4; n >= 4; n /= 2) append_tree(odd_bins, n / 4, twiddles);
  return twiddles;
}

int reversed_bits(int value, int below) {
  int reversed = 0;
  for (; below > 1; below /= 2, value /= 2) reversed = 2 * reversed + value % 2;
  return reversed;
}

// The kernel's spectrum rows: odd bins of the real transform of length n_fft, then of n_fft / 2, ...; each
// part in the bit-reversed order in which its complex transform ends.
std::vector<std::int32_t> rows_of_bins(int n_fft) {
  std::vector<std::int32_t> rows(n_fft / 2 + 1);
  std::int32_t row = 0;
  for (int n = n_fft; n >= 4; n /= 2) {
    for (int i = 0; i < n / 4; ++i) {
      const int odd = 4 * reversed_bits(i, n / 4) + 1;
      rows[std::min(odd, n - odd) * (n_fft / n)] = row++;
    }
  }
  rows[0] = row++;
  rows[n_fft / 2] = row++;
  return rows;
}

}  // namespace

std::vector<double> mel_window(const MelOptions& options) {
  std::vector<double> window(options.n_fft);
  const int first = (options.n_fft - options.win_length) / 2;
  for (int i = 0; i < options.win_length; ++i)
    window[first + i] = 0.5 - 0.5 * std::cos(2 * pi * i / options.win_length);
  return window;
}

std::vector<double> mel_edges(const MelOptions& options) {
  const double low = hz_to_mel(options.fmin, options.scale), high = hz_to_mel(options.fmax, options.scale);
  std::vector<double> edges(options.n_mels + 2);
  for (int i = 0; i < options.n_mels + 2; ++i)
    edges[i] = mel_to_hz(low + (high - low) * i / (options.n_mels + 1), options.scale);
  return edges;
}

std::vector<double> mel_filterbank(const MelOptions& options) {
  const int bins = options.n_fft / 2 + 1;
  const std::vector<double> edges = mel_edges(options);
  std::vector<double> bank(static_cast<std::size_t>(options.n_mels) * bins);
  for (int m = 0; m < options.n_mels; ++m) {
    const double low = edges[m], peak = edges[m + 1], high = edges[m + 2];
    const double gain = options.norm == MelNorm::slaney ? 2 / (high - low) : 1;
    for (int k = 0; k < bins; ++k) {
      const double hz = static_cast<double>(k) * options.sample_rate / options.n_fft;
      const double height = std::min((hz - low) / (peak - low), (high - hz) / (high - peak));
      bank[static_cast<std::size_t>(m) * bins + k] = gain * std::max(0.0, height);
    }
  }
  return bank;
}

std::int64_t mel_padding(const MelOptions& options) {
  switch (options.framing) {
    case MelFraming::centered:
      return options.n_fft / 2;
    case MelFraming::same:
      return (options.n_fft - options.hop_length) / 2;
    case MelFraming::valid:
      return 0;
  }
  return 0;
}

double mel_log_scale(const MelOptions& options) {
  switch (options.log) {
    case MelLog::ln:
      return 1;
    case MelLog::log10:
      return 1 / std::numbers::ln10;
    case MelLog::db:
      return (options.power == 2 ? 10 : 20) / std::numbers::ln10;
  }
  return 1;
}

template <typename T>
MelTransform<T>::MelTransform(const MelOptions& o)
    : twiddles(fft_twiddles<T>(o.n_fft)), power_eps(o.power == 1 ? static_cast<T>(o.magnitude_eps) : 0) {
  const std::vector<double> exact_window = mel_window(o);
  window.assign(exact_window.begin(), exact_window.end());
}

MelTables::MelTables(const MelOptions& o, int lanes)
    : options(o),
      overlap((o.n_fft - 1) / o.hop_length),
      kept(overlap / 4 * 4 + 4),
      transform(MelTransform<float>(o)) {
  if (o.precision == MelPrecision::exact) transform = MelTransform<double>(o);
  for (int i = 0; i < o.n_fft; ++i)
    offsets.push_back(i % o.hop_length * (kept + lanes) + kept - overlap + i / o.hop_length);

  const std::vector<std::int32_t> rows = rows_of_bins(o.n_fft);
  const std::vector<double> edges = mel_edges(o), bank = mel_filterbank(o);
  const int bins = o.n_fft / 2 + 1;
  const double gain = o.power == 1 ? 0.5 : 1;
  const auto weight = [&](int filter, int bin) {
    if (filter < 0 || filter >= o.n_mels) return 0.0F;
    return static_cast<float>(gain * bank[static_cast<std::size_t>(filter) * bins + bin]);
  };
  segment_taps.assign(o.n_mels + 1, 0);
  for (int k = 0; k < bins; ++k) {
    const double hz = static_cast<double>(k) * o.sample_rate / o.n_fft;
    const auto segment =
        static_cast<int>(std::upper_bound(edges.begin(), edges.end(), hz) - edges.begin()) - 1;
    if (segment < 0 || segment > o.n_mels) continue;
    taps.push_back({rows[k], weight(segment - 1, k), weight(segment, k)});
    ++segment_taps[segment];
  }

  log_scale = static_cast<float>(mel_log_scale(o));
  log_of_2 = static_cast<float>(mel_log_scale(o) * std::numbers::ln2);
  log_of_2_low = static_cast<float>(mel_log_scale(o) * std::numbers::ln2 - log_of_2);
  log_floor = static_cast<float>(mel_log_scale(o) * std::log(o.floor));
}

}  // namespace penstock
