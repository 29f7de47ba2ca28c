#include "penstock/core/memory.h"

#include <new>

namespace penstock {
namespace {

constexpr std::align_val_t line{64};

class Heap final : public BatchMemory {
 public:
  void* allocate(std::size_t bytes) override { return ::operator new(bytes, line); }
  void release(void* memory) noexcept override { ::operator delete(memory, line); }
};

}  // namespace

std::shared_ptr<BatchMemory> heap_memory() {
  static const auto heap = std::make_shared<Heap>();
  return heap;
}

}  // namespace penstock
