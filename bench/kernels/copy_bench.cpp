// From a cache's file into the rows of a batch: rows/s (items_per_second) and CPU time of the ways to do it,
// for 1,000 records (180 MB) and 13,100 (2.4 GB, past any cache of a CPU). `limit` is what `penstock bench`
// takes as the machine's: memcpy from memory, and zeros behind it. Compare in one interleaved run:
//   bench_copy --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
//              --benchmark_report_aggregates_only=true --benchmark_filter=records:1000/
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "penstock/core/file.h"
#include "penstock/features/half.h"

namespace {

using namespace penstock;

constexpr std::size_t bins = 80, row_floats = 880 * bins, rows = 8 * 16;  // a ring of 8 batches of 16

/// A mel in the file: where its bytes begin, and how many elements it has.
struct Record {
  std::size_t at, size;
};

/// A file without a name, mapped, with mels of 200 to 870 frames in it; `records` are in a random order.
struct Source {
  File file;
  const std::byte* bytes = nullptr;
  std::vector<Record> records;
};

Source make_source(std::size_t count, std::size_t element) {
  std::mt19937 random(1);
  std::normal_distribution<double> frames(567, 140);
  Source source;
  std::size_t end = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = static_cast<std::size_t>(std::clamp(frames(random), 200.0, 870.0)) * bins;
    source.records.push_back({end + 128, size});  // behind a header, as in a pack
    end += 128 + (size * element + 63) / 64 * 64;
  }
  std::shuffle(source.records.begin(), source.records.end(), random);
  source.file =
      File(::open(std::filesystem::temp_directory_path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const std::vector<std::byte> block(std::size_t{1} << 20, std::byte{0x3C});
  for (std::size_t at = 0; at < end; at += block.size())
    if (::pwrite(source.file.fd(), block.data(), block.size(), static_cast<off_t>(at)) !=
        static_cast<ssize_t>(block.size()))
      throw std::runtime_error("the temporary folder must have room for the file");
  void* mapped = ::mmap(nullptr, end, PROT_READ, MAP_SHARED | MAP_POPULATE, source.file.fd(), 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("the file could not be mapped");
  source.bytes = static_cast<const std::byte*>(mapped);
  return source;
}

const Source& source_of(std::size_t count, std::size_t element) {
  static std::mutex mutex;
  static std::map<std::pair<std::size_t, std::size_t>, Source> made;
  const std::lock_guard lock(mutex);
  const auto found = made.find({count, element});
  if (found != made.end()) return found->second;
  return made.emplace(std::pair{count, element}, make_source(count, element)).first->second;
}

float* touched_ring() {
  static Scratch<float> memory;
  static const std::span<float> ring = [] {
    const std::span<float> all = memory.of(rows * row_floats);
    std::fill(all.begin(), all.end(), 0.0F);
    return all;
  }();
  return ring.data();
}

/// Calls copy(source, record, row) for row after row of the ring; threads share the work.
template <typename T, typename Copy>
void copy_rows(benchmark::State& state, const Copy& copy) {
  static std::atomic<std::size_t> next{0};
  float* const ring = touched_ring();
  const Source& source = source_of(static_cast<std::size_t>(state.range(0)), sizeof(T));
  for (auto _ : state) {
    const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
    copy(source, source.records[i % source.records.size()], ring + i % rows * row_floats);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations());
}

template <typename T>
std::span<const T> mapped(const Source& source, const Record& record) {
  return {reinterpret_cast<const T*>(source.bytes + record.at), record.size};
}

void read(const Source& source, const Record& record, std::span<std::byte> into) {
  if (source.file.read_at(static_cast<std::int64_t>(record.at), into) != into.size()) std::abort();
}

void limit(benchmark::State& state) {
  static const std::vector<float> clips(256 * 567 * bins, 1.0F);
  static std::atomic<std::size_t> clip{0};
  copy_rows<float>(state, [](const Source&, const Record&, float* to) {
    constexpr std::size_t valid = 567 * bins;
    std::memcpy(to, clips.data() + clip.fetch_add(1, std::memory_order_relaxed) % 256 * valid,
                valid * sizeof(float));
    std::memset(to + valid, 0, (row_floats - valid) * sizeof(float));
  });
}

void float32_memcpy(benchmark::State& state) {
  copy_rows<float>(state, [](const Source& source, const Record& record, float* to) {
    std::memcpy(to, source.bytes + record.at, record.size * sizeof(float));
  });
}

void float32_copy_row(benchmark::State& state) {
  copy_rows<float>(state, [](const Source& source, const Record& record, float* to) {
    copy_row(mapped<float>(source, record), to);
  });
}

void float32_pread(benchmark::State& state) {
  copy_rows<float>(state, [](const Source& source, const Record& record, float* to) {
    read(source, record, std::as_writable_bytes(std::span(to, record.size)));
  });
}

void float16_widen_half(benchmark::State& state) {
  copy_rows<std::uint16_t>(state, [](const Source& source, const Record& record, float* to) {
    widen_half(mapped<std::uint16_t>(source, record), to);
  });
}

void float16_copy_row(benchmark::State& state) {
  copy_rows<std::uint16_t>(state, [](const Source& source, const Record& record, float* to) {
    copy_row(mapped<std::uint16_t>(source, record), to);
  });
}

void float16_pread_copy_row(benchmark::State& state) {
  Scratch<std::uint16_t> scratch;
  copy_rows<std::uint16_t>(state, [&](const Source& source, const Record& record, float* to) {
    const std::span<std::uint16_t> halves = scratch.of(record.size);
    read(source, record, std::as_writable_bytes(halves));
    copy_row(halves, to);
  });
}

void both_sizes(benchmark::internal::Benchmark* b) {
  b->ArgName("records")->Arg(1000)->Arg(13'100)->Threads(1)->Threads(2)->UseRealTime();
  b->Unit(benchmark::kMicrosecond);
}
BENCHMARK(limit)->Apply(both_sizes);
BENCHMARK(float32_memcpy)->Apply(both_sizes);
BENCHMARK(float32_copy_row)->Apply(both_sizes);
BENCHMARK(float32_pread)->Apply(both_sizes);
BENCHMARK(float16_widen_half)->Apply(both_sizes);
BENCHMARK(float16_copy_row)->Apply(both_sizes);
BENCHMARK(float16_pread_copy_row)->Apply(both_sizes);

}  // namespace

BENCHMARK_MAIN();
