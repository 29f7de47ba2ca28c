#include "penstock/feed/slots.h"

#include <algorithm>
#include <new>

#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

constexpr std::align_val_t line{64};

std::size_t area(std::int32_t a, std::int32_t b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

std::size_t extra_row_bytes(const ExtraKind& kind, const Shape& shape) {
  const std::int32_t length = kind.along == Along::frames   ? shape.frames
                              : kind.along == Along::tokens ? shape.tokens
                                                            : 1;
  return area(length, kind.width) * element_bytes(kind.type);
}

}  // namespace

void BatchBuffer::Free::operator()(float* p) const { ::operator delete[](p, line); }

BatchBuffer::BatchBuffer(const Shape& largest, std::int32_t bins, std::span<const ExtraKind> extras)
    : bins_(bins),
      mel_(static_cast<float*>(::operator new[](
          area(largest.rows, largest.frames) * static_cast<std::size_t>(bins) * sizeof(float), line))),
      tokens_(area(largest.rows, largest.tokens)),
      extra_kinds_(extras.begin(), extras.end()) {
  const auto rows = static_cast<std::size_t>(largest.rows);
  for (auto* v : {&token_lengths_, &mel_lengths_, &speakers_, &dirty_tokens_, &dirty_frames_})
    v->resize(rows);
  utterances_.resize(rows);
  replaced_.resize(rows);
  for (const ExtraKind& kind : extra_kinds_) {
    extra_memory_.emplace_back(rows * extra_row_bytes(kind, largest));
    extra_fields_.push_back({.data = extra_memory_.back().data()});
    extra_arrays_.push_back({.name = kind.name, .along = kind.along, .width = kind.width, .type = kind.type});
  }
}

void BatchBuffer::reshape(const Shape& shape) {
  if (shape == shape_) return;
  shape_ = shape;
  std::fill(dirty_tokens_.begin(), dirty_tokens_.end(), shape.tokens);
  std::fill(dirty_frames_.begin(), dirty_frames_.end(), shape.frames);
  for (std::size_t i = 0; i < extra_kinds_.size(); ++i) {
    extra_fields_[i].row_bytes = extra_row_bytes(extra_kinds_[i], shape);
    extra_arrays_[i].data = {extra_fields_[i].data,
                             static_cast<std::size_t>(shape.rows) * extra_fields_[i].row_bytes};
  }
}

Row BatchBuffer::row(std::int32_t r) {
  const auto i = static_cast<std::size_t>(r);
  const std::size_t mel_size = area(shape_.frames, bins_),
                    token_size = static_cast<std::size_t>(shape_.tokens);
  return {.tokens = {tokens_.data() + i * token_size, token_size},
          .mel = {mel_.get() + i * mel_size, mel_size},
          .token_length = token_lengths_[i],
          .mel_length = mel_lengths_[i],
          .speaker = speakers_[i],
          .utterance = utterances_[i],
          .replaced = replaced_[i],
          .dirty_tokens = dirty_tokens_[i],
          .dirty_frames = dirty_frames_[i],
          .extras = extra_fields_,
          .number = r};
}

Batch BatchBuffer::view(std::shared_ptr<const BatchBuffer> self, std::int64_t epoch,
                        std::int64_t step) const {
  const auto rows = static_cast<std::size_t>(shape_.rows);
  return {.shape = shape_,
          .bins = bins_,
          .epoch = epoch,
          .step = step,
          .tokens = {tokens_.data(), area(shape_.rows, shape_.tokens)},
          .token_lengths = {token_lengths_.data(), rows},
          .mel = {mel_.get(), area(shape_.rows, shape_.frames) * static_cast<std::size_t>(bins_)},
          .mel_lengths = {mel_lengths_.data(), rows},
          .speakers = {speakers_.data(), rows},
          .utterances = {utterances_.data(), rows},
          .replaced = {replaced_.data(), rows},
          .extras = extra_arrays_,
          .memory = std::move(self)};
}

std::shared_ptr<BatchBuffer> BufferPool::take() {
  std::unique_ptr<BatchBuffer> buffer;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      buffer = std::move(free_.back());
      free_.pop_back();
    } else if (made_ < most_) {
      ++made_;
    } else {
      throw Error(
          fmt::format("all {} batch buffers are in use: let go of batches (or copy what is kept), or raise "
                      "prefetch_buffer_size",
                      most_));
    }
  }
  if (!buffer) buffer = std::make_unique<BatchBuffer>(largest_, bins_, extras_);
  BatchBuffer* raw = buffer.release();
  return {raw,
          [pool = shared_from_this()](BatchBuffer* b) { pool->give_back(std::unique_ptr<BatchBuffer>(b)); }};
}

void BufferPool::give_back(std::unique_ptr<BatchBuffer> buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(buffer));
}

std::size_t BufferPool::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

void Slot::open(std::uint64_t sequence, Contents next) {
  contents = std::move(next);
  contents.buffer->reshape(contents.plan.shape);
  error_ = nullptr;
  const auto rows = static_cast<std::uint32_t>(contents.plan.shape.rows);
  unfinished_.store(rows, std::memory_order_relaxed);
  // release: a worker that sees the new number (acquire, in claim) sees all of the above.
  claim_.store(sequence << row_bits | rows, std::memory_order_release);
}

std::optional<std::int32_t> Slot::claim(std::uint64_t sequence) {
  std::uint64_t word = claim_.load(std::memory_order_acquire);
  for (;;) {
    const auto left = static_cast<std::int32_t>(word & ((1u << row_bits) - 1));
    if (word >> row_bits != sequence || left == 0) return std::nullopt;
    if (claim_.compare_exchange_weak(word, word - 1, std::memory_order_acquire))
      return contents.plan.shape.rows - left;
  }
}

bool Slot::before(std::uint64_t sequence) const {
  return claim_.load(std::memory_order_relaxed) >> row_bits < sequence;
}

bool Slot::finish(std::int32_t row, std::exception_ptr error) {
  if (error) {
    const std::lock_guard lock(error_mutex_);
    if (!error_ || row < error_row_) error_ = std::move(error), error_row_ = row;
  }
  // release: the consumer's acquire in wait() sees the rows of all workers; acquire for the chain of
  // decrements.
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  unfinished_.notify_one();
  return true;
}

void Slot::wait() {
  for (std::uint32_t left; (left = unfinished_.load(std::memory_order_acquire)) != 0;)
    unfinished_.wait(left, std::memory_order_acquire);
  if (error_) std::rethrow_exception(error_);
}

bool Slot::ready() const { return unfinished_.load(std::memory_order_relaxed) == 0; }

}  // namespace penstock
