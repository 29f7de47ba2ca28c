// Reading a record allocates nothing.
#include <cstdlib>
#include <new>

#include "tests/cache/pack_samples.h"

namespace {
thread_local long allocations = 0;

void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

// Not inlined, or the compiler sees that new and free() meet.
[[gnu::noinline]] void* operator new(std::size_t size) { return counted(size, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t a) {
  return counted(size, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace penstock {
namespace {

TEST(PackMemory, ReadingAllocatesNothing) {
  const PackFolder folder;
  const auto samples = make_samples(50, 1);
  write_pack(folder, samples);
  for (const bool mapped : {true, false}) {
    const Pack pack(folder.pack(), folder.identity, {.mapped = mapped});
    std::vector<std::byte> into(100'000);
    Scratch<std::byte> scratch;
    scratch.of(into.size());
    std::size_t seen = 0;
    const long before = allocations;
    for (int twice = 0; twice < 2; ++twice)
      for (const Sample& s : samples) {
        const PackEntry* e = pack.find(s.id, s.source.name);
        pack.will_need(*e);
        pack.read(*e, std::span(into).first(e->bytes));
        pack.read(*e, scratch, [&](std::span<const std::byte> payload) { seen += payload.size(); });
      }
    EXPECT_EQ(allocations, before);
    EXPECT_GT(seen, 0u);
  }
}

}  // namespace
}  // namespace penstock
