#include "penstock/feed/slots.h"

#include <algorithm>

#include <fmt/format.h>

#include "penstock/core/clock.h"
#include "penstock/core/error.h"

namespace penstock {
namespace {

constexpr std::size_t line = 64;

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

BatchBuffer::BatchBuffer(std::span<const Shape> shapes, std::int32_t bins, std::span<const ExtraKind> extras,
                         std::shared_ptr<BatchMemory> memory)
    : bins_(bins), extra_kinds_(extras.begin(), extras.end()), block_(nullptr, Release{std::move(memory)}) {
  std::size_t rows = 0;
  for (const Shape& shape : shapes) {
    bytes_ = std::max(bytes_, layout_of(shape).bytes);
    rows = std::max(rows, static_cast<std::size_t>(shape.rows));
  }
  dirty_tokens_.resize(rows);
  dirty_frames_.resize(rows);
  block_.reset(static_cast<std::byte*>(block_.get_deleter().memory->allocate(bytes_)));
  for (const ExtraKind& kind : extra_kinds_)
    extra_arrays_.push_back({.name = kind.name, .along = kind.along, .width = kind.width, .type = kind.type});
  extra_fields_.resize(extra_kinds_.size());
}

BatchBuffer::Layout BatchBuffer::layout_of(const Shape& shape) const {
  Layout layout;
  const auto add = [&](std::size_t bytes) {
    const std::size_t at = layout.bytes;
    layout.bytes = (at + bytes + line - 1) / line * line;
    return at;
  };
  const auto rows = static_cast<std::size_t>(shape.rows);
  layout.token_lengths = add(rows * sizeof(std::int32_t));
  layout.mel_lengths = add(rows * sizeof(std::int32_t));
  layout.speakers = add(rows * sizeof(std::int32_t));
  layout.utterances = add(rows * sizeof(std::int64_t));
  layout.replaced = add(rows);
  layout.small_bytes = layout.bytes;
  layout.tokens = add(area(shape.rows, shape.tokens) * sizeof(std::int32_t));
  layout.mel = add(area(shape.rows, shape.frames) * static_cast<std::size_t>(bins_) * sizeof(float));
  for (const ExtraKind& kind : extra_kinds_)
    layout.extras.push_back(add(rows * extra_row_bytes(kind, shape)));
  return layout;
}

void BatchBuffer::reshape(const Shape& shape) {
  // relaxed: who gave the buffer back has ordered it before this.
  if (!written_.exchange(false, std::memory_order_relaxed) && shape == shape_) return;
  shape_ = shape;
  layout_ = layout_of(shape);
  std::fill(dirty_tokens_.begin(), dirty_tokens_.end(), shape.tokens);
  std::fill(dirty_frames_.begin(), dirty_frames_.end(), shape.frames);
  for (std::size_t i = 0; i < extra_kinds_.size(); ++i) {
    const std::size_t row_bytes = extra_row_bytes(extra_kinds_[i], shape);
    extra_fields_[i] = {.data = at<std::byte>(layout_.extras[i]), .row_bytes = row_bytes};
    extra_arrays_[i].data = {extra_fields_[i].data, static_cast<std::size_t>(shape.rows) * row_bytes};
  }
}

Row BatchBuffer::row(std::int32_t r) {
  const auto i = static_cast<std::size_t>(r);
  const std::size_t mel_size = area(shape_.frames, bins_),
                    token_size = static_cast<std::size_t>(shape_.tokens);
  return {.tokens = {at<std::int32_t>(layout_.tokens) + i * token_size, token_size},
          .mel = {at<float>(layout_.mel) + i * mel_size, mel_size},
          .token_length = at<std::int32_t>(layout_.token_lengths)[i],
          .mel_length = at<std::int32_t>(layout_.mel_lengths)[i],
          .speaker = at<std::int32_t>(layout_.speakers)[i],
          .utterance = at<std::int64_t>(layout_.utterances)[i],
          .replaced = at<std::uint8_t>(layout_.replaced)[i],
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
          .tokens = {at<std::int32_t>(layout_.tokens), area(shape_.rows, shape_.tokens)},
          .token_lengths = {at<std::int32_t>(layout_.token_lengths), rows},
          .mel = {at<float>(layout_.mel), area(shape_.rows, shape_.frames) * static_cast<std::size_t>(bins_)},
          .mel_lengths = {at<std::int32_t>(layout_.mel_lengths), rows},
          .speakers = {at<std::int32_t>(layout_.speakers), rows},
          .utterances = {at<std::int64_t>(layout_.utterances), rows},
          .replaced = {at<std::uint8_t>(layout_.replaced), rows},
          .extras = extra_arrays_,
          .block = {block_.get(), layout_.bytes},
          .small_bytes = layout_.small_bytes,
          .memory = std::move(self),
          .written = &written_};
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
  if (!buffer) buffer = make();
  BatchBuffer* raw = buffer.release();
  return {raw,
          [pool = shared_from_this()](BatchBuffer* b) { pool->give_back(std::unique_ptr<BatchBuffer>(b)); }};
}

/// One that has been counted already.
std::unique_ptr<BatchBuffer> BufferPool::make() {
  try {
    auto buffer = std::make_unique<BatchBuffer>(shapes_, bins_, extras_, memory_);
    const std::lock_guard lock(mutex_);
    buffer_bytes_ = buffer->bytes();
    return buffer;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    --made_;
    throw;
  }
}

void BufferPool::give_back(std::unique_ptr<BatchBuffer> buffer) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < keep_)
    free_.push_back(std::move(buffer));
  else
    --made_;  // and the caller's argument ends it
}

void BufferPool::keep(std::size_t free) {
  std::vector<std::unique_ptr<BatchBuffer>> given_up;
  const std::lock_guard lock(mutex_);
  keep_ = free;
  for (; free_.size() > keep_; free_.pop_back(), --made_) given_up.push_back(std::move(free_.back()));
}

std::size_t BufferPool::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

std::size_t BufferPool::buffer_bytes() const {
  const std::lock_guard lock(mutex_);
  return buffer_bytes_;
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

std::int32_t Slot::claim(std::uint64_t sequence) {
  // All of the answer is from one look: the slot may open between two.
  std::uint64_t word = claim_.load(std::memory_order_acquire);
  for (;;) {
    const auto left = static_cast<std::int32_t>(word & ((1u << row_bits) - 1));
    if (word >> row_bits < sequence) return not_open;
    if (word >> row_bits > sequence || left == 0) return none_left;
    if (claim_.compare_exchange_weak(word, word - 1, std::memory_order_acquire))
      return contents.plan.shape.rows - left;
  }
}

bool Slot::finish(std::int32_t row, std::exception_ptr error) {
  if (error) {
    const std::lock_guard lock(mutex_);
    if (!error_ || row < error_row_) error_ = std::move(error), error_row_ = row;
  }
  // release: the consumer's acquire in wait() sees the rows of all workers; acquire for the chain of
  // decrements.
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  { const std::lock_guard lock(mutex_); }  // a consumer that has just looked sleeps now, and can be woken
  finished_.notify_one();
  return true;
}

void Slot::note_row_end(std::chrono::steady_clock::time_point time) {
  // relaxed: finish(), which follows, orders it before wait().
  const auto end = time.time_since_epoch().count();
  auto known = row_end_.load(std::memory_order_relaxed);
  while (known < end && !row_end_.compare_exchange_weak(known, end, std::memory_order_relaxed)) {
  }
}

std::chrono::steady_clock::time_point Slot::filled() const {
  return Clock::time_point(Clock::duration(row_end_.load(std::memory_order_relaxed)));
}

void Slot::wait(const Poll& poll) {
  const auto done = [&] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (!done()) {
    std::unique_lock lock(mutex_);
    wait_until(finished_, lock, poll, done);
  }
  if (error_) std::rethrow_exception(error_);
}

bool Slot::ready() const { return unfinished_.load(std::memory_order_relaxed) == 0; }

}  // namespace penstock
