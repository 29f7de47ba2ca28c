#include "penstock/plan/permutation.h"

#include <bit>

#include "penstock/core/random.h"

namespace penstock {

// A Feistel network over the fewest bits that cover n, in two halves that differ by one bit at most. A value
// that lands outside [0, n) is sent through again until it lands inside; as n is more than half of the
// network's range, that takes two turns on average at most.
std::uint64_t permute(std::uint64_t i, std::uint64_t n, std::uint64_t key) {
  if (n < 2) return 0;
  const int bits = static_cast<int>(std::bit_width(n - 1));
  const int low_bits = (bits + 1) / 2;
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits) - 1;
  const std::uint64_t high_mask = (std::uint64_t{1} << (bits - low_bits)) - 1;
  // Halves of a few bits say little about each other, so they need many rounds before every order is equally
  // likely.
  const int rounds = bits <= 7 ? 12 : 3;
  constexpr std::uint64_t key_stride = 0xd1b54a32d192ed03u;
  do {
    std::uint64_t high = i >> low_bits;
    std::uint64_t low = i & low_mask;
    std::uint64_t round_key = key;
    for (int round = 0; round < rounds; ++round) {
      high ^= mix(round_key ^ low) & high_mask;
      round_key += key_stride;
      low ^= mix(round_key ^ high) & low_mask;
      round_key += key_stride;
    }
    i = high << low_bits | low;
  } while (i >= n);
  return i;
}

}  // namespace penstock
