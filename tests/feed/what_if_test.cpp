#include "penstock/feed/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using testing::IsEmpty;

constexpr double ms = 1e-3, us = 1e-6;
constexpr double frames = 500;
const Nominal plain{};

/// What a row costs in plain circumstances.
constexpr std::array<double, stage_count> plain_row = {60 * us, 40 * us, 250 * us, 1 * us, 0, 2 * us};

struct Circumstances {
  std::array<double, stage_count> row = plain_row;
  double step = 10 * ms, compile = 0, copy = 0, copy_wait = 0;
  int workers = 2, cpus = 2;
  double asleep = 0, ready = 0;  // of a row
  double other_cpus = 0, read_again = 50 * us;
  int stall_every = 0;  // batches
  double stall = 0;
};

/// 100 batches of a feed that fills as fast as it can: batches take the longer of filling and computing.
Observation observed(const Circumstances& c) {
  Observation o{.workers = c.workers,
                .depth = 8,
                .cpus = c.cpus,
                .other_cpus = c.other_cpus,
                .copy_seconds = c.copy,
                .read_again = c.read_again};
  double row = 0;
  for (const double s : c.row) row += s;
  const double fill = 16 * row / c.workers, compute = c.step + c.compile + c.copy_wait;
  for (int i = 0; i < 100; ++i) {
    ObservedBatch b{.data = std::max(0.0, fill - compute),
                    .copy = c.copy_wait,
                    .compile = c.compile,
                    .step = c.step,
                    .rows = 16,
                    .valid_frames = static_cast<std::int64_t>(16 * frames)};
    for (std::size_t s = 0; s < stage_count; ++s) b.stages[s] = 16 * c.row[s];
    if (c.stall_every > 0 && i % c.stall_every == 7) {
      b.data += c.stall;
      b.stages[0] += 2 * c.stall;
    }
    b.elapsed = b.data + compute;
    o.seconds += b.elapsed;
    o.worker_cpu.running += 16 * (row - c.asleep - c.ready);
    o.worker_cpu.ready += 16 * c.ready;
    o.batches.push_back(b);
  }
  return o;
}

std::vector<WhatIf> causes(const Circumstances& c, bool overlapped = false) {
  const Observation o = observed(c);
  return what_if(demand_of(o), o, plain, overlapped);
}

Circumstances with_stage(Stage stage, double seconds) {
  Circumstances c;
  c.row[static_cast<std::size_t>(stage)] = seconds;
  return c;
}

TEST(WhatIf, NothingIsBlamedWhereTheDeviceIsTheLimit) { EXPECT_THAT(causes({}), IsEmpty()); }

TEST(WhatIf, NothingIsUnusualWhereTheMachineIsJustTooSlow) {
  EXPECT_THAT(causes({.step = 1 * ms}), IsEmpty());
}

TEST(WhatIf, ASlowStageIsNamed) {
  const auto first = [](const Circumstances& c) { return causes(c).at(0).cause; };
  Circumstances slow_disk = with_stage(Stage::read, 4 * ms);
  slow_disk.asleep = 3.9 * ms;
  slow_disk.read_again = 4 * ms;
  EXPECT_EQ(first(slow_disk), Cause::storage);
  slow_disk.read_again = 50 * us;
  EXPECT_EQ(first(slow_disk), Cause::cold);
  EXPECT_EQ(first(with_stage(Stage::decode, 4 * ms)), Cause::decode);
  EXPECT_EQ(first(with_stage(Stage::mel, 4 * ms)), Cause::mel);
}

TEST(WhatIf, OfTwoSlowStagesTheOneWhoseRemovalBringsMoreComesFirst) {
  Circumstances c = with_stage(Stage::decode, 3 * ms);
  c.row[static_cast<std::size_t>(Stage::mel)] = 2 * ms;
  const auto found = causes(c);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].cause, Cause::decode);
  EXPECT_EQ(found[1].cause, Cause::mel);
  // Without decoding 2.1 ms of a row are left, which 8 rows for each of two workers make 17 ms.
  EXPECT_NEAR(found[0].cycle, 17 * ms, 1 * ms);
}

TEST(WhatIf, FreeCpusAreNamedWhenNoWorkerUsesThem) {
  const auto found = causes({.step = 4 * ms, .workers = 1, .cpus = 2});
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].cause, Cause::workers);
  EXPECT_NEAR(found[0].cycle, 4 * ms, 0.1 * ms);
}

TEST(WhatIf, CopiesAreNamedBesideStepsAndInTurnWithThem) {
  const auto in_turn = causes({.copy = 5 * ms, .copy_wait = 5 * ms});
  ASSERT_EQ(in_turn.size(), 1);
  EXPECT_EQ(in_turn[0].cause, Cause::copy);
  EXPECT_NEAR(in_turn[0].cycle, 10 * ms, 0.1 * ms);
  const auto beside = causes({.copy = 25 * ms, .copy_wait = 15 * ms}, true);
  ASSERT_EQ(beside.size(), 1);
  EXPECT_EQ(beside[0].cause, Cause::copy);
}

TEST(WhatIf, NewShapesAreNamed) {
  const auto found = causes({.compile = 20 * ms});
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].cause, Cause::shapes);
  EXPECT_NEAR(found[0].cycle, 10 * ms, 0.1 * ms);
}

TEST(WhatIf, AStallNowAndThenIsNotTakenForSlowStorage) {
  const auto found = causes({.stall_every = 25, .stall = 200 * ms});
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].cause, Cause::stall);
  EXPECT_NEAR(found[0].cycle, 10 * ms, 0.1 * ms);
}

TEST(WhatIf, RowsThatWaitForACpuBlameWhoeverHasIt) {
  Circumstances c{.step = 4 * ms, .ready = 1400 * us, .other_cpus = 1.6};
  for (double& s : c.row) s *= 5;  // every stage takes as much longer
  const auto found = causes(c);
  ASSERT_GE(found.size(), 1);
  EXPECT_EQ(found[0].cause, Cause::cpu);
  c.other_cpus = 0;
  for (const WhatIf& w : causes(c)) EXPECT_NE(w.cause, Cause::cpu);
}

TEST(WhatIf, AStarvedRowThatSleepsIsNotAllWaitingForACpu) {
  // A read sleeps for 2 ms, and then waits for a CPU for 30; 1 % of it all goes by between the stages.
  Circumstances c = with_stage(Stage::read, 32 * ms);
  c.step = 4 * ms, c.asleep = 2 * ms, c.ready = 30.3 * ms, c.other_cpus = 2, c.read_again = 2 * ms;
  Observation o = observed(c);
  o.worker_sleeps = 1600;
  const auto cycle_without_others = [&] {
    const auto found = what_if(demand_of(o), o, plain, false);
    const auto cpu = std::ranges::find(found, Cause::cpu, &WhatIf::cause);
    return cpu == found.end() ? 0 : cpu->cycle;
  };
  EXPECT_NEAR(cycle_without_others(), 8 * 2.1 * ms, 2 * ms);
  o.worker_sleeps = 10;
  EXPECT_LT(cycle_without_others(), 6 * ms) << "who never sleeps only waits for a CPU";
}

TEST(WhatIf, WhoNoLongerSleepsComputesAgainstTheOthersAllTheTime) {
  // A row computes for 0.29 ms, sleeps for 1.5 and waits for a CPU that processes of nice 10 have.
  Circumstances c = with_stage(Stage::read, 3.5 * ms);
  c.step = 4 * ms, c.asleep = 1.5 * ms, c.ready = 2 * ms, c.other_cpus = 2, c.read_again = 1.5 * ms;
  Observation o = observed(c);
  o.worker_sleeps = 1600, o.busiest.nice = 10;
  const auto without_reads = [&] {
    const auto found = what_if(demand_of(o), o, plain, false);
    const auto storage = std::ranges::find(found, Cause::storage, &WhatIf::cause);
    return storage == found.end() ? demand_of(o).cycle : storage->cycle;
  };
  const double contended = without_reads();
  EXPECT_GE(contended, 8 * 10 * 0.29 * ms) << "eight rows for each of two workers, ten times as long";
  o.busiest.nice = 19;  // whom workers are not behind
  EXPECT_LT(without_reads(), 0.8 * contended);
}

TEST(WhatIf, RareSlowReadsAreUnevennessAndNotSlowStorage) {
  Circumstances c;
  c.step = 4 * ms;
  Observation o = observed(c);
  for (std::size_t i = 0; i < o.batches.size(); i += 3) o.batches[i].stages[0] += 30 * ms;
  for (const WhatIf& w : what_if(demand_of(o), o, plain, false)) {
    EXPECT_NE(w.cause, Cause::storage);
    EXPECT_NE(w.cause, Cause::cold);
  }
}

TEST(WhatIf, TheCacheIsSlowTooBesideOthersOfHigherPriority) {
  Circumstances c = with_stage(Stage::mel, 4 * ms);
  c.step = 4 * ms, c.other_cpus = 2;
  Observation o = observed(c);
  o.busiest.nice = 19;
  EXPECT_LT(cycle_when_cached(demand_of(o), o, plain, false), 4.5 * ms);
  o.busiest.nice = 0;
  EXPECT_GT(cycle_when_cached(demand_of(o), o, plain, false), 20 * ms);
}

TEST(WhatIf, TheCacheTakesAwayWhatComputingCosts) {
  const Observation o = observed(with_stage(Stage::mel, 4 * ms));
  EXPECT_NEAR(cycle_when_cached(demand_of(o), o, plain, false), 10 * ms, 0.1 * ms);
}

}  // namespace
}  // namespace penstock
