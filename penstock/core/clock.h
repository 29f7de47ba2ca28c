// The clock that everything is timed with.
#pragma once
#include <chrono>

namespace penstock {

using Clock = std::chrono::steady_clock;

inline double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }
inline double seconds_since(Clock::time_point start) { return seconds(Clock::now() - start); }

}  // namespace penstock
