// Batches whose every byte is known from their number, in slots that are used again as soon as they are let
// go of.
#pragma once
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "penstock/core/memory.h"
#include "penstock/core/random.h"
#include "penstock/core/types.h"

namespace penstock {

inline std::uint32_t word(std::int64_t batch, std::size_t position) {
  return static_cast<std::uint32_t>(mix(static_cast<std::uint64_t>(batch), position));
}

/// What is wrong with `array`, which lies `offset` bytes into the block of batch `number`; empty: nothing.
inline std::string difference(std::span<const std::byte> array, std::size_t offset, std::int64_t number) {
  for (std::size_t at = 0; at < array.size(); ++at) {
    const std::uint32_t expected = word(number, (offset + at) / 4);
    const auto byte = static_cast<std::byte>(expected >> ((offset + at) % 4 * 8));
    if (array[at] != byte)
      return fmt::format("batch {}: byte {} of its block must be {:02x}, but is {:02x}", number, offset + at,
                         std::to_integer<int>(byte), std::to_integer<int>(array[at]));
  }
  return {};
}

class TestSlots {
 public:
  explicit TestSlots(std::shared_ptr<BatchMemory> memory, std::size_t capacity = 65536)
      : pool_(std::make_shared<Pool>(std::move(memory), capacity)) {}

  /// A full batch of this shape, with two extra arrays.
  Batch fill(std::int64_t number, Shape shape, std::int32_t bins = 8) {
    auto slot = pool_->take();
    std::size_t end = 0;
    const auto add = [&]<typename T>(std::span<const T>& array, std::size_t count) {
      array = {reinterpret_cast<const T*>(slot->block + end), count};
      end = (end + count * sizeof(T) + 63) / 64 * 64;
    };
    Batch batch{.shape = shape, .bins = bins, .epoch = number / 7, .step = number};
    const auto rows = static_cast<std::size_t>(shape.rows);
    add(batch.token_lengths, rows);
    add(batch.mel_lengths, rows);
    add(batch.speakers, rows);
    add(batch.utterances, rows);
    add(batch.replaced, rows);
    batch.small_bytes = end;
    add(batch.tokens, rows * static_cast<std::size_t>(shape.tokens));
    add(batch.mel, rows * static_cast<std::size_t>(shape.frames * bins));
    slot->extras[0] = {.name = slot->names[0], .along = Along::frames, .width = 4};
    slot->extras[1] = {.name = slot->names[1], .along = Along::nothing, .width = 4};
    add(slot->extras[0].data, rows * static_cast<std::size_t>(shape.frames) * 4);
    add(slot->extras[1].data, rows * 4);
    batch.extras = slot->extras;
    batch.block = {slot->block, end};
    for (std::size_t i = 0; i < end / 4; ++i) {
      const std::uint32_t value = word(number, i);
      std::memcpy(slot->block + i * 4, &value, 4);
    }
    batch.memory = std::move(slot);
    return batch;
  }

  /// How many slots were needed so far.
  [[nodiscard]] std::size_t made() const { return pool_->made(); }

 private:
  struct Slot {
    std::byte* block = nullptr;
    std::vector<std::string> names = {"pitch", "energy"};
    std::vector<ExtraArray> extras = std::vector<ExtraArray>(2);
  };

  class Pool : public std::enable_shared_from_this<Pool> {
   public:
    Pool(std::shared_ptr<BatchMemory> memory, std::size_t capacity)
        : memory_(std::move(memory)), capacity_(capacity) {}
    ~Pool() {
      for (Slot* slot : free_) {
        memory_->release(slot->block);
        delete slot;
      }
    }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    std::shared_ptr<Slot> take() {
      const std::lock_guard lock(mutex_);
      if (free_.empty()) {
        auto slot = std::make_unique<Slot>();
        slot->block = static_cast<std::byte*>(memory_->allocate(capacity_));
        free_.push_back(slot.release());
        ++made_;
      }
      Slot* slot = free_.back();
      free_.pop_back();
      return {slot, [self = shared_from_this()](Slot* used) { self->give_back(used); }};
    }
    std::size_t made() const {
      const std::lock_guard lock(mutex_);
      return made_;
    }

   private:
    void give_back(Slot* slot) {
      const std::lock_guard lock(mutex_);
      free_.push_back(slot);
    }

    std::shared_ptr<BatchMemory> memory_;
    std::size_t capacity_, made_ = 0;
    mutable std::mutex mutex_;
    std::vector<Slot*> free_;
  };

  std::shared_ptr<Pool> pool_;
};

}  // namespace penstock
