// What the machine allows: measured beside the feed, so that its figures have a scale.
#pragma once
#include <cstdint>
#include <span>

#include "penstock/core/config.h"

namespace penstock::cli {

/// Rows per second that `threads` threads copy from memory into batches of `row_floats`, `valid_floats` of
/// each copied and the rest cleared: what a feed could reach if features cost nothing.
double memcpy_rows_per_second(std::int64_t row_floats, std::int64_t valid_floats, std::int64_t rows,
                              int threads);

/// The mel kernel alone, one core, on six seconds of noise: the least of some runs.
double mel_us_per_frame(const Config& config);

}  // namespace penstock::cli
