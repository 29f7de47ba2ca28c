// Memory: no allocation per sample once the feed runs, and no growth over many epochs.
// This program's own malloc family counts; the sanitizers bring theirs, so there only growth is looked at.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <malloc.h>

#include "penstock/feed/cache.h"
#include "penstock/feed/feed.h"
#include "tests/feed/made_dataset.h"
#include "tests/long_run.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PENSTOCK_COUNTS_ALLOCATIONS 0
#else
#define PENSTOCK_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::atomic<long> allocations{0};
}

#if PENSTOCK_COUNTS_ALLOCATIONS
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): glibc's own names
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t m) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(n, m);
}
void* realloc(void* p, size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(p, n);
}
void* aligned_alloc(size_t a, size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(a, n);
}
int posix_memalign(void** p, size_t a, size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  *p = __libc_memalign(a, n);
  return *p == nullptr ? ENOMEM : 0;
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
#endif

namespace penstock {
namespace {

long resident_kb(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    long value = 0;
    if (name == field && status >> value) return value;
    status.ignore(1 << 16, '\n');
  }
  return 0;
}

#if PENSTOCK_COUNTS_ALLOCATIONS
void expect_no_allocation_per_sample(const Config& config, const char* what) {
  Feed feed(config);
  const auto run = [&](std::int64_t epochs) {
    for (std::int64_t i = 0; i < epochs * feed.plan().steps_per_epoch(); ++i) feed.next();
  };
  run(20);  // every worker's scratch has seen the longest clip
  const long before = allocations;
  constexpr long epochs = 50;
  run(epochs);
  const long batches = epochs * feed.plan().steps_per_epoch();
  // What is left is the shared handle of each batch.
  EXPECT_LE(allocations - before, batches) << what;
  printf("EVIDENCE allocations for %ld samples, %s | none per sample | %ld, one for each of %ld batches\n",
         batches * config.batch_size, what, allocations - before, batches);
}

TEST(Allocation, NoneForASampleInTheSteadyState) {
  const MadeDataset made(64);
  Config config = made.config();
  config.batch_size = 32;
  config.shapes = 1;
  config.preprocessing_mode = PreprocessingMode::runtime;
  expect_no_allocation_per_sample(config, "PCM WAV");
  config.preprocessing_mode = PreprocessingMode::precompute;
  expect_no_allocation_per_sample(config, "cached");
  config.cache_type = CacheType::float16;
  config.enable_memory_mapping = false;
  expect_no_allocation_per_sample(config, "cached in float16, not mapped");
  config.cache_kind = CacheKind::pcm;
  expect_no_allocation_per_sample(config, "cached samples, not mapped");
  config.enable_memory_mapping = true;
  expect_no_allocation_per_sample(config, "cached samples");
  config.preprocessing_mode = PreprocessingMode::runtime;
  expect_no_allocation_per_sample(config, "PCM WAV rounded to 16 bits");
  config.preprocessing_mode = PreprocessingMode::precompute;
  config.npy_mels = made.folder() / "npy/mels";
  config.npy_tokens = made.folder() / "npy/tokens";
  export_npy(made.config(), open_dataset(made.config()), made.folder() / "npy");
  expect_no_allocation_per_sample(config, ".npy trees");
}
#endif

TEST(Allocation, MemoryIsFlatOverManyEpochs) {
  const MadeDataset made(60);
  Feed feed(made.config());
  const auto run = [&](std::int64_t epochs) {
    for (std::int64_t i = 0; i < epochs * feed.plan().steps_per_epoch(); ++i) feed.next();
  };
  run(10);
  const long before = resident_kb("RssAnon:");
  run(slow_cases(100, 100));
  const long after = resident_kb("RssAnon:");
  EXPECT_LE(after - before, 1024) << before << " KiB before, " << after << " KiB after";
  printf(
      "EVIDENCE anonymous memory after 100 more epochs | flat (within 1 MiB) | %ld KiB before, %ld KiB "
      "after\n",
      before, after);
}

}  // namespace
}  // namespace penstock
