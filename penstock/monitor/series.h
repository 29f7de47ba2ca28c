// What a series of times or shares looks like: its spread, and whether it swings.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace penstock {

struct SeriesSummary {
  std::size_t count = 0;
  double mean = 0, deviation = 0;
  double cv = 0;  ///< deviation / mean
  double p50 = 0, p95 = 0, p99 = 0, max = 0;
};

/// All 0 for an empty series.
SeriesSummary summarise(std::vector<double> values);

struct Oscillation {
  double period = 0;    ///< in samples; 0: none
  double strength = 0;  ///< 0..1: the correlation of the series with itself, one period later
  explicit operator bool() const { return period > 0; }
};

/// The period of evenly spaced values, by autocorrelation: from 2 samples to a third of the series. Periods
/// that vary a little are found by their mean. A series without a period is taken for one that has it in less
/// than 1 of 100 cases; a trend or a single jump is none.
Oscillation find_oscillation(std::span<const double> values);

}  // namespace penstock
