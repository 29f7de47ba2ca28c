// Hashes and keyed permutations: the same numbers on every machine, for ever. Order and splits depend on
// them.
#pragma once
#include <cstdint>
#include <string_view>

namespace penstock {

/// A bijection of 64-bit words in which every input bit moves every output bit (the finaliser of SplitMix64).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Two words into one, order mattering.
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return mix(mix(a) ^ b); }

/// FNV-1a, mixed once more so that every bit is good.
constexpr std::uint64_t hash_text(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix(h);
}

}  // namespace penstock
