// The memory of batches, and the ring of slots whose rows workers claim.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "penstock/core/memory.h"
#include "penstock/core/threads.h"
#include "penstock/core/types.h"
#include "penstock/plan/plan.h"

namespace penstock {

/// An extra array's memory in a batch: rows of `row_bytes`.
struct ExtraField {
  std::byte* data = nullptr;
  std::size_t row_bytes = 0;
};

/// What an extra array is, without its data.
struct ExtraKind {
  std::string name;
  Along along = Along::nothing;
  std::int32_t width = 1;
  ElementType type = ElementType::float32;
};

/// One row of a batch, to be written by one worker.
struct Row {
  std::span<std::int32_t> tokens;  ///< [tokens]
  std::span<float> mel;            ///< [frames, bins] or [bins, frames]
  std::int32_t& token_length;
  std::int32_t& mel_length;
  std::int32_t& speaker;
  std::int64_t& utterance;
  std::uint8_t& replaced;
  /// How far this row's memory may hold something other than padding; whoever writes keeps it up to date.
  std::int32_t& dirty_tokens;
  std::int32_t& dirty_frames;
  std::span<const ExtraField> extras;
  std::int32_t number = 0;  ///< in its batch

  [[nodiscard]] std::span<std::byte> extra(std::size_t i) const {
    return {extras[i].data + static_cast<std::size_t>(number) * extras[i].row_bytes, extras[i].row_bytes};
  }
};

/// Memory for a batch of any of a plan's shapes: one block, whose arrays move with the shape.
class BatchBuffer {
 public:
  /// `shapes` are all that it may take: its size is that of the one with the most bytes.
  BatchBuffer(std::span<const Shape> shapes, std::int32_t bins, std::span<const ExtraKind> extras = {},
              std::shared_ptr<BatchMemory> memory = heap_memory());

  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< for the largest shape
  /// The arrays take this shape. Rows whose padding is not known to be clean any more are marked dirty: those
  /// of another shape, and all when a consumer has written into them.
  void reshape(const Shape& shape);
  Row row(std::int32_t r);
  /// The arrays as a batch shows them; `self` keeps the memory alive.
  [[nodiscard]] Batch view(std::shared_ptr<const BatchBuffer> self, std::int64_t epoch,
                           std::int64_t step) const;

 private:
  struct Release {
    std::shared_ptr<BatchMemory> memory;
    void operator()(std::byte* p) const { memory->release(p); }
  };
  /// Where the arrays of a shape lie in the block.
  struct Layout {
    std::size_t token_lengths = 0, mel_lengths = 0, speakers = 0, utterances = 0, replaced = 0;
    std::size_t small_bytes = 0;  // the above
    std::size_t tokens = 0, mel = 0, bytes = 0;
    std::vector<std::size_t> extras;
  };
  [[nodiscard]] Layout layout_of(const Shape& shape) const;
  template <typename T>
  [[nodiscard]] T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(block_.get() + offset);
  }

  std::int32_t bins_;
  std::size_t bytes_ = 0;
  std::vector<ExtraKind> extra_kinds_;
  std::unique_ptr<std::byte[], Release> block_;
  std::vector<std::int32_t> dirty_tokens_, dirty_frames_;
  mutable std::atomic<bool> written_{false};  // by a consumer
  // Of the present shape.
  Shape shape_;
  Layout layout_;
  std::vector<ExtraField> extra_fields_;
  std::vector<ExtraArray> extra_arrays_;
};

/// Buffers that come back by themselves when the last holder lets go, from any thread, also after the pool is
/// gone.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  BufferPool(std::span<const Shape> shapes, std::int32_t bins, std::span<const ExtraKind> extras,
             std::size_t most, std::shared_ptr<BatchMemory> memory)
      : shapes_(shapes.begin(), shapes.end()),
        bins_(bins),
        extras_(extras.begin(), extras.end()),
        most_(most),
        memory_(std::move(memory)) {}

  /// A free buffer, or a new one. Throws Error when `most` are in use: the consumer keeps too many batches.
  std::shared_ptr<BatchBuffer> take();
  /// From here on no more free buffers than that are kept for later.
  void keep(std::size_t free);
  [[nodiscard]] std::size_t made() const;          ///< and not given up since
  [[nodiscard]] std::size_t buffer_bytes() const;  ///< of each

 private:
  std::unique_ptr<BatchBuffer> make();
  void give_back(std::unique_ptr<BatchBuffer> buffer);

  const std::vector<Shape> shapes_;
  const std::int32_t bins_;
  const std::vector<ExtraKind> extras_;
  const std::size_t most_;
  const std::shared_ptr<BatchMemory> memory_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<BatchBuffer>> free_;
  std::size_t made_ = 0, keep_ = most_, buffer_bytes_ = 0;
};

/// A place in the ring: the batch that is being filled or waits for the consumer.
///
/// The consumer opens it; workers claim rows and finish them; the consumer takes the batch when all are
/// finished. Between opening and taking only workers touch the buffer, each the rows that it claimed.
class Slot {
 public:
  struct Contents {
    BatchPlan plan;
    std::int64_t epoch = 0, step = 0;
    std::shared_ptr<BatchBuffer> buffer;
    std::chrono::steady_clock::time_point opened;  // of a timeline
  };

  /// Consumer. `sequence` numbers the batches of a run from 1.
  void open(std::uint64_t sequence, Contents contents);
  static constexpr std::int32_t not_open = -1, none_left = -2;
  /// Workers. The next unclaimed row of batch `sequence`; not_open when the slot has not come round to it
  /// yet, none_left when all are claimed.
  std::int32_t claim(std::uint64_t sequence);
  /// Workers. The row that was claimed is done; with `error` the batch will not be delivered. True for the
  /// last row.
  bool finish(std::int32_t row, std::exception_ptr error = nullptr);
  /// Consumer. Waits for the last row and throws the error of the first bad one.
  void wait(const Poll& poll = {});
  [[nodiscard]] bool ready() const;

  // For a timeline. Workers: a row was done at this time, before finish() says so.
  void note_row_end(std::chrono::steady_clock::time_point time);
  /// Consumer, behind wait(): when the last row was done.
  [[nodiscard]] std::chrono::steady_clock::time_point filled() const;

  Contents contents;

 private:
  // The batch's number and the rows not yet claimed in one word, so that a row is claimed for the batch that
  // was looked at or not at all.
  static constexpr int row_bits = 16;
  std::atomic<std::uint64_t> claim_{0};
  std::atomic<std::uint32_t> unfinished_{0};
  std::atomic<std::chrono::steady_clock::rep> row_end_{0};
  std::mutex mutex_;  // of what follows
  std::condition_variable finished_;
  std::exception_ptr error_;
  std::int32_t error_row_ = 0;
};

}  // namespace penstock
