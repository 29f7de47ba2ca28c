// The feed: full batches in plan order, filled ahead of the consumer by native threads.
//
//   Feed feed(config);
//   for (;;) { Batch batch = feed.next(); ... }
//
// One thread calls the methods; stats(), ready(), skipped() and recomputed() may be called by any. Batches
// may go to any thread and may outlive the feed.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/core/config.h"
#include "penstock/core/memory.h"
#include "penstock/core/threads.h"
#include "penstock/core/types.h"
#include "penstock/feed/dataset.h"
#include "penstock/feed/row.h"
#include "penstock/monitor/histogram.h"
#include "penstock/monitor/probe.h"
#include "penstock/monitor/trace.h"
#include "penstock/plan/plan.h"

namespace penstock {

/// Where a feed stands: behind the last batch that next() delivered. All that is needed to go on from there.
struct FeedState {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t step = 0;  ///< batches of this epoch that were delivered
  /// Frozen into the run, so that growing data does not move them; rows over all ranks, which are kept when
  /// the number of ranks changes. Empty in a state that is restored: as they are.
  std::vector<Shape> shapes;
  bool operator==(const FeedState&) const = default;
};

/// An utterance that could not be used, or not from the cache.
struct SkippedSample {
  std::string id, path, reason;
  std::int64_t times = 0;
};

/// One decision of the autotuner.
struct TuneChange {
  std::int64_t epoch = 0, step = 0;  ///< of the batch after which it was made
  int workers = 0, depth = 0;        ///< from here on
  std::string reason;
};

struct FeedOptions {
  OpenOptions open;
  std::shared_ptr<BatchMemory> memory = heap_memory();  ///< what batches are made of
  std::function<void(const TuneChange&)> tuned;         ///< called by next()
  /// Of each epoch only the batches first, first + every, ...: a share of the work for one of several
  /// processes.
  std::int64_t first = 0, every = 1;
  bool probes = true;  ///< false: stage_seconds stay 0; what probes cost is the difference
  /// Where rows, slots and copies are put on a timeline; null: nowhere, at no cost.
  std::shared_ptr<Trace> trace;
};

struct FeedStats {
  std::array<double, stage_count> stage_seconds{};  ///< over all workers
  std::int64_t samples = 0;                         ///< rows of batches that were delivered
  std::int64_t filled = 0;                          ///< rows that workers have filled
  Histogram wait;                                   ///< how long next() waited
  double ring_level = 0;     ///< batches that were ready when next() was called, on average
  std::int64_t buffers = 0;  ///< batch buffers that there are
  CacheStats cache;
  CpuTime worker_cpu;                 ///< of all workers
  int active_workers = 0, depth = 0;  ///< at present
  std::int64_t tune_changes = 0;
};

/// Batches that were ready when next() was called between the two, on average; NaN where it was not.
double ring_level_between(const FeedStats& before, const FeedStats& after);

class Feed {
 public:
  /// Opens the dataset, builds what is missing of the cache (`preprocessing_mode: precompute`) and starts to
  /// fill. Throws Error (also when there is no batch `first`), and with `on_bad_sample: fail` a SampleError
  /// for an utterance that the index already knows to be bad.
  explicit Feed(const Config& config, const FeedOptions& options = {});
  /// Stops at once: at most a row per worker is finished.
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  /// The next batch in plan order; an epoch follows the other. Blocks until it is full. Throws SampleError
  /// when a sample of this batch is bad and `on_bad_sample` is fail; the same again when called again. What
  /// `poll` throws comes through, and no batch is lost.
  Batch next(const Poll& poll = {});

  [[nodiscard]] FeedState state() const;
  /// Goes on behind the batch after which `state` was taken, at once. Another seed and other shapes than the
  /// present ones are taken over.
  void restore(const FeedState& state);
  /// Back to the first batch.
  void reset();

  [[nodiscard]] const Plan& plan() const;
  [[nodiscard]] const Dataset& dataset() const;
  [[nodiscard]] int workers() const;              ///< that are active
  [[nodiscard]] int ready() const;                ///< batches that were ready when next() was called last
  [[nodiscard]] std::size_t batch_bytes() const;  ///< of the largest batch's block
  /// Bad samples so far, those included that the index knows of; each once, in the order of their ids.
  [[nodiscard]] std::vector<SkippedSample> skipped() const;
  /// Utterances of which a cached array was damaged and has been computed again, with the reason.
  [[nodiscard]] std::vector<SkippedSample> recomputed() const;
  [[nodiscard]] FeedStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
