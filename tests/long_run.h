// Random tests run for seconds; with PENSTOCK_LONG set (`./run prove properties`) for minutes, and under
// sanitizers, which run them all too, those that are slow there for a fifth of their cases (`./run prove
// optimised` has the others).
#pragma once
#include <cstdlib>

namespace penstock {

/// How many random cases: `quick`, or `many` in a long run.
inline int cases(int quick, int many) { return std::getenv("PENSTOCK_LONG") != nullptr ? many : quick; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// The same for a test that is slow under sanitizers.
inline int slow_cases(int quick, int many) { return cases(sanitized ? (quick + 4) / 5 : quick, many); }

}  // namespace penstock
