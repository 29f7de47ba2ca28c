// The row job: one utterance from its file, or from the cache, into one row of a batch. This is what workers
// do all day; `cache build` does it with a pack as the sink.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/core/config.h"
#include "penstock/core/file.h"
#include "penstock/decode/decode.h"
#include "penstock/features/mel.h"
#include "penstock/features/text.h"
#include "penstock/feed/dataset.h"
#include "penstock/feed/slots.h"
#include "penstock/feed/store.h"
#include "penstock/monitor/probe.h"

namespace penstock {

/// What the cache did for a run. Every array of a row counts; all stay 0 with `preprocessing_mode: runtime`.
struct CacheStats {
  std::int64_t hits = 0;        ///< read from a pack or a .npy tree
  std::int64_t misses = 0;      ///< taken from its origin, since it was not there
  std::int64_t recomputed = 0;  ///< computed, since it was damaged
  std::uint64_t bytes_read = 0;
};

/// One worker's counts. Only that worker adds; anybody may read at any time.
class CacheCounter {
 public:
  void hit(std::size_t bytes) {
    add(hits_, 1);
    add(bytes_, bytes);
  }
  void miss() { add(misses_, 1); }
  void recompute() { add(recomputed_, 1); }
  void add_to(CacheStats& sum) const;

 private:
  // relaxed: a single writer, and readers want a recent value, not an ordering.
  static void add(std::atomic<std::uint64_t>& sum, std::uint64_t n) {
    sum.store(sum.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  alignas(64) std::atomic<std::uint64_t> hits_{0}, misses_{0}, recomputed_{0}, bytes_{0};
};

/// The arrays beside the mel, as batch buffers want to know them.
std::vector<ExtraKind> extra_kinds(const Dataset& dataset);

/// What all workers share. Everything must outlive the jobs.
struct RowInputs {
  const Config& config;  ///< with `cache_kind` resolved
  const Dataset& dataset;
  const Mel& mel;
  const File& root;      ///< the folder that relative audio paths start at
  const Stores& stores;  ///< what there is to read from packs
  /// A cached array of utterance `number` was damaged and is computed again. Any thread.
  std::function<void(std::int64_t number, const std::string& reason)> damaged;
};

/// One per worker; allocates nothing once its scratch has grown to the longest clip (PCM WAV at the wanted
/// rate, or cached).
class RowJob {
 public:
  RowJob(const RowInputs& inputs, StageClock& clock, CacheCounter& counter);

  /// Puts member `member` of the dataset into the row, padding included: from the cache what is there, the
  /// rest is computed. Throws SampleError; the row may then be filled with another member.
  void fill(std::int64_t member, const Row& row);
  /// A row of length 0.
  void clear(const Row& row);
  StageClock& clock() { return clock_; }

  // One array from its origin: audio, text, an extra's .npy file. Padding is not touched. Throw SampleError.
  void compute_mel(std::int64_t member, const Row& row);
  /// The audio at sample_rate with 16 bits: what `cache_kind: pcm` stores. Valid until the next call.
  std::span<const std::int16_t> compute_samples(std::int64_t member);
  void compute_tokens(std::int64_t member, const Row& row);
  void compute_extra(std::size_t extra, std::int64_t member, const Row& row);

 private:
  template <typename Read>
  bool from_cache(std::int64_t member, bool rebuild, Read&& read);
  void fill_mel(std::int64_t member, const Row& row);
  bool read_samples(std::int64_t member, std::span<const float>& audio);
  bool read_mel(std::int64_t member, const Row& row);
  bool mel_from_tree(std::int64_t member, const Row& row);
  bool read_tokens(std::int64_t member, const Row& row);
  bool tokens_from_tree(std::int64_t member, const Row& row);
  bool read_extra(std::size_t extra, std::int64_t member, const Row& row);
  bool nothing_in(const NpyTree& tree, std::int64_t member) const;

  template <typename Work>
  void name_errors(std::int64_t member, Work&& work);
  [[nodiscard]] std::string_view id_of(std::int64_t member) const;
  std::span<const std::byte> read(const Utterance& utterance);
  std::span<const float> decode(const Utterance& utterance);
  std::span<const std::int16_t> to_16_bits(std::span<const float> audio);
  std::span<const float> round_to_16_bits(std::span<const float> audio);
  void place_mel(std::int64_t member, std::span<const float> audio, const Row& row);
  void transform(std::span<const float> audio, const Row& row);
  void round_as_cached(const Row& row);
  void pad(const Row& row);

  const RowInputs& in_;
  StageClock& clock_;
  CacheCounter& counter_;
  Decoder decoder_;
  MelScratch mel_scratch_;
  TextScratch text_scratch_;
  Scratch<std::byte> bytes_;
  Scratch<float> floats_;
  Scratch<std::int16_t> samples_;
};

}  // namespace penstock
