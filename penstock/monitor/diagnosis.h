// Why a run's device waits, from its log: records in, judgement out. Nothing is measured or printed here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/monitor/run_reader.h"
#include "penstock/monitor/series.h"

namespace penstock {

/// How a batch's time is called.
enum class Band : std::uint8_t { good, moderate, slow };
std::string_view band_name(Band band);
/// `step_ms` 0: good under 100 ms, slow over 500. With a step time it is the wait that counts: good while it
/// is at most a twentieth of the step, slow when it is more than half of it.
Band band_of(double batch_ms, double step_ms);

/// What one stage of the feed costs.
struct StageDemand {
  std::string name;
  double us_per_sample = 0;
  double share = 0;  ///< of all stages
};

/// Something that keeps the device from computing, and what to do about it.
struct RunFinding {
  std::string cause;    ///< data | retraces | checkpoint | validation | padding | device
  double share = 0;     ///< of the run's time that it takes
  std::string what;     ///< one sentence
  std::string advice;   ///< one sentence
  std::string lines;    ///< to paste: of the configuration, of a shell or of Python; may be empty
  double au_after = 0;  ///< predicted, once it is done; 0: not predicted
};

/// Steps that are much slower than the others.
struct SlowSteps {
  std::size_t count = 0;
  double ms = 0;            ///< mean
  Oscillation oscillation;  ///< of the batch times: a period in steps
  std::string cause;  ///< checkpoint, validation, epoch, retrace, data, shapes or step; empty: nothing slow
  double explained = 0;  ///< the share of the time lost in slow steps that coincides with the cause
};

struct RunDiagnosis {
  std::size_t steps = 0;            ///< judged ones: the first after every start is apart
  double cold_ms = 0;               ///< the first step of the run, its wait included
  SeriesSummary batch, step, data;  ///< ms; batch = step + data
  double au = 0;                    ///< computing / (computing + waiting for data); 0: no step was timed
  double outside = 0;               ///< share of the time between steps: checkpoints, validation, logging
  Band band = Band::good;
  bool swings = false;  ///< CV over 50 %, or a period
  SlowSteps slow;
  bool has_feed = false;            ///< its batches come from our feed: settings help
  std::vector<StageDemand> stages;  ///< the costliest first; empty: not logged
  double samples_per_second_needed = 0, samples_per_second_possible = 0;  ///< 0: not known
  int workers = 0, cores = 0;                                             ///< 0: not logged
  std::int64_t retraces = 0;
  std::vector<std::pair<std::string, std::int64_t>> retrace_causes;
  double padding = not_logged, cache_hits = not_logged;  ///< shares
  double gpu_busy = not_logged, cpu_busy = not_logged;   ///< means
  std::int64_t skipped = 0;
  std::vector<RunFinding> findings;  ///< what costs most comes first; empty: healthy
  [[nodiscard]] bool healthy() const { return steps > 0 && findings.empty(); }
};

RunDiagnosis diagnose(const RunRecords& run);

}  // namespace penstock
