// A histogram of durations from 1 ns to hours in fixed memory: eight cells to each power of two, so within 9
// %.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace penstock {

/// Not thread-safe: one writer, who also reads.
class Histogram {
 public:
  void add(std::chrono::nanoseconds value);
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::chrono::nanoseconds total() const { return total_; }
  /// The value below which a share `q` (0..1) of all lies; 0 when there is none.
  [[nodiscard]] std::chrono::nanoseconds quantile(double q) const;

 private:
  static constexpr std::size_t cells_per_octave = 8, octaves = 44;
  std::array<std::uint64_t, cells_per_octave * octaves> cells_{};
  std::uint64_t count_ = 0;
  std::chrono::nanoseconds total_{0};
};

}  // namespace penstock
