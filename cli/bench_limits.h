// What the machine allows: measured beside the feed, so that its figures have a scale.
#pragma once
#include <cstdint>
#include <vector>

#include "penstock/core/config.h"

namespace penstock::cli {

/// What a feed without any features would have to copy.
struct CopyWork {
  std::int64_t row_floats = 0, rows = 0;  ///< of the largest batch
  std::vector<std::int64_t> clip_floats;  ///< none above row_floats
};

/// Rows per second that `threads` threads copy from memory into batches of such rows: the clips in random
/// order (the first GiB of them), what is left of each row cleared. What a feed could reach if features cost
/// nothing.
double memcpy_rows_per_second(const CopyWork& work, int threads);

/// The mel kernel alone, one core, on six seconds of noise: the least of some runs.
double mel_us_per_frame(const Config& config);

}  // namespace penstock::cli
