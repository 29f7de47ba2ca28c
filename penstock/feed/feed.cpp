#include "penstock/feed/feed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/core/threads.h"
#include "penstock/features/mel.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/row.h"
#include "penstock/feed/slots.h"

namespace penstock {
namespace {

constexpr int replacements = 8;

// How far ahead of the workers records are asked for from disk, in bytes of mels.
constexpr std::int64_t readahead_bytes = 32 << 20;

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
  const Shape shape = plan.largest();
  const std::int64_t bytes = static_cast<std::int64_t>(shape.rows) * shape.frames * bins * 4;
  return std::max<std::int64_t>(2, readahead_bytes / std::max<std::int64_t>(1, bytes));
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
        global_rows(config.batch_size * config.world),
        shapes(configured_shapes(dataset.lengths, config, global_rows)),
        plan(make_plan(dataset, config, shapes, config.seed, global_rows)),
        readahead(readahead_batches(plan, config.mel.n_mels)),
        seed(config.seed),
        clocks(static_cast<std::size_t>(config.num_workers > 0 ? config.num_workers : available_cpus())),
        counters(clocks.size()) {
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
  void open_next(Slot& slot);
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
  std::int32_t global_rows;
  std::vector<Shape> shapes;
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
  std::atomic<std::uint32_t> openings{0};  // counts open slots and stop requests: what idle workers wait on
  std::vector<std::jthread> workers;

  std::vector<StageClock> clocks;
  std::vector<CacheCounter> counters;
  Histogram wait;
  std::int64_t delivered_rows = 0;
  std::uint64_t ready_sum = 0;
  mutable std::mutex skipped_mutex;
  std::map<std::int64_t, SkippedSample> skipped, recomputed;
};

// ---- the consumer ----

Feed::Feed(const Config& config, const FeedOptions& options)
    : state_(std::make_unique<State>(config, options)) {
  state_->start();
}

Feed::~Feed() = default;

Batch Feed::next() {
  State& s = *state_;
  // The slot whose batch was delivered last goes round the ring.
  if (s.opened_sequence < s.next_sequence + s.slots.size() - 1) s.open_next(s.slot_of(s.opened_sequence + 1));

  const auto asked = std::chrono::steady_clock::now();
  for (std::uint64_t q = s.next_sequence; q <= s.opened_sequence && s.slot_of(q).ready(); ++q) ++s.ready_sum;
  Slot& slot = s.slot_of(s.next_sequence);
  slot.wait();
  s.wait.add(std::chrono::steady_clock::now() - asked);

  const Slot::Contents taken = std::move(slot.contents);
  s.delivered_rows += taken.plan.shape.rows;
  ++s.next_sequence;
  s.epoch = taken.epoch;
  s.step = taken.step + 1;
  return taken.buffer->view(taken.buffer, taken.epoch, taken.step);
}

FeedState Feed::state() const {
  const State& s = *state_;
  return {.seed = s.seed, .epoch = s.epoch, .step = s.step, .global_rows = s.global_rows, .shapes = s.shapes};
}

void Feed::restore(const FeedState& to) {
  State& s = *state_;
  if (to.epoch < 0 || to.step < 0 || to.global_rows < 0)
    throw Error("a feed state must not have negative numbers");
  const std::int32_t rows = to.global_rows == 0 ? s.global_rows : to.global_rows;
  const std::vector<Shape>& shapes = to.shapes.empty() ? s.shapes : to.shapes;
  if (to.seed != s.seed || rows != s.global_rows || shapes != s.shapes) {
    Plan plan = make_plan(s.dataset, s.config, shapes, to.seed, rows);  // throws before anything has changed
    s.stop();
    s.plan = std::move(plan);
    s.seed = to.seed;
    s.global_rows = rows;
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
int Feed::workers() const { return static_cast<int>(state_->clocks.size()); }

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
  FeedStats stats{
      .samples = s.delivered_rows, .wait = s.wait, .buffers = static_cast<std::int64_t>(s.pool->made())};
  for (std::size_t i = 0; i < stage_count; ++i)
    for (const StageClock& clock : s.clocks)
      stats.stage_seconds[i] += static_cast<double>(clock.nanoseconds(i)) * 1e-9;
  for (const CacheCounter& counter : s.counters) counter.add_to(stats.cache);
  if (s.wait.count() > 0)
    stats.ring_level = static_cast<double>(s.ready_sum) / static_cast<double>(s.wait.count());
  return stats;
}

// ---- the ring ----

void Feed::State::start() {
  const auto depth = static_cast<std::size_t>(config.prefetch_buffer_size);
  if (step >= plan.steps_per_epoch()) ++epoch, step = 0;
  open_epoch = epoch;
  open_step = step;
  next_sequence = 1;
  opened_sequence = 0;
  unannounced = 0;
  slots = std::vector<Slot>(depth);
  // Twice the ring: a consumer may keep as many batches as the ring holds.
  pool = std::make_shared<BufferPool>(plan.largest(), config.mel.n_mels, extra_kinds(dataset), 2 * depth,
                                      options.memory);
  for (std::size_t i = 0; i < depth; ++i) open_next(slot_of(opened_sequence + 1));
  for (std::size_t w = 0; w < clocks.size(); ++w)
    workers.emplace_back([this, w](const std::stop_token& stopping) { work(stopping, w); });
}

void Feed::State::stop() {
  for (std::jthread& worker : workers) worker.request_stop();
  openings.fetch_add(1, std::memory_order_release);
  openings.notify_all();
  workers.clear();
}

void Feed::State::open_next(Slot& slot) {
  slot.open(opened_sequence + 1, {.plan = plan.batch(open_epoch, open_step),
                                  .epoch = open_epoch,
                                  .step = open_step,
                                  .buffer = pool->take()});
  ++opened_sequence;
  if (++open_step == plan.steps_per_epoch()) ++open_epoch, open_step = 0;
  openings.fetch_add(1, std::memory_order_release);
  // Waking costs the consumer more than all the rest of next(), so sleepers are woken for half a ring at a
  // time. Workers that are awake see the slot at once.
  if (++unannounced >= slots.size() / 2) {
    unannounced = 0;
    openings.notify_one();
  }
}

// ---- the workers ----

void Feed::State::work(const std::stop_token& stopping, std::size_t worker) {
  give_way();  // to the consumer, which launches the device's steps
  const RowInputs inputs{
      .config = config,
      .dataset = dataset,
      .mel = mel,
      .root = root,
      .stores = stores,
      .damaged = [this](std::int64_t number, const std::string& reason) { note_damage(number, reason); }};
  RowJob job(inputs, clocks[worker], counters[worker]);
  std::uint64_t sequence = 1;
  while (!stopping.stop_requested()) {
    // Read before the slot is looked at: a slot that opens in between has changed the count, and wait()
    // returns.
    const std::uint32_t seen = openings.load(std::memory_order_acquire);
    Slot& slot = slot_of(sequence);
    if (const auto row = slot.claim(sequence)) {
      openings.notify_one();  // there may be more for another: waking is not the consumer's work
      look_ahead(slot, *row);
      fill(job, slot, *row);
    } else if (slot.before(sequence)) {
      openings.wait(seen, std::memory_order_acquire);
    } else {
      ++sequence;
    }
  }
}

/// The order is a function, so what a later batch reads is known: its record comes from disk in the meantime.
void Feed::State::look_ahead(const Slot& slot, std::int32_t r) const {
  if (stores.mel.records.empty()) return;
  std::int64_t e = slot.contents.epoch, s = slot.contents.step + readahead;
  e += s / plan.steps_per_epoch();
  s %= plan.steps_per_epoch();
  const std::int64_t member = plan.utterance(plan.batch(e, s), r);
  if (member < 0) return;
  if (const PackEntry* record = stores.mel.record(member)) stores.mel.pack.will_need(*record);
}

void Feed::State::fill(RowJob& job, Slot& slot, std::int32_t r) {
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
    slot.finish(r);
  } catch (...) {
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
