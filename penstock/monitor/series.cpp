#include "penstock/monitor/series.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock {
namespace {

constexpr std::size_t least_values = 12;
constexpr std::size_t most_values = 1 << 14;  // longer series are averaged down: 90 million products at most

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Means of `width` neighbours. Of white noise they are white noise again, which a moving average is not.
std::vector<double> blocks(std::span<const double> values, std::size_t width) {
  std::vector<double> out(values.size() / width);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = mean_of(values.subspan(i * width, width));
  return out;
}

/// Takes off the line that fits best, so that a trend is not taken for half a swing.
std::vector<double> without_trend(std::vector<double> values) {
  const double n = static_cast<double>(values.size()), middle = (n - 1) / 2, mean = mean_of(values);
  double product = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    product += (static_cast<double>(i) - middle) * (values[i] - mean);
  const double slope = product * 12 / (n * (n * n - 1));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] -= mean + slope * (static_cast<double>(i) - middle);
  return values;
}

/// r[k] for k up to two thirds of the series: twice the longest period. Empty when nothing varies.
std::vector<double> autocorrelation(std::span<const double> x) {
  const double energy = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  const double scale = std::abs(*std::ranges::max_element(x, {}, [](double v) { return std::abs(v); }));
  if (energy <= 0 || scale < 1e-12) return {};
  std::vector<double> r(x.size() * 2 / 3 + 1);
  for (std::size_t k = 0; k < r.size(); ++k)
    r[k] = std::inner_product(x.begin(), x.end() - static_cast<std::ptrdiff_t>(k),
                              x.begin() + static_cast<std::ptrdiff_t>(k), 0.0) /
           energy;
  return r;
}

/// What no lag of white noise exceeds in 99.5 of 100 series with so many values and so many lags looked at:
/// each is about normal with a variance of 1 / values.
double noise_limit(double values, double lags) {
  const double p = 0.005 / lags;
  const double t = std::sqrt(-2 * std::log(p));  // the upper quantile, from its asymptotic expansion
  return (t - (std::log(t) + 0.919) / t) / std::sqrt(values);
}

/// A short period that is not a whole number of samples has its sharpest peak at a multiple, which is: `peak`
/// may be a few periods. The lag nearest to one.
std::size_t whole_part(std::span<const double> r, std::size_t peak) {
  constexpr double least_share = 0.4;
  for (std::size_t parts = 5; parts > 1; --parts) {
    const double period = static_cast<double>(peak) / static_cast<double>(parts);
    if (period < 2) continue;
    const auto at = [&](double lag) {  // the higher of the two neighbours
      const auto k = static_cast<std::size_t>(lag);
      return std::max(r[k], r[k + 1]);
    };
    bool repeats = true;
    for (std::size_t m = 1; m < parts; ++m) {
      const double lag = period * static_cast<double>(m), half = lag - period / 2;
      const auto valley = static_cast<std::size_t>(std::lround(half));
      repeats = repeats && at(lag) >= least_share * r[peak] && r[valley] < at(lag) / 2;
    }
    if (repeats)
      return static_cast<std::size_t>(
          period + (r[static_cast<std::size_t>(period)] < r[static_cast<std::size_t>(period) + 1]));
  }
  return peak;
}

/// The first peak that is nearly as high as the highest one: behind it lie its multiples. 0: none above
/// `limit`.
std::size_t first_peak(std::span<const double> r, double limit) {
  constexpr double least_rise = 0.25, nearly = 0.8;
  std::size_t best = 0;
  const std::size_t longest = (r.size() - 1) / 2;
  std::vector<std::size_t> peaks;
  double lowest = r[0];
  for (std::size_t k = 1; k <= longest; ++k) {
    const bool peak = k > 1 && r[k] >= r[k - 1] && r[k] >= r[k + 1];
    // A trend's correlation falls slowly, with ripples on it: a peak stands over a valley.
    if (peak && r[k] > limit && r[k] - lowest > least_rise && lowest < r[k] / 2 && r[2 * k] > 0) {
      peaks.push_back(k);
      if (best == 0 || r[k] > r[best]) best = k;
    }
    lowest = std::min(lowest, r[k]);
  }
  for (const std::size_t k : peaks)
    if (r[k] >= nearly * r[best]) return whole_part(r, k);
  return 0;
}

/// The peak's centre of mass, down to half its height: where a period that varies has its mean.
double centre(std::span<const double> r, std::size_t peak) {
  double weight = 0, sum = 0;
  const auto add = [&](std::size_t k) {
    const double w = r[k] - r[peak] / 2;
    if (w <= 0) return false;
    weight += w, sum += w * static_cast<double>(k);
    return true;
  };
  add(peak);
  // As far to both sides: what lies before a short period's peak is cut off by the next valley.
  for (std::size_t d = 1; d < peak && peak + d < r.size(); ++d)
    if (r[peak - d] <= r[peak] / 2 || r[peak + d] <= r[peak] / 2 || !add(peak - d) || !add(peak + d)) break;
  return sum / weight;
}

}  // namespace

SeriesSummary summarise(std::vector<double> values) {
  SeriesSummary s{.count = values.size()};
  if (values.empty()) return s;
  std::ranges::sort(values);
  const double n = static_cast<double>(values.size());
  s.mean = mean_of(values);
  double squares = 0;
  for (const double v : values) squares += (v - s.mean) * (v - s.mean);
  s.deviation = std::sqrt(squares / n);
  s.cv = s.mean > 0 ? s.deviation / s.mean : 0;
  const auto quantile = [&](double q) { return values[static_cast<std::size_t>(std::ceil(q * n)) - 1]; };
  s.p50 = quantile(0.5), s.p95 = quantile(0.95), s.p99 = quantile(0.99), s.max = values.back();
  return s;
}

Oscillation find_oscillation(std::span<const double> values) {
  Oscillation found;
  std::size_t width = (values.size() + most_values - 1) / most_values;
  const double lags = static_cast<double>(values.size()) * 2 / 3;  // of all widths together
  // A period that varies blurs its peak over some lags; in wider blocks it is one again.
  for (; width > 0 && values.size() / width >= least_values; width *= 2) {
    const std::vector<double> x = without_trend(blocks(values, width));
    const std::vector<double> r = autocorrelation(x);
    if (r.empty()) break;
    const std::size_t k = first_peak(r, noise_limit(static_cast<double>(x.size()), lags));
    if (k == 0 || r[k] <= found.strength + 0.1) continue;
    found = {.period = centre(r, k) * static_cast<double>(width), .strength = r[k]};
  }
  return found;
}

}  // namespace penstock
