// One measurement of the feed, as `bench` repeats it.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/bench_limits.h"
#include "cli/bench_log.h"
#include "penstock/core/config.h"

namespace penstock::cli {

struct BenchWork {
  std::int64_t batches = 300;
  double step_ms = 0;  ///< of an emulated device; 0: none, as fast as it goes
  std::shared_ptr<Trace> trace;
};

/// A new feed, some batches to get going, then those that count. `copies` becomes what a feed without
/// features would have to copy.
nlohmann::json measure(const Config& config, const BenchWork& work, CopyWork& copies,
                       BenchLog* log = nullptr);

/// The median of every fraction, place by place; whole numbers and all else are the first run's.
nlohmann::json median_of(const std::vector<nlohmann::json>& runs);

}  // namespace penstock::cli
