// What the plan costs: once when a feed opens (shapes, buckets), and for every batch and row after that.
#include <algorithm>
#include <random>

#include <benchmark/benchmark.h>

#include "penstock/plan/permutation.h"
#include "penstock/plan/plan.h"
#include "penstock/plan/shapes.h"

namespace {

using namespace penstock;

constexpr std::int32_t rows = 16;

/// Lengths like those of read sentences: 1.1 to 10.1 s at 86 frames a second, 14.5 characters a second give
/// or take.
std::vector<Lengths> speech(std::int64_t count) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> seconds(6.6, 2.2);
  std::normal_distribution<double> pace(14.5, 1.8);
  std::vector<Lengths> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    const double duration = std::clamp(seconds(random), 1.1, 10.1);
    const double characters = std::clamp(duration * pace(random), 4.0, 250.0);
    lengths.push_back({static_cast<std::int32_t>(characters), static_cast<std::int32_t>(duration * 86.13)});
  }
  return lengths;
}

/// The worst case: tokens and frames that have nothing to do with each other, over the whole grid.
std::vector<Lengths> unrelated(std::int64_t count) {
  std::mt19937_64 random(1);
  std::uniform_int_distribution<std::int32_t> length(1, 4000);
  std::vector<Lengths> lengths;
  for (std::int64_t i = 0; i < count; ++i) lengths.push_back({length(random), length(random)});
  return lengths;
}

void choose(benchmark::State& state, const std::vector<Lengths>& lengths) {
  for (auto _ : state)
    benchmark::DoNotOptimize(choose_shapes(lengths, static_cast<int>(state.range(1)), rows));
}
void choose_shapes_speech(benchmark::State& state) { choose(state, speech(state.range(0))); }
void choose_shapes_unrelated(benchmark::State& state) { choose(state, unrelated(state.range(0))); }
BENCHMARK(choose_shapes_speech)
    ->ArgNames({"utterances", "shapes"})
    ->ArgsProduct({{1000, 13'100, 1'000'000}, {4, 8}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(choose_shapes_unrelated)
    ->ArgNames({"utterances", "shapes"})
    ->ArgsProduct({{1000, 13'100, 1'000'000}, {4, 8}})
    ->Unit(benchmark::kMillisecond);

void permute_one(benchmark::State& state) {
  const auto n = static_cast<std::uint64_t>(state.range(0));
  std::uint64_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(permute(i, n, 42));
    if (++i == n) i = 0;
  }
}
// The last is the slowest kind: one over a power of two.
BENCHMARK(permute_one)->Arg(60)->Arg(1000)->Arg(13'100)->Arg(10'000'000)->Arg((1 << 20) + 1);

void build_plan(benchmark::State& state) {
  const std::vector<Lengths> lengths = speech(state.range(0));
  const std::vector<Shape> shapes = choose_shapes(lengths, 4, rows);
  for (auto _ : state) benchmark::DoNotOptimize(Plan(lengths, shapes, {}));
}
BENCHMARK(build_plan)->Arg(1000)->Arg(13'100)->Arg(1'000'000)->Arg(10'000'000)->Unit(benchmark::kMillisecond);

void batch_and_rows(benchmark::State& state) {
  const std::vector<Lengths> lengths = speech(state.range(0));
  const Plan plan(lengths, choose_shapes(lengths, 4, rows), {});
  std::int64_t step = 0;
  for (auto _ : state) {
    const BatchPlan batch = plan.batch(0, step);
    for (std::int32_t row = 0; row < rows; ++row) benchmark::DoNotOptimize(plan.utterance(batch, row));
    if (++step == plan.steps_per_epoch()) step = 0;
  }
  state.counters["per_row"] = benchmark::Counter(static_cast<double>(state.iterations()) * rows,
                                                 benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(batch_and_rows)->Arg(1000)->Arg(13'100)->Arg(1'000'000);

}  // namespace

BENCHMARK_MAIN();
