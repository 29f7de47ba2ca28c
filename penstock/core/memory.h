// Where the memory of batches comes from: the heap, or what a device can copy from while its host goes on.
#pragma once
#include <cstddef>
#include <memory>

namespace penstock {

/// Any thread.
class BatchMemory {
 public:
  BatchMemory() = default;
  BatchMemory(const BatchMemory&) = delete;
  BatchMemory& operator=(const BatchMemory&) = delete;
  virtual ~BatchMemory() = default;

  /// At least 64-byte aligned. Throws Error or std::bad_alloc.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
};

/// Ordinary memory.
std::shared_ptr<BatchMemory> heap_memory();

}  // namespace penstock
