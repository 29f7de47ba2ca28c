// Datasets to try the plan on: lengths only.
#pragma once
#include <algorithm>
#include <random>
#include <vector>

#include "penstock/plan/shapes.h"

namespace penstock {

inline std::int32_t random_between(std::mt19937_64& random, std::int32_t first, std::int32_t last) {
  return std::uniform_int_distribution<std::int32_t>(first, last)(random);
}

/// `count` utterances of up to `tokens` and `frames`. Each dataset has its own tie between the two, from none
/// to close: speech lies in between.
inline std::vector<Lengths> random_lengths(std::mt19937_64& random, int count, std::int32_t tokens,
                                           std::int32_t frames) {
  const double tie = std::uniform_real_distribution<double>(0, 1)(random);
  std::uniform_real_distribution<double> part(0, 1);
  std::vector<Lengths> lengths;
  for (int i = 0; i < count; ++i) {
    const double size = part(random) * part(random);
    const double text = tie * size + (1 - tie) * part(random);
    lengths.push_back({1 + static_cast<std::int32_t>(text * (tokens - 1)),
                       1 + static_cast<std::int32_t>(size * (frames - 1))});
  }
  return lengths;
}

}  // namespace penstock
