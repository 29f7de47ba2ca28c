#include "penstock/feed/feed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "penstock/core/clock.h"
#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/core/threads.h"
#include "penstock/features/mel.h"
#include "penstock/feed/autotune.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/row.h"
#include "penstock/feed/slots.h"

namespace penstock {
namespace {

constexpr int replacements = 8;

// How far ahead of the workers records are asked for from disk, in bytes of mels.
constexpr std::int64_t readahead_bytes = 32 << 20;

// The autotuner decides after so many batches, and not before so much time has passed.
constexpr std::int64_t window_batches = 8;
constexpr std::chrono::milliseconds window_time{20};

// Of how many rows one is watched for whether it sleeps.
constexpr std::uint64_t watch_every = 8;

/// One worker's rows that were watched, and those that slept: waited for the storage. Only that worker adds.
struct SleepCounter {
  alignas(64) std::atomic<std::uint64_t> watched{0}, slept{0};
  void count(bool did_sleep) {
    // relaxed: a single writer, and readers want a recent value, not an ordering.
    watched.store(watched.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (did_sleep) slept.store(slept.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
};

bool is_tuned(const Config& config) { return config.autotune && config.num_workers == 0; }

Autotuner::Limits tune_limits(const Config& config) {
  const int cpus = available_cpus();
  return {.cpus = cpus, .most_workers = std::max(16, 4 * cpus), .most_depth = config.prefetch_buffer_size};
}

/// Threads that a feed may have.
std::size_t most_workers(const Config& config) {
  return static_cast<std::size_t>(is_tuned(config)         ? tune_limits(config).most_workers
                                  : config.num_workers > 0 ? config.num_workers
                                                           : available_cpus());
}

Config checked(const Config& config) {
  config.validate();
  return config;
}

Dataset prepared(const Config& config, const OpenOptions& options) {
  const bool build = config.preprocessing_mode == PreprocessingMode::precompute;
  Dataset dataset = build ? open_current_dataset(config, options) : open_dataset(config, options);
  if (build) build_cache(config, dataset, {.wait = true, .progress = options.building});
  if (config.cache_kind == CacheKind::automatic)
    dataset.notes.push_back("cache_kind auto is " + cache_kind_of(config, dataset).reason);
  return dataset;
}

/// Batches that come to `readahead_bytes`.
std::int64_t readahead_batches(const Plan& plan, std::int32_t bins) {
  std::int64_t bytes = 0;
  for (const Shape& shape : plan.shapes())
    bytes = std::max(bytes, static_cast<std::int64_t>(shape.rows) * shape.frames * bins * 4);
  return std::max<std::int64_t>(2, readahead_bytes / std::max<std::int64_t>(1, bytes));
}

void require_a_share(const Plan& plan, const FeedOptions& options) {
  if (options.first >= plan.steps_per_epoch())
    throw Error(fmt::format("an epoch has only {} batches: none is left for number {} of {} that share it",
                            plan.steps_per_epoch(), options.first + 1, options.every));
}

std::vector<SkippedSample> samples_of(const std::map<std::int64_t, SkippedSample>& samples) {
  std::vector<SkippedSample> result;
  for (const auto& [number, sample] : samples) result.push_back(sample);
  return result;
}

}  // namespace

struct Feed::State {
  State(const Config& c, const FeedOptions& o)
      : options(o),
        dataset(prepared(checked(c), options.open)),
        config(with_cache_kind(c, dataset)),
        stores(open_stores(config, dataset)),
        root(File::open_folder(dataset.index.root())),
        mel(config.mel),
        shapes(configured_shapes(dataset.lengths, config)),
        plan(make_plan(dataset, config, shapes, config.seed)),
        readahead(readahead_batches(plan, config.mel.n_mels)),
        seed(config.seed),
        clocks(most_workers(config)),
        counters(clocks.size()),
        meters(clocks.size()),
        sleeps(clocks.size()),
        tuner(tune_limits(config), {.workers = config.num_workers > 0 ? config.num_workers : available_cpus(),
                                    .depth = config.prefetch_buffer_size}) {
    require_a_share(plan, options);
    if (!options.probes)
      for (StageClock& clock : clocks) clock.turn_off();
    for (const std::int64_t number : dataset.problems) {
      const Utterance u = dataset.index.utterance(number);
      const SampleError error("index", dataset.index.where(number), std::string(u.problem),
                              std::string(u.id));
      if (config.on_bad_sample == OnBadSample::fail) throw error;
      skip(number, error);
    }
  }

  ~State() { stop(); }

  void start();
  void stop();
  void open_ahead();
  void open_next(Slot& slot);
  void activate(int workers);
  void tune(Clock::time_point now);
  void begin_window(Clock::time_point now);
  [[nodiscard]] CpuTime worker_cpu() const;
  [[nodiscard]] int depth() const { return tuner.effort().depth; }
  void trace_slot(const Slot& slot, Clock::time_point taken);
  void work(const std::stop_token& stopping, std::size_t worker);
  void fill(RowJob& job, Slot& slot, std::int32_t row);
  void look_ahead(const Slot& slot, std::int32_t row) const;
  bool try_fill(RowJob& job, std::int64_t member, const Row& row);
  void skip(std::int64_t number, const SampleError& error);
  void note_damage(std::int64_t number, const std::string& reason);
  Slot& slot_of(std::uint64_t sequence) { return slots[sequence % slots.size()]; }

  const FeedOptions options;
  const Dataset dataset;
  const Config config;
  const Stores stores;
  const File root;
  const Mel mel;
  std::vector<Shape> shapes;  // with the rows of all ranks
  Plan plan;
  std::int64_t readahead;  // batches
  std::uint64_t seed;

  // Where the consumer stands, and where the next slot to be opened stands.
  std::int64_t epoch = 0, step = 0;
  std::int64_t open_epoch = 0, open_step = 0;
  // Batches are numbered from 1 within a start(); slot_of() says where each is.
  std::uint64_t next_sequence = 1, opened_sequence = 0;
  std::size_t unannounced = 0;  // slots that were opened since workers were woken last

  std::shared_ptr<BufferPool> pool;
  std::vector<Slot> slots;
  std::vector<TraceTrack*> slot_tracks;    // of a timeline
  std::atomic<std::uint32_t> openings{0};  // counts open slots and stop requests: what idle workers wait on
  std::vector<std::jthread> workers;       // those that have ever been active
  std::atomic<int> active{0};              // workers from this number on are parked

  std::vector<StageClock> clocks;
  std::vector<CacheCounter> counters;

  mutable std::mutex meter_mutex;  // one reader at a time
  mutable std::vector<CpuMeter> meters;
  std::vector<SleepCounter> sleeps;
  Autotuner tuner;
  /// What the autotuner's present window has seen so far, and where the workers' sums stood at its beginning.
  struct {
    TuneWindow so_far;
    Clock::time_point began;
    double row_seconds = 0;
    CpuTime cpu;
    std::uint64_t rows = 0, watched = 0, slept = 0;
  } window;
  Clock::time_point returned;  // when next() did, last

  mutable std::mutex stats_mutex;  // what stats() reads of the consumer's
  Histogram wait;
  std::int64_t delivered_rows = 0;
  std::uint64_t ready_sum = 0;
  std::atomic<int> last_ready{0};
  std::int64_t tune_changes = 0;

  mutable std::mutex skipped_mutex;
  std::map<std::int64_t, SkippedSample> skipped, recomputed;
};

// ---- the consumer ----

Feed::Feed(const Config& config, const FeedOptions& options)
    : state_(std::make_unique<State>(config, options)) {
  state_->start();
}

Feed::~Feed() = default;

Batch Feed::next(const Poll& poll) {
  State& s = *state_;
  const auto asked = Clock::now();
  s.open_ahead();  // the slot whose batch was delivered last goes round the ring
  int ready = 0;
  for (std::uint64_t q = s.next_sequence; q <= s.opened_sequence && s.slot_of(q).ready(); ++q) ++ready;
  s.last_ready.store(ready, std::memory_order_relaxed);
  Slot& slot = s.slot_of(s.next_sequence);
  slot.wait(poll);
  const auto got = Clock::now();

  if (s.options.trace) s.trace_slot(slot, got);
  const Slot::Contents taken = std::move(slot.contents);
  {
    const std::lock_guard lock(s.stats_mutex);
    s.wait.add(got - asked);
    s.ready_sum += static_cast<std::uint64_t>(ready);
    s.delivered_rows += taken.plan.shape.rows;
  }
  ++s.next_sequence;
  s.epoch = taken.epoch;
  s.step = taken.step + 1;
  if (is_tuned(s.config)) {
    TuneWindow& w = s.window.so_far;
    w.step_seconds += seconds(asked - s.returned);
    w.wait_seconds += seconds(got - asked);
    w.rows += taken.plan.shape.rows;
    w.least_ready = w.batches == 0 ? ready : std::min(w.least_ready, ready);
    if (++w.batches >= window_batches && got - s.window.began >= window_time) s.tune(got);
    s.returned = Clock::now();
  }
  return taken.buffer->view(taken.buffer, taken.epoch, taken.step);
}

FeedState Feed::state() const {
  const State& s = *state_;
  return {.seed = s.seed, .epoch = s.epoch, .step = s.step, .shapes = s.shapes};
}

void Feed::restore(const FeedState& to) {
  State& s = *state_;
  if (to.epoch < 0 || to.step < 0) throw Error("a feed state must not have negative numbers");
  const std::vector<Shape>& shapes = to.shapes.empty() ? s.shapes : to.shapes;
  if (to.seed != s.seed || shapes != s.shapes) {
    Plan plan = make_plan(s.dataset, s.config, shapes, to.seed);  // throws before anything has changed
    require_a_share(plan, s.options);
    s.stop();
    s.plan = std::move(plan);
    s.seed = to.seed;
    s.shapes = shapes;
  }
  s.stop();
  s.epoch = to.epoch;
  s.step = to.step;
  s.start();
}

void Feed::reset() { restore({.seed = state_->seed}); }

const Plan& Feed::plan() const { return state_->plan; }
const Dataset& Feed::dataset() const { return state_->dataset; }
int Feed::workers() const { return state_->active.load(std::memory_order_relaxed); }
int Feed::ready() const { return state_->last_ready.load(std::memory_order_relaxed); }

std::size_t Feed::batch_bytes() const { return state_->pool->buffer_bytes(); }

std::vector<SkippedSample> Feed::skipped() const {
  const std::lock_guard lock(state_->skipped_mutex);
  return samples_of(state_->skipped);
}

std::vector<SkippedSample> Feed::recomputed() const {
  const std::lock_guard lock(state_->skipped_mutex);
  return samples_of(state_->recomputed);
}

FeedStats Feed::stats() const {
  const State& s = *state_;
  const std::lock_guard lock(s.stats_mutex);
  FeedStats stats{.samples = s.delivered_rows,
                  .wait = s.wait,
                  .buffers = static_cast<std::int64_t>(s.pool->made()),
                  .worker_cpu = s.worker_cpu(),
                  .active_workers = s.active.load(std::memory_order_relaxed),
                  .depth = s.depth(),
                  .tune_changes = s.tune_changes};
  for (const StageClock& clock : s.clocks) {
    stats.filled += static_cast<std::int64_t>(clock.samples());
    for (std::size_t i = 0; i < stage_count; ++i)
      stats.stage_seconds[i] += static_cast<double>(clock.nanoseconds(i)) * 1e-9;
  }
  for (const CacheCounter& counter : s.counters) counter.add_to(stats.cache);
  if (s.wait.count() > 0)
    stats.ring_level = static_cast<double>(s.ready_sum) / static_cast<double>(s.wait.count());
  return stats;
}

// ---- the ring ----

void Feed::State::start() {
  const auto most = static_cast<std::size_t>(config.prefetch_buffer_size);
  if (step >= plan.steps_per_epoch()) ++epoch, step = 0;
  open_epoch = epoch;
  open_step = step + (options.first + options.every - step % options.every) % options.every;
  if (open_step >= plan.steps_per_epoch()) ++open_epoch, open_step = options.first;
  next_sequence = 1;
  opened_sequence = 0;
  unannounced = 0;
  slots = std::vector<Slot>(most);
  slot_tracks.clear();
  for (std::size_t i = 0; options.trace && i < most; ++i)
    slot_tracks.push_back(&options.trace->track(fmt::format("slot {}", i)));
  {
    // Twice the ring: a consumer may keep as many batches as the ring holds.
    const std::lock_guard lock(stats_mutex);
    pool = std::make_shared<BufferPool>(plan.shapes(), config.mel.n_mels, extra_kinds(dataset), 2 * most,
                                        options.memory);
  }
  open_ahead();
  activate(tuner.effort().workers);
  returned = Clock::now();
  begin_window(returned);
}

void Feed::State::stop() {
  for (std::jthread& worker : workers) worker.request_stop();
  active.store(std::numeric_limits<int>::max());  // those that are parked, too
  active.notify_all();
  openings.fetch_add(1, std::memory_order_release);
  openings.notify_all();
  workers.clear();
  if (!options.trace) return;
  for (std::uint64_t q = next_sequence; q <= opened_sequence; ++q) {  // nobody will take them
    Slot& slot = slot_of(q);
    slot.note_row_end(Clock::now());
    trace_slot(slot, slot.filled());
  }
  next_sequence = opened_sequence + 1;
}

/// Workers below this number work; the others are parked. Threads are made when they are needed first.
void Feed::State::activate(int count) {
  for (auto w = workers.size(); w < static_cast<std::size_t>(count); ++w)
    workers.emplace_back([this, w](const std::stop_token& stopping) { work(stopping, w); });
  // Sequentially consistent: notify_all() looks for sleepers first, and must not do so before they can see
  // this.
  active.store(count);
  active.notify_all();
}

void Feed::State::open_ahead() {
  while (opened_sequence + 1 < next_sequence + static_cast<std::uint64_t>(depth()))
    open_next(slot_of(opened_sequence + 1));
}

void Feed::State::open_next(Slot& slot) {
  slot.open(opened_sequence + 1, {.plan = plan.batch(open_epoch, open_step),
                                  .epoch = open_epoch,
                                  .step = open_step,
                                  .buffer = pool->take(),
                                  .opened = options.trace ? Clock::now() : Clock::time_point()});
  ++opened_sequence;
  open_step += options.every;
  if (open_step >= plan.steps_per_epoch()) ++open_epoch, open_step = options.first;
  openings.fetch_add(1, std::memory_order_release);
  // Waking costs the consumer more than all the rest of next(), so sleepers are woken for half a ring at a
  // time. Workers that are awake see the slot at once.
  if (++unannounced >= static_cast<std::size_t>(depth()) / 2) {
    unannounced = 0;
    openings.notify_one();
  }
}

double ring_level_between(const FeedStats& before, const FeedStats& after) {
  const auto asked = static_cast<double>(after.wait.count()),
             asked_before = static_cast<double>(before.wait.count());
  return (after.ring_level * asked - before.ring_level * asked_before) / (asked - asked_before);
}

// ---- the autotuner ----

CpuTime Feed::State::worker_cpu() const {
  const std::lock_guard lock(meter_mutex);
  CpuTime sum;
  for (CpuMeter& meter : meters) {
    const CpuTime time = meter.read();
    sum.running += time.running;
    sum.ready += time.ready;
  }
  return sum;
}

void Feed::State::begin_window(Clock::time_point now) {
  window = {.began = now};
  for (const StageClock& clock : clocks) {
    window.rows += clock.samples();
    for (std::size_t i = 0; i < stage_count; ++i)
      window.row_seconds += static_cast<double>(clock.nanoseconds(i)) * 1e-9;
  }
  window.cpu = worker_cpu();
  for (const SleepCounter& sleep : sleeps) {
    window.watched += sleep.watched.load(std::memory_order_relaxed);
    window.slept += sleep.slept.load(std::memory_order_relaxed);
  }
}

void Feed::State::tune(Clock::time_point now) {
  TuneWindow seen = window.so_far;
  const auto before = window;
  begin_window(now);
  const auto rows = static_cast<double>(window.rows - before.rows);
  const double running = window.cpu.running - before.cpu.running;
  // Rows take longer while something else has the CPUs; more workers would not help. Time that they were
  // ready may also have passed between rows, so that running is the least that they took.
  const double spent =
      std::max(running, window.row_seconds - before.row_seconds - (window.cpu.ready - before.cpu.ready));
  if (rows == 0 || spent <= 0) return;  // a row that takes longer than all this: the next window sees it
  seen.row_seconds = spent / rows;
  // A row that never slept was computing all the time, whatever the clocks say: on a virtual machine's CPU
  // time may pass that nobody accounts for.
  const bool waits = 4 * (window.slept - before.slept) >= window.watched - before.watched;
  seen.cpu_share = waits ? std::min(1.0, running / spent) : 1;
  std::optional<std::string> reason;
  {
    const std::lock_guard lock(stats_mutex);
    reason = tuner.observe(seen);
  }
  if (!reason) return;
  const Effort& to = tuner.effort();
  activate(to.workers);
  pool->keep(static_cast<std::size_t>(to.depth));
  unannounced = 0;  // a ring that got shorter may have to live on slots that nobody was woken for yet
  openings.notify_all();
  {
    const std::lock_guard lock(stats_mutex);
    ++tune_changes;
  }
  if (options.tuned)
    options.tuned(
        {.epoch = epoch, .step = step, .workers = to.workers, .depth = to.depth, .reason = *reason});
}

// ---- the workers ----

void Feed::State::work(const std::stop_token& stopping, std::size_t worker) {
  meters[worker].attach();
  give_way();  // to the consumer, which launches the device's steps
  const RowInputs inputs{
      .config = config,
      .dataset = dataset,
      .mel = mel,
      .root = root,
      .stores = stores,
      .damaged = [this](std::int64_t number, const std::string& reason) { note_damage(number, reason); }};
  clocks[worker].set_track(options.trace ? &options.trace->track(fmt::format("worker {}", worker)) : nullptr);
  RowJob job(inputs, clocks[worker], counters[worker]);
  std::uint64_t sequence = 1, rows = 0;
  for (;;) {
    // Read before anything is looked at: a slot that opens or a stop that is asked for from here on has
    // changed the count, and wait() returns.
    const std::uint32_t seen = openings.load(std::memory_order_acquire);
    if (stopping.stop_requested()) return;
    if (const int limit = active.load(std::memory_order_relaxed); static_cast<int>(worker) >= limit) {
      openings.notify_one();  // whatever has woken this one was meant for another
      active.wait(limit, std::memory_order_relaxed);
      continue;
    }
    Slot& slot = slot_of(sequence);
    const std::int32_t row = slot.claim(sequence);
    if (row == Slot::not_open) {
      openings.wait(seen, std::memory_order_acquire);
    } else if (row == Slot::none_left) {
      ++sequence;
    } else {
      openings.notify_one();  // there may be more for another: waking is not the consumer's work
      look_ahead(slot, row);
      const bool watched = rows++ % watch_every == 0;
      const long slept = watched ? times_slept() : 0;
      fill(job, slot, row);
      if (watched) sleeps[worker].count(times_slept() > slept);
    }
  }
}

/// The order is a function, so what a later batch reads is known: its record comes from disk in the meantime.
void Feed::State::look_ahead(const Slot& slot, std::int32_t r) const {
  if (stores.mel.records.empty()) return;
  std::int64_t e = slot.contents.epoch, s = slot.contents.step + readahead * options.every;
  e += s / plan.steps_per_epoch();
  s %= plan.steps_per_epoch();
  const BatchPlan later = plan.batch(e, s);
  // Each row asks for its share of the later batch's rows, which may be more or fewer.
  const std::int64_t rows = slot.contents.plan.shape.rows, later_rows = later.shape.rows;
  for (std::int64_t i = r * later_rows / rows; i < (r + 1) * later_rows / rows; ++i) {
    const std::int64_t member = plan.utterance(later, static_cast<std::int32_t>(i));
    if (member < 0) continue;
    if (const PackEntry* record = stores.mel.record(member)) stores.mel.pack.will_need(*record);
  }
}

/// A batch on its way: filled by workers, then ready until it was taken.
void Feed::State::trace_slot(const Slot& slot, Clock::time_point taken) {
  TraceTrack& track = *slot_tracks[static_cast<std::size_t>(&slot - slots.data())];
  const TracePlace place{.epoch = slot.contents.epoch, .step = slot.contents.step};
  track.add("fill", slot.contents.opened, slot.filled(), place);
  if (slot.filled() < taken) track.add("ready", slot.filled(), taken, place);
}

/// A row with its stages on the worker's track, which ends before the batch can be taken.
class RowSpan {
 public:
  RowSpan(TraceTrack* track, Slot& slot, std::int32_t row) : track_(track), slot_(slot) {
    if (track_ == nullptr) return;
    track_->set_place({.epoch = slot.contents.epoch, .step = slot.contents.step, .row = row});
    begin_ = Clock::now();
  }
  void end() const {
    if (track_ == nullptr) return;
    const auto now = Clock::now();
    track_->add("row", begin_, now);
    slot_.note_row_end(now);
  }

 private:
  TraceTrack* track_;
  Slot& slot_;
  Clock::time_point begin_;
};

void Feed::State::fill(RowJob& job, Slot& slot, std::int32_t r) {
  const RowSpan span(job.clock().track(), slot, r);
  const BatchPlan& batch = slot.contents.plan;
  const Row row = slot.contents.buffer->row(r);
  row.replaced = 0;
  try {
    const std::int64_t member = plan.utterance(batch, r);
    bool filled = member >= 0 && try_fill(job, member, row);
    for (int j = 1; member >= 0 && !filled && j <= replacements; ++j) {
      const std::int64_t other = plan.replacement(batch, r, j);
      const Lengths need = dataset.lengths[static_cast<std::size_t>(other)];
      row.replaced = 1;
      filled =
          need.tokens <= batch.shape.tokens && need.frames <= batch.shape.frames && try_fill(job, other, row);
    }
    if (!filled) job.clear(row);
    job.clock().add_sample();
    span.end();
    slot.finish(r);
  } catch (...) {
    span.end();
    slot.finish(r, std::current_exception());
  }
}

/// False for a bad sample that may be skipped; it is then counted.
bool Feed::State::try_fill(RowJob& job, std::int64_t member, const Row& row) {
  try {
    job.fill(member, row);
    return true;
  } catch (const SampleError& error) {
    if (config.on_bad_sample == OnBadSample::fail) throw;
    skip(dataset.members[static_cast<std::size_t>(member)], error);
    return false;
  }
}

void Feed::State::note_damage(std::int64_t number, const std::string& reason) {
  const Utterance utterance = dataset.index.utterance(number);
  const std::lock_guard lock(skipped_mutex);
  SkippedSample& sample = recomputed[number];
  sample.id = utterance.id;
  sample.path = utterance.path;
  sample.reason = reason;
  ++sample.times;
}

void Feed::State::skip(std::int64_t number, const SampleError& error) {
  const std::lock_guard lock(skipped_mutex);
  SkippedSample& sample = skipped[number];
  sample.id = error.utterance;
  sample.path = error.path;
  sample.reason = error.what();
  ++sample.times;
}

}  // namespace penstock
