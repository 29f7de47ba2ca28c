#include "penstock/monitor/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock {
namespace {

/// Values below 8 ns have a cell each; above, the three bits behind the leading one choose the cell.
std::size_t cell_of(std::uint64_t ns) {
  if (ns < 8) return ns;
  const auto octave = static_cast<std::size_t>(std::bit_width(ns)) - 4;
  return (octave + 1) * 8 + ((ns >> octave) & 7);
}

std::uint64_t upper_edge(std::size_t cell) {
  if (cell < 8) return cell;
  const std::size_t octave = cell / 8 - 1;
  return ((8 + cell % 8 + 1) << octave) - 1;
}

}  // namespace

void Histogram::add(std::chrono::nanoseconds value) {
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(0, value.count()));
  ++cells_[std::min(cell_of(ns), cells_.size() - 1)];
  ++count_;
  total_ += value;
}

std::chrono::nanoseconds Histogram::quantile(double q) const {
  if (count_ == 0) return std::chrono::nanoseconds{0};
  const auto rank =
      std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_))));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < cells_.size(); ++i)
    if ((seen += cells_[i]) >= rank) return std::chrono::nanoseconds{upper_edge(i)};
  return total_;
}

}  // namespace penstock
