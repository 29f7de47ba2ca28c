// How busy a feed would keep a device: what filling costs on this machine is measured once, and any setting
// is then predicted by a small simulation over the plan's own batches. docs/decisions/0014 has the reasons.
//
//   costs = measure_fill_costs({live, cached}, {1, 2}, {});
//   work  = planned_work(plan, lengths, steps, depth, 0.010);
//   predict(work, costs[0], {.workers = 2, .depth = 4}).au
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "penstock/core/config.h"
#include "penstock/core/threads.h"
#include "penstock/feed/dataset.h"
#include "penstock/monitor/step_clock.h"
#include "penstock/plan/plan.h"

namespace penstock {

// ---- the work ----

/// What a row asks of a worker.
struct RowWork {
  std::int32_t frames = 0;   ///< of its utterance; 0 for an empty row
  std::int32_t cleared = 0;  ///< frames that the buffer's last batch left behind it
};

struct BatchWork {
  double step_seconds = 0;        ///< that the device takes for it
  std::int64_t valid_frames = 0;  ///< of all rows
  std::int64_t frames = 0;        ///< rows x frames of its shape
  std::vector<RowWork> rows;
};

/// The first `steps` batches of a plan, in so many buffers that go round: those of the ring, and one that the
/// consumer holds while it asks for the next. A batch of the largest shape takes the device `step_seconds`,
/// another as much less as it has fewer padded frames.
std::vector<BatchWork> planned_work(const Plan& plan, std::span<const Lengths> lengths, std::int64_t steps,
                                    int buffers, double step_seconds);

/// Shapes and plan of a configuration, as its feed makes them.
Plan planned(const Dataset& dataset, const Config& config);

// ---- what filling costs ----

/// Seconds that a worker needs, as long as it is the only one.
struct FillCost {
  double frame = 0, row = 0, cleared = 0;  ///< per valid frame, per row, per frame that is cleared
  [[nodiscard]] double of(const RowWork& r) const {
    return r.frames == 0 ? r.cleared * cleared : row + r.frames * frame + r.cleared * cleared;
  }
};

/// One way of filling on this machine.
struct ModeCost {
  struct Point {
    int workers = 0;
    double slowdown = 1;  ///< how many times longer a row takes while so many work at once
    double samples_per_second = 0;
    double cpu_per_frame = 0;  ///< seconds that workers were on a CPU: how fast the machine was just then
  };
  PreprocessingMode mode = PreprocessingMode::runtime;
  FillCost cost;
  std::vector<Point> points;  ///< by workers, ascending; the first is 1 worker

  /// Linear between the points; beyond the last one more workers bring nothing.
  [[nodiscard]] double slowdown(double workers) const;
};

/// What the model needs beside the work and its cost. machine_for() measures waking; the defaults are those
/// of the machine in docs/decisions/0014.
struct Machine {
  int cpus = available_cpus();
  double next_seconds = 2e-6;     ///< of next(), with the batch ready and nobody to wake
  double notify_seconds = 10e-6;  ///< that waking a thread takes from the one that does it
  double wake_seconds = 35e-6;    ///< until it runs, on a CPU that was idle
  /// At the end of each step, for which the consumer wants a CPU.
  double spin_seconds = std::chrono::duration<double>(StepClock::spin).count();
  double copy_frame = 0;   ///< seconds that the step waits for the copy, per padded frame
  int device_batches = 0;  ///< that the device's stage keeps beyond the ring
};

struct MeasureOptions {
  double seconds = 0.7;  ///< of each turn, once the feed is going
  /// With this step (of the largest shape): in the configured ring and shapes, whose memory may fit into the
  /// CPU's caches or not. 0: for any step, ring and shapes.
  double step_seconds = 0;
  Machine machine = {};  ///< on which the turns are taken
  int repeats = 3;       ///< turns of each kind, interleaved; their median counts
  std::function<void(std::size_t done, std::size_t total)> progress;  ///< before each turn; may throw
  std::function<void()> check;                                        ///< between batches; may throw
};

/// Runs feeds that are slower than their consumer: each of `modes` (which differ in preprocessing_mode) with
/// each of `workers` (ascending, from 1). With `precompute` the cache must be complete. Throws what a feed
/// throws.
std::vector<ModeCost> measure_fill_costs(std::span<const Config> modes, std::span<const int> workers,
                                         const MeasureOptions& options);

/// 1, 2, 4, ... and `most`.
std::vector<int> worker_counts(int most);

/// Every array of every member can be read from the cache: nothing would be computed.
bool cache_is_complete(const Config& config, const Dataset& dataset);

// ---- the prediction ----

/// This machine with the configured device. Waking is measured, and what is not hidden of copies.
Machine machine_for(const Config& config);

struct RingSetting {
  int workers = 1;
  int depth = 2;             ///< prefetch_buffer_size
  std::int64_t warm_up = 0;  ///< batches before counting begins
};

struct Prediction {
  double au = 0;                 ///< as StepClock has it
  double frames_per_second = 0;  ///< valid ones: what training gets out of it
  double padding = 0;            ///< share of the frames
  double seconds = 0;            ///< of the steps that count
};

/// When each step begins: the ring of feed.cpp, followed row by row from its start.
std::vector<double> step_starts(std::span<const BatchWork> work, const ModeCost& cost,
                                const RingSetting& setting, const Machine& machine = {});

/// What StepClock would say of these steps. At least two batches must be left to count.
Prediction predict(std::span<const BatchWork> work, const ModeCost& cost, const RingSetting& setting,
                   const Machine& machine = {});

struct MeasuredAu {
  double au = 0, frames_per_second = 0;
  double cpu_per_frame = 0;  ///< as in ModeCost: another than there means that the machine's speed changed
  std::int64_t steps = 0;
};

/// The truth: a feed of `config` (its workers and depth as given) and an emulated device, over the same
/// batches as planned_work: `steps` of them, of which the first `warm_up` do not count. With `precompute` the
/// cache must be complete.
MeasuredAu measure_au(const Config& config, double step_seconds, std::int64_t steps, std::int64_t warm_up,
                      const std::function<void()>& check = {});

// ---- the search ----

struct TuneSetting {
  PreprocessingMode mode = PreprocessingMode::runtime;
  int workers = 1, depth = 2;
  std::int32_t shapes = 4;
  bool operator==(const TuneSetting&) const = default;
};

struct TuneLine {
  TuneSetting setting;
  Prediction predicted;
};

/// What may be varied.
struct TuneChoices {
  std::vector<int> workers, depths;
  std::vector<std::int32_t> shapes;
};

/// Steps that predictions and measurements leave out, so that every buffer has been used.
constexpr std::int64_t tune_warm_up(int depth) { return 2 * depth + 2; }

/// One way of filling: its configuration, dataset and measured cost.
struct TuneMode {
  Config config;
  const Dataset* dataset = nullptr;
  ModeCost cost;
};

/// Every combination, predicted. `steps` count in each.
std::vector<TuneLine> evaluate(std::span<const TuneMode> modes, const TuneChoices& choices,
                               double step_seconds, std::int64_t steps, const Machine& machine = {});

/// The least that is as good as the best: the fewest shapes with 98 % of the useful frames that a device
/// which never waits gets in a second (AU alone would favour padding), and with these the fewest workers,
/// then the least depth from 4 on (a smaller ring has no room for the hiccups that a short measurement does
/// not see), then cached before live, whose AU is within 0.01 of the best. `lines` must not be empty.
TuneLine recommended(std::span<const TuneLine> lines);

}  // namespace penstock
