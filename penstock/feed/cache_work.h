// What the cache's jobs share: threads with a state of their own, progress, and one member's arrays at a
// time.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "penstock/core/threads.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/row.h"
#include "penstock/feed/slots.h"
#include "penstock/feed/store.h"

namespace penstock {

/// Calls work(state, i) for every i in [0, n) on all CPUs; each thread has one state from make(). The first
/// exception ends the loop and is thrown again here.
template <typename Make, typename Work>
void parallel_with(std::size_t n, Make&& make, Work&& work) {
  std::atomic<std::size_t> next{0};
  const auto threads = std::min(n, static_cast<std::size_t>(available_cpus()));
  parallel_for(threads, static_cast<int>(threads), [&](std::size_t) {
    auto state = make();
    try {
      // relaxed: the index is all that the threads share; parallel_for orders what they wrote.
      for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) work(state, i);
    } catch (...) {
      next.store(n, std::memory_order_relaxed);
      throw;
    }
  });
}

/// Counts for a CacheProgress from any thread.
class ProgressCounter {
 public:
  explicit ProgressCounter(const CacheProgress& progress) : progress_(progress) {}
  /// More work, before it begins.
  void expect(std::size_t more) { total_ += more; }
  /// One more is done. Throws what the progress throws.
  void add(std::uint64_t bytes) {
    // relaxed: numbers for a person.
    const std::size_t done = done_.fetch_add(1, std::memory_order_relaxed) + 1;
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (!progress_ || (done % 16 != 0 && done != total_)) return;
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock)
      progress_(done_.load(std::memory_order_relaxed), total_, bytes_.load(std::memory_order_relaxed));
  }

 private:
  const CacheProgress& progress_;
  std::size_t total_ = 0;
  std::atomic<std::size_t> done_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::mutex mutex_;
};

/// The array that mels come from.
inline bool is_audio(std::string_view array) { return array == "mel" || array == "pcm"; }

/// What a record takes on disk, about: with its header, its id and its entry in the index.
inline std::uint64_t bytes_on_disk(const StoredArray& array, const StoredArray::Wanted& wanted) {
  constexpr std::uint64_t overhead = 256 + 128;
  if (wanted.rows < 0) return 0;
  return overhead + static_cast<std::uint64_t>(wanted.rows) * static_cast<std::uint64_t>(wanted.columns) *
                        element_bytes(array.type);
}

/// The record is of the utterance as it is now. Of extras nothing is known here: true.
inline bool made_from(const Utterance& utterance, std::string_view array, const PackEntry& record) {
  return is_audio(array)     ? record.source == mel_source(utterance)
         : array == "tokens" ? record.source == token_source(utterance)
                             : true;
}

/// One thread's memory for one member at a time: the arrays have exactly its lengths.
class MemberArrays {
 public:
  explicit MemberArrays(const RowInputs& inputs)
      : dataset_(inputs.dataset),
        job(inputs, clock_, counter_),
        buffer_(longest(dataset_), inputs.config.mel.n_mels, extra_kinds(dataset_)) {}

  /// Its memory holds anything; `job` fills it.
  Row row(std::int64_t member) {
    const Lengths l = dataset_.lengths[static_cast<std::size_t>(member)];
    buffer_.reshape({.rows = 1, .tokens = l.tokens, .frames = l.frames});
    return buffer_.row(0);
  }
  /// What `job` has cost so far.
  [[nodiscard]] const StageClock& clock() const { return clock_; }

 private:
  static std::array<Shape, 1> longest(const Dataset& dataset) {
    Shape shape{.rows = 1, .tokens = 1, .frames = 1};
    for (const Lengths& l : dataset.lengths)
      shape = {1, std::max(shape.tokens, l.tokens), std::max(shape.frames, l.frames)};
    return {shape};
  }

  const Dataset& dataset_;
  StageClock clock_;
  CacheCounter counter_;

 public:
  RowJob job;

 private:
  BatchBuffer buffer_;
};

}  // namespace penstock
