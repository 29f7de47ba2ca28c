// Random tests run for seconds; with PENSTOCK_LONG set (`./run prove properties`) for minutes.
#pragma once
#include <cstdlib>

namespace penstock {

/// How many random cases: `quick`, or `many` in a long run.
inline int cases(int quick, int many) { return std::getenv("PENSTOCK_LONG") != nullptr ? many : quick; }

}  // namespace penstock
