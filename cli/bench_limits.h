// What the machine allows: measured beside the feed, so that its figures have a scale.
#pragma once
#include <cstdint>
#include <span>

#include "penstock/core/config.h"

namespace penstock::cli {

/// Rows per second that `threads` threads copy from memory into batches of rows of `row_floats`: clips of the
/// given sizes in random order (the first GiB of them), what is left of each row cleared. What a feed could
/// reach if features cost nothing.
double memcpy_rows_per_second(std::int64_t row_floats, std::span<const std::int64_t> clip_floats,
                              std::int64_t rows, int threads);

/// The mel kernel alone, one core, on six seconds of noise: the least of some runs.
double mel_us_per_frame(const Config& config);

}  // namespace penstock::cli
