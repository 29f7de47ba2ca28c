// A keyed permutation of [0, n), one element at a time: no table, no state.
#pragma once
#include <cstdint>

namespace penstock {

/// The image of `i` (below `n`) under the permutation that `key` names. O(1) expected, the same on every
/// machine.
std::uint64_t permute(std::uint64_t i, std::uint64_t n, std::uint64_t key);

}  // namespace penstock
