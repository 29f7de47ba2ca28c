// What tune measures: filling, waking, copying, and what then happens.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "penstock/core/clock.h"
#include "penstock/feed/device_feed.h"
#include "penstock/feed/store.h"
#include "penstock/feed/tune.h"
#include "penstock/monitor/step_clock.h"

namespace penstock {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The packs are complete, so that they are not looked through again before each run.
Config with_complete_packs(Config config) {
  if (config.preprocessing_mode == PreprocessingMode::precompute)
    config.preprocessing_mode = PreprocessingMode::automatic;
  return config;
}

}  // namespace

std::vector<int> worker_counts(int most) {
  std::vector<int> counts;
  for (int w = 1; w < most; w *= 2) counts.push_back(w);
  counts.push_back(most);
  return counts;
}

bool cache_is_complete(const Config& config, const Dataset& dataset) {
  for (const StoredArray& array : stored_arrays(config, dataset)) {
    const StoreReader store = open_store(array, dataset, {.mapped = false});
    for (std::size_t m = 0; m < dataset.members.size(); ++m) {
      const auto member = static_cast<std::int64_t>(m);
      if (array.want(member).rows >= 0 && !store.record(member)) return false;
    }
  }
  return true;
}

namespace {

// While costs are measured, a consumer computes for this share of a batch's time: workers rest little, and
// the consumer disturbs them as it will later, when it sleeps, wakes up on one of their CPUs and spins.
constexpr double paced = 0.6;

/// One turn of a feed that is slower than its consumer.
struct Turn {
  int depth = 0;
  double pad_share = 0;  // of the workers' time
  double cpu_per_frame = 0;
  std::vector<BatchWork> work;
  std::vector<double> starts, waits;  // of each step: when it began, and how long next() took before it
  [[nodiscard]] double seconds() const { return starts.back() - starts.front(); }
};

Turn take_turn(const Config& mode, int workers, std::size_t number, const MeasureOptions& options) {
  Config config = with_complete_packs(mode);
  config.seed += number + 1;  // other files than the last turn's, which are in memory now
  config.num_workers = workers;
  config.autotune = false;
  if (options.step_seconds == 0) {
    // Enough that no worker ever waits for a slot, and no more memory than that.
    config.prefetch_buffer_size = std::max(4, 2 + 2 * workers / std::max(1, config.batch_size));
    if (config.shapes == 1 && !config.pad_to_fixed_length)
      config.shapes = 4;  // so that batches differ in length
  }
  Feed feed(config);
  const std::int64_t warm_up = tune_warm_up(config.prefetch_buffer_size);
  Batch batch;  // the last one, which is let go of beside the next step, as in measure_au()
  for (std::int64_t i = 0; i < warm_up; ++i) batch = feed.next();
  Turn turn{.depth = config.prefetch_buffer_size};
  const auto pad_seconds = [&] {
    const FeedStats s = feed.stats();
    return std::pair(s.stage_seconds[static_cast<std::size_t>(Stage::pad)],
                     std::accumulate(s.stage_seconds.begin(), s.stage_seconds.end(), 0.0));
  };
  constexpr std::int64_t least = 24, probing = 12;
  const auto probe = Clock::now();
  for (std::int64_t i = 0; i < probing; ++i) batch = feed.next();
  const double batch_seconds = seconds_since(probe) / probing;
  const auto most = static_cast<std::int64_t>(2 * options.seconds / batch_seconds) + least;
  const std::int64_t before = warm_up + probing;
  turn.work = planned_work(feed.plan(), feed.dataset().lengths, before + most, turn.depth + 1, 1);
  turn.work.erase(turn.work.begin(), turn.work.begin() + before);
  double mean_step = 0;
  for (const BatchWork& w : turn.work) mean_step += w.step_seconds / static_cast<double>(most);
  double step_seconds = paced * batch_seconds / mean_step;  // of the largest shape
  if (options.step_seconds > 0) step_seconds = std::min(step_seconds, options.step_seconds);
  for (BatchWork& w : turn.work) w.step_seconds *= step_seconds;

  const auto [pad_before, all_before] = pad_seconds();
  const double cpu_before = feed.stats().worker_cpu.running;
  StepClock consumer(options.check);
  const auto start = Clock::now();
  for (std::int64_t n = 0; n < most && (seconds_since(start) < options.seconds || n < least); ++n) {
    const double asked = seconds_since(start);
    Batch next = feed.next();
    turn.starts.push_back(seconds_since(start));
    turn.waits.push_back(turn.starts.back() - asked);
    consumer.start(std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(turn.work[static_cast<std::size_t>(n)].step_seconds)));
    batch = std::move(next);
    consumer.finish();
  }
  const auto [pad_after, all_after] = pad_seconds();
  turn.pad_share = (pad_after - pad_before) / std::max(1e-9, all_after - all_before);
  turn.work.resize(turn.starts.size());
  double frames = 0;
  for (const BatchWork& w : turn.work) frames += static_cast<double>(w.valid_frames);
  turn.cpu_per_frame = (feed.stats().worker_cpu.running - cpu_before) / std::max(1.0, frames);
  return turn;
}

struct Amounts {
  double rows = 0, frames = 0, cleared = 0;
};

Amounts amounts(const BatchWork& batch) {
  Amounts a;
  for (const RowWork& r : batch.rows) {
    a.rows += r.frames > 0;
    a.frames += r.frames;
    a.cleared += r.cleared;
  }
  return a;
}

/// How many frames' time a row costs beside its frames: the line through the times of the batches that one
/// worker filled without a rest, between two for which the consumer waited. The slowest tenth does not count:
/// something else has disturbed it.
double frames_of_a_row(std::span<const Turn> turns, const Machine& machine) {
  struct Sample {
    double seconds, frames, rows;
  };
  std::vector<Sample> samples;
  for (const Turn& turn : turns)
    for (std::size_t i = 1; i < turn.work.size(); ++i)
      if (const Amounts a = amounts(turn.work[i]);
          a.rows > 0 && std::min(turn.waits[i - 1], turn.waits[i]) > machine.wake_seconds)
        samples.push_back({turn.starts[i] - turn.starts[i - 1], a.frames, a.rows});
  if (samples.empty()) return 0;
  std::ranges::sort(samples, {}, [](const Sample& s) { return s.seconds / s.frames; });
  samples.resize(std::max<std::size_t>(1, samples.size() * 9 / 10));
  double ff = 0, fr = 0, rr = 0, sf = 0, sr = 0;  // least squares: seconds = x * frames + y * rows
  for (const Sample& s : samples) {
    ff += s.frames * s.frames, fr += s.frames * s.rows, rr += s.rows * s.rows;
    sf += s.seconds * s.frames, sr += s.seconds * s.rows;
  }
  const double determinant = ff * rr - fr * fr;
  const double x = (sf * rr - sr * fr) / determinant, y = (sr * ff - sf * fr) / determinant;
  // Batches of nearly equal length say little about it; a row's own cost is never the larger half.
  if (!(determinant > 1e-6 * ff * rr) || !(x > 0)) return 0;
  return std::clamp(y / x, 0.0, fr / rr);
}

double pad_share(std::span<const Turn> turns) {
  std::vector<double> shares;
  for (const Turn& t : turns) shares.push_back(t.pad_share);
  return std::clamp(median(shares), 0.0, 0.9);
}

/// The slowdown of the last point of `cost` with which the simulation takes as long as the turn did: what
/// workers rest and wake up in between is no cost of filling.
double fitted_slowdown(const Turn& turn, ModeCost cost, const Machine& machine) {
  double& slowdown = cost.points.back().slowdown;
  slowdown = 1;
  for (int i = 0; i < 8; ++i) {  // the time is nearly proportional to it: each comes much closer
    const std::vector<double> starts =
        step_starts(turn.work, cost, {.workers = cost.points.back().workers, .depth = turn.depth}, machine);
    slowdown *= turn.seconds() / (starts.back() - starts.front());
  }
  return slowdown;
}

/// `turns[i]` are those with `workers[i]`.
ModeCost fitted(PreprocessingMode mode, std::span<const int> workers,
                std::span<const std::vector<Turn>> turns, const Machine& machine) {
  ModeCost result{.mode = mode};
  const double row = frames_of_a_row(turns.front(), machine), padding = pad_share(turns.front());
  std::vector<double> frame, cleared;
  for (const Turn& turn : turns.front()) {
    Amounts sum;
    for (const BatchWork& batch : turn.work) {
      const Amounts a = amounts(batch);
      sum.rows += a.rows, sum.frames += a.frames, sum.cleared += a.cleared;
    }
    frame.push_back(turn.seconds() * (1 - padding) / (sum.frames + row * sum.rows));
    cleared.push_back(turn.seconds() * padding / std::max(1.0, sum.cleared));
  }
  result.cost = {.frame = median(frame), .row = median(frame) * row, .cleared = median(cleared)};
  for (std::size_t i = 0; i < workers.size(); ++i) {
    result.points.push_back({.workers = workers[i]});
    std::vector<double> slowdowns, cpu;
    double needed = 0, rows = 0;
    for (const Turn& turn : turns[i]) {
      slowdowns.push_back(fitted_slowdown(turn, result, machine));
      cpu.push_back(turn.cpu_per_frame);
      for (const BatchWork& batch : turn.work)
        for (const RowWork& r : batch.rows) needed += result.cost.of(r), rows += r.frames > 0;
    }
    double slowdown = median(slowdowns);
    if (i == 0) {  // by definition 1: the rest is the cost itself
      for (double* seconds : {&result.cost.frame, &result.cost.row, &result.cost.cleared})
        *seconds *= slowdown;
      needed *= std::exchange(slowdown, 1.0);
    }
    slowdown = std::max(1.0, slowdown);
    result.points.back().slowdown = slowdown;
    result.points.back().cpu_per_frame = median(cpu);
    result.points.back().samples_per_second = rows * workers[i] / (needed * slowdown);
  }
  return result;
}

}  // namespace

std::vector<ModeCost> measure_fill_costs(std::span<const Config> modes, std::span<const int> workers,
                                         const MeasureOptions& options) {
  std::vector<std::vector<std::vector<Turn>>> turns(modes.size(),
                                                    std::vector<std::vector<Turn>>(workers.size()));
  const std::size_t total = static_cast<std::size_t>(options.repeats) * modes.size() * workers.size();
  std::size_t done = 0;
  for (int repeat = 0; repeat < options.repeats; ++repeat)
    for (std::size_t w = 0; w < workers.size(); ++w)
      for (std::size_t m = 0; m < modes.size(); ++m) {
        if (options.progress) options.progress(done, total);
        turns[m][w].push_back(take_turn(modes[m], workers[w], done++, options));
      }
  std::vector<ModeCost> costs;
  for (std::size_t m = 0; m < modes.size(); ++m)
    costs.push_back(fitted(modes[m].preprocessing_mode, workers, turns[m], options.machine));
  return costs;
}

namespace {

/// What it takes to wake a worker that has slept for a while.
void measure_waking(Machine& machine) {
  constexpr int rounds = 60;
  constexpr std::chrono::microseconds rest{500};  // its CPU has gone to sleep too
  std::atomic<int> called{0};
  std::vector<Clock::time_point> calls, awake(rounds);
  std::vector<double> notify, wake;
  {
    const std::jthread worker([&] {
      give_way();
      for (int i = 0; i < rounds; ++i) {
        called.wait(i);
        awake[static_cast<std::size_t>(i)] = Clock::now();
      }
    });
    for (int i = 0; i < rounds; ++i) {
      std::this_thread::sleep_for(rest);
      calls.push_back(Clock::now());
      called.fetch_add(1);
      called.notify_one();
      notify.push_back(seconds_since(calls.back()));
    }
  }
  for (std::size_t i = 0; i < rounds; ++i)
    wake.push_back(std::chrono::duration<double>(awake[i] - calls[i]).count());
  machine.notify_seconds = median(notify);
  machine.wake_seconds = median(wake);
}

}  // namespace

Machine machine_for(const Config& config) {
  Machine machine;
  measure_waking(machine);
  if (config.device == "cpu") return machine;
  if (config.device_prefetch && config.overlap) {
    machine.device_batches =
        config.device_buffer_size;  // one is the consumer's, and one is in the stage's hands
    return machine;
  }
  Feed feed(with_complete_packs(config));
  const std::shared_ptr<Device> device = open_device(config.device);
  const Batch batch = feed.next();
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const auto start = Clock::now();
    device->copy(batch);
    times.push_back(seconds_since(start));
  }
  machine.copy_frame = median(times) / (static_cast<double>(batch.shape.rows) * batch.shape.frames);
  return machine;
}

MeasuredAu measure_au(const Config& config, double step_seconds, std::int64_t steps, std::int64_t warm_up,
                      const std::function<void()>& check) {
  Config fixed = with_complete_packs(config);
  fixed.autotune = false;
  DeviceFeed feed(fixed);
  const std::vector<BatchWork> work = planned_work(feed.feed().plan(), feed.feed().dataset().lengths, steps,
                                                   config.prefetch_buffer_size + 1, step_seconds);
  StepClock warming(check), clock(check);
  double valid = 0, cpu_before = 0;
  DeviceBatch batch;
  for (std::int64_t n = 0; n < steps; ++n) {
    if (n == warm_up + 1) cpu_before = feed.feed().stats().worker_cpu.running;
    DeviceBatch next = feed.next();
    next.wait();
    const BatchWork& w = work[static_cast<std::size_t>(n)];
    StepClock& device = n < warm_up ? warming : clock;
    device.start(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(w.step_seconds)));
    batch = std::move(next);  // the last one is let go of beside the step
    device.finish();
    if (n > warm_up) valid += static_cast<double>(w.valid_frames);
  }
  const double cpu = feed.feed().stats().worker_cpu.running - cpu_before;
  return {.au = clock.au(),
          .frames_per_second = valid / clock.elapsed().count(),
          .cpu_per_frame = cpu / std::max(1.0, valid),
          .steps = clock.steps()};
}

}  // namespace penstock
