// A stream of random numbers for one purpose of one clip. std:: distributions differ between libraries; these
// do not.
#pragma once
#include <cstdint>

#include "penstock/core/random.h"

namespace penstock {

class Draws {
 public:
  explicit Draws(std::uint64_t key) : key_(key) {}

  std::uint64_t bits() { return mix(key_, count_++); }
  /// From [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// From [0, n), n below 2^32.
  std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>(((bits() >> 32) * n) >> 32); }

 private:
  std::uint64_t key_;
  std::uint64_t count_ = 0;
};

}  // namespace penstock
