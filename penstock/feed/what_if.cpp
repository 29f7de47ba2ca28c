#include "penstock/feed/what_if.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "penstock/core/threads.h"
#include "penstock/monitor/series.h"

namespace penstock {
namespace {

constexpr double others_noticed = 0.15;  // CPUs that other processes use

template <typename Get>
std::vector<double> each(const std::vector<ObservedBatch>& batches, const Get& get) {
  std::vector<double> values;
  for (const ObservedBatch& b : batches) values.push_back(std::invoke(get, b));
  return values;
}

template <typename Get>
double mean(const std::vector<ObservedBatch>& batches, const Get& get) {
  return summarise(each(batches, get)).mean;
}

/// Batches for which the consumer waited far longer than for most: rare ones, or it is not a stall but the
/// rule.
std::vector<bool> stalled(const Observation& seen) {
  constexpr double rare = 0.15, least = 5e-3;
  const double usual = summarise(each(seen.batches, &ObservedBatch::data)).p50;
  const double cycle = summarise(each(seen.batches, &ObservedBatch::elapsed)).p50;
  std::vector<bool> is(seen.batches.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < is.size(); ++i) {
    is[i] = seen.batches[i].data - usual > std::max(least, 1.5 * cycle);
    count += is[i];
  }
  if (static_cast<double>(count) > rare * static_cast<double>(is.size())) is.assign(is.size(), false);
  return is;
}

/// What the device's side takes for a batch.
double consumer_cycle(const Demand& d, bool overlapped) {
  return overlapped ? std::max(d.step + d.compile, d.copy) : d.step + d.compile + d.copy_wait;
}

/// The least that a batch can take, by its largest demand.
double bound(const Demand& d, bool overlapped) { return std::max(consumer_cycle(d, overlapped), d.fill); }

/// What is lost to unevenness beyond the bound shrinks with the filling that is uneven.
double cycle_of(const Demand& without, const Demand& d, bool overlapped) {
  const double shrunk = d.fill > 0 ? std::min(1.0, without.fill / d.fill) : 1;
  const double uneven = std::max(0.0, d.cycle - bound(d, overlapped) - d.stall);
  return bound(without, overlapped) + uneven * shrunk + without.stall;
}

/// How much of a row's time goes away with its waiting for CPUs that others had.
double share_of_others(const Demand& d, const Observation& seen) {
  const double row = d.row_running + d.row_ready + d.row_asleep;
  if (seen.other_cpus < others_noticed || row <= 0) return 0;
  const double own = std::max(0, seen.workers - seen.cpus) * d.row_running / row;  // waits for each other
  return d.row_ready / row * seen.other_cpus / (seen.other_cpus + own);
}

// Whoever is interrupted while it computes finds its caches cold: 1.3 to 1.6 times as long as the kernel's
// weights say was measured. Cached rows were no slower than the weights say.
constexpr double cold_caches = 1.4, no_cold_caches = 1;

/// How many times as long a stage takes beside the others: by the kernel's weights, of which each step of
/// nice is a quarter, and the workers have the least.
double stretch_by_others(const Observation& seen, double beyond_weights) {
  if (seen.other_cpus < others_noticed) return 1;
  return 1 + beyond_weights * seen.other_cpus / seen.cpus * std::pow(1.25, lowest_nice - seen.busiest.nice);
}

/// What all workers slept, in seconds.
double asleep(const Observation& seen) {
  return std::max(0.0, seen.workers * seen.seconds - seen.worker_cpu.running - seen.worker_cpu.ready);
}

/// Whoever gets no CPU stands still; workers that have something to do and sleep stand still for another
/// reason.
bool stalls_asleep(const Demand& d, const Observation& seen, bool overlapped) {
  const double stalled = d.stall * static_cast<double>(seen.batches.size()) * seen.workers;
  return d.fill > consumer_cycle(d, overlapped) && asleep(seen) > 0.5 * stalled;
}

/// What a row's time is made of.
void add_row_shares(Demand& d, const Observation& seen, double row, double rows) {
  d.row_running = std::min(row, seen.worker_cpu.running / rows);
  d.row_ready = std::min(row - d.row_running, seen.worker_cpu.ready / rows);
  d.row_asleep = row - d.row_running - d.row_ready;
  // Workers that are kept from the CPUs wait for them between their stages too, and so more than a row takes.
  // Never at rest, they sleep only in a row, if they do.
  const bool starved = mean(seen.batches, &ObservedBatch::data) > 0.5 * d.cycle;
  if (!starved || seen.other_cpus < others_noticed) return;
  const bool sleeps = seen.worker_sleeps > 0.5 * rows;
  d.row_asleep = sleeps ? std::min(asleep(seen) / rows, row - d.row_running) : 0;
  d.row_ready = row - d.row_running - d.row_asleep;
}

}  // namespace

std::string_view cause_name(Cause cause) {
  static constexpr std::string_view names[] = {"step",    "storage", "cold", "decode", "mel", "features",
                                               "workers", "ring",    "copy", "stall",  "cpu", "shapes"};
  return names[static_cast<std::size_t>(cause)];
}

Demand demand_of(const Observation& seen) {
  Demand d{.cycle = mean(seen.batches, &ObservedBatch::elapsed),
           .step = mean(seen.batches, &ObservedBatch::step),
           .compile = mean(seen.batches, &ObservedBatch::compile),
           .copy = seen.copy_seconds,
           .copy_wait = mean(seen.batches, &ObservedBatch::copy)};
  const std::vector<bool> stall = stalled(seen);
  const double usual = summarise(each(seen.batches, &ObservedBatch::data)).p50;
  std::array<double, stage_count> steady{};
  std::vector<double> reads;
  double rows = 0, steady_rows = 0, frames = 0;
  for (std::size_t i = 0; i < seen.batches.size(); ++i) {
    const ObservedBatch& b = seen.batches[i];
    rows += static_cast<double>(b.rows), frames += static_cast<double>(b.valid_frames);
    if (stall[i]) d.stall += b.data - usual, d.stalls += 1;
    // A call that stood still adds its time when it ends: here or one batch later.
    if (stall[i] || (i > 0 && stall[i - 1])) continue;
    steady_rows += static_cast<double>(b.rows);
    reads.push_back(b.stages[index_of(Stage::read)] / std::max(1.0, static_cast<double>(b.rows)));
    for (std::size_t s = 0; s < stage_count; ++s) steady[s] += b.stages[s];
  }
  const auto n = static_cast<double>(seen.batches.size());
  d.stall /= n, d.stalls /= n;
  d.rows = rows / n, d.frames = frames / std::max(1.0, rows);
  // The workers' rows need not be the consumer's, but over a run they are as many.
  double row = 0;
  for (std::size_t s = 0; s < stage_count; ++s)
    row += d.row[s] = steady_rows > 0 ? steady[s] / steady_rows : 0;
  d.fill = row * d.rows / std::max(1, seen.workers);
  add_row_shares(d, seen, row, std::max(1.0, rows));
  d.usual_read = reads.empty() ? 0 : summarise(reads).p50;
  d.loss = std::max(d.stall, d.cycle - std::max(d.step + d.compile + d.copy_wait, d.fill));
  return d;
}

std::vector<WhatIf> what_if(const Demand& d, const Observation& seen, const Nominal& nominal,
                            bool overlapped) {
  std::vector<WhatIf> found;
  const auto add = [&](Cause cause, const Demand& without) {
    const double cycle = std::min(d.cycle, cycle_of(without, d, overlapped));
    if (cycle < 0.99 * d.cycle) found.push_back({.cause = cause, .cycle = cycle});
  };
  // Rows take longer while others have the CPUs: what is unusual about a stage is what it costs beyond that.
  const double others = share_of_others(d, seen);
  const double stretch = stretch_by_others(seen, cold_caches);
  const auto without_excess = [&](double cost, double usual) {
    Demand without = d;
    without.fill -= std::max(0.0, cost - 1.5 * usual * stretch) * d.rows / std::max(1, seen.workers);
    return without;
  };
  const auto cost = [&](Stage stage) { return d.row[index_of(stage)]; };
  const double wav = nominal.read + d.frames * nominal.wav_bytes_per_frame * nominal.read_byte;
  // Beside others whoever wakes up from a read waits for a CPU first: that is not the storage's doing. And
  // who no longer sleeps computes against the others all the time.
  const auto slept_at_most = [&](double time, double usual) {
    return others > 0 ? std::min(time, d.row_asleep + 1.5 * usual * stretch) : time;
  };
  const auto without_sleep = [&](double time, double usual) {
    Demand without = without_excess(time, usual);
    const double computing =
        d.row_running * stretch * d.rows / std::max(1, std::min(seen.workers, seen.cpus));
    if (others > 0) without.fill = std::min(d.fill, std::max(without.fill, computing));
    return without;
  };
  // Slow storage is slow for most files; what only some reads suffer from is unevenness.
  const double read = slept_at_most(std::min(cost(Stage::read), d.usual_read), wav);
  const bool warm = seen.read_again > 0 && seen.read_again < 0.5 * read * (1 - others);
  add(warm ? Cause::cold : Cause::storage, without_sleep(read, wav));
  const double cached = nominal.cached_row + d.frames * nominal.cached_frame;
  add(Cause::cold, without_sleep(slept_at_most(cost(Stage::cache), cached), cached));
  add(Cause::decode, without_excess(cost(Stage::decode), d.frames * nominal.decode_frame));
  add(Cause::mel, without_excess(cost(Stage::mel), d.frames * nominal.mel_frame));
  const bool real_stalls = stalls_asleep(d, seen, overlapped);
  if (others > 0) {
    Demand without = d;
    without.fill *= 1 - others;
    if (!real_stalls) without.stall = 0;
    add(Cause::cpu, without);
  }
  if (seen.workers < seen.cpus) {
    Demand without = d;
    without.fill *= static_cast<double>(seen.workers) / seen.cpus;
    add(Cause::workers, without);
  }
  constexpr double mostly_others = 0.3;
  if (others < mostly_others || real_stalls) {
    Demand steady = d;
    steady.stall = 0;
    add(Cause::stall, steady);
  }
  Demand compiled = d;
  compiled.compile = 0;
  add(Cause::shapes, compiled);
  Demand copied = d;
  copied.copy = copied.copy_wait = 0;
  add(Cause::copy, copied);
  std::ranges::stable_sort(found, {}, &WhatIf::cycle);
  return found;
}

double cycle_when_cached(const Demand& d, const Observation& seen, const Nominal& nominal, bool overlapped) {
  Demand cached = d;
  const double row =
      (nominal.cached_row + d.frames * nominal.cached_frame) * stretch_by_others(seen, no_cold_caches);
  cached.fill = std::min(d.fill, row * d.rows / std::max(1, std::min(seen.workers, seen.cpus)));
  cached.stall = 0;  // they are met where audio is read and computed
  // Beside others the workers run in turns, so that a batch takes longer than the longer of two that are
  // alike.
  const double step = consumer_cycle(d, overlapped);
  if (seen.other_cpus >= others_noticed && step > 0)
    return std::min(d.cycle, step * std::pow(1 + std::pow(cached.fill / step, 4), 0.25));
  return std::min(d.cycle, cycle_of(cached, d, overlapped));
}

}  // namespace penstock
