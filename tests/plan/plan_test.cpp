#include "penstock/plan/plan.h"

#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "tests/long_run.h"
#include "tests/plan/random_lengths.h"

namespace penstock {
namespace {

using Rows = std::vector<std::int64_t>;

Rows rows_of(const Plan& plan, const BatchPlan& batch) {
  Rows rows;
  for (std::int32_t row = 0; row < batch.shape.rows; ++row) rows.push_back(plan.utterance(batch, row));
  return rows;
}

std::vector<Rows> batches_of(const Plan& plan, std::int64_t epoch) {
  std::vector<Rows> batches;
  for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
    batches.push_back(rows_of(plan, plan.batch(epoch, step)));
  }
  return batches;
}

/// How often an epoch shows each utterance; rows of length 0 are under -1.
std::map<std::int64_t, int> times_seen(const Plan& plan, std::int64_t epoch) {
  std::map<std::int64_t, int> times;
  for (const Rows& rows : batches_of(plan, epoch)) {
    for (const std::int64_t utterance : rows) ++times[utterance];
  }
  return times;
}

/// What a random seed stands for: a dataset with some utterances that must be rejected, shapes (with equal
/// rows, or each with its own) and options.
struct Case {
  explicit Case(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    // Enough for at most 6 shapes of at most 20 rows: one of them has a batch, also with drop.
    lengths = random_lengths(random, random_between(random, 120, 400), 200, 900);
    const std::int32_t rows = random_between(random, 1, 20);
    options.seed = random();
    shapes = choose_shapes(lengths, random_between(random, 1, 6), rows);
    if (seed % 2 == 1) {
      for (Shape& shape : shapes) shape.rows = random_between(random, 1, 20);
    }
    for (int i = random_between(random, 0, 10); i > 0; --i) {
      constexpr Lengths bad[] = {{0, 10}, {10, 0}, {201, 10}, {10, 905}, {-3, 10}};
      lengths.insert(lengths.begin() + random_between(random, 0, static_cast<std::int32_t>(lengths.size())),
                     bad[random() % std::size(bad)]);
    }
  }

  [[nodiscard]] Plan plan() const { return {lengths, shapes, options}; }

  std::vector<Lengths> lengths;
  std::vector<Shape> shapes;
  PlanOptions options;
};

/// Calls body(case) for many random cases.
template <typename Body>
void for_random_cases(Remainder remainder, const Body& body) {
  for (std::uint64_t seed = 0, end = slow_cases(100, 2'000); seed < end; ++seed) {
    Case random_case(seed);
    random_case.options.remainder = remainder;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    body(random_case);
    if (testing::Test::HasFatalFailure()) return;
  }
}

/// Rows of all batches of an epoch.
std::int64_t rows_of_epoch(const Plan& plan, std::int64_t epoch) {
  std::int64_t rows = 0;
  for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step)
    rows += plan.batch(epoch, step).shape.rows;
  return rows;
}

std::int64_t accepted(const Case& c, const Plan& plan) {
  return static_cast<std::int64_t>(c.lengths.size() - plan.rejected().size());
}

TEST(Plan, RejectsExactlyWhatFitsNoShape) {
  for_random_cases(Remainder::pad, [](const Case& c) {
    const Shape last = c.shapes.back();
    std::vector<std::int64_t> expected;
    for (std::size_t u = 0; u < c.lengths.size(); ++u) {
      const auto [tokens, frames] = c.lengths[u];
      if (tokens <= 0 || frames <= 0 || tokens > last.tokens || frames > last.frames) expected.push_back(u);
    }
    for (const bool dynamic : {false, true}) {
      PlanOptions options = c.options;
      options.dynamic = dynamic;
      const Plan plan(c.lengths, c.shapes, options);
      EXPECT_EQ(Rows(plan.rejected().begin(), plan.rejected().end()), expected);
    }
  });
}

TEST(Plan, BucketsHoldEachUtteranceUnderTheFirstShapeThatFits) {
  for_random_cases(Remainder::pad, [](const Case& c) {
    const Plan plan = c.plan();
    std::int64_t held = 0;
    for (int k = 0; k < static_cast<int>(plan.shapes().size()); ++k) {
      const std::span<const std::uint32_t> bucket = plan.bucket(k);
      EXPECT_TRUE(std::is_sorted(bucket.begin(), bucket.end()));
      for (const std::uint32_t u : bucket) ASSERT_EQ(first_shape(c.shapes, c.lengths[u]), k);
      held += static_cast<std::int64_t>(bucket.size());
    }
    EXPECT_EQ(held, accepted(c, plan));
  });
}

TEST(Plan, PadShowsEveryUtteranceExactlyOnce) {
  for_random_cases(Remainder::pad, [](const Case& c) {
    const Plan plan = c.plan();
    std::map<std::int64_t, int> times = times_seen(plan, 3);
    const int empty_rows = times[-1];
    times.erase(-1);
    EXPECT_EQ(static_cast<std::int64_t>(times.size()), accepted(c, plan));
    for (const auto& [utterance, count] : times) ASSERT_EQ(count, 1) << utterance;
    EXPECT_EQ(empty_rows, rows_of_epoch(plan, 3) - accepted(c, plan));
    EXPECT_EQ(plan.dropped(), 0);
  });
}

TEST(Plan, WrapShowsEveryUtteranceAndHasNoEmptyRow) {
  for_random_cases(Remainder::wrap, [](const Case& c) {
    const Plan plan = c.plan();
    const std::map<std::int64_t, int> times = times_seen(plan, 3);
    EXPECT_EQ(static_cast<std::int64_t>(times.size()), accepted(c, plan));
    EXPECT_FALSE(times.contains(-1));
    EXPECT_EQ(plan.dropped(), 0);
  });
}

TEST(Plan, WrapFillsUpFromTheFrontOfTheOrder) {
  const std::vector<Lengths> lengths(10, {5, 50});
  const std::vector<Shape> shapes{{4, 8, 56}};
  const Plan plan(lengths, shapes, {.remainder = Remainder::wrap});
  std::map<std::int64_t, Rows> by_position;
  for (int step = 0; step < 3; ++step) {
    const BatchPlan batch = plan.batch(0, step);
    by_position[batch.position] = rows_of(plan, batch);
  }
  ASSERT_EQ(by_position.size(), 3u);
  EXPECT_EQ(by_position[8][2], by_position[0][0]);
  EXPECT_EQ(by_position[8][3], by_position[0][1]);
}

TEST(Plan, DropShowsNoUtteranceTwiceAndLeavesOutWhatItSays) {
  for_random_cases(Remainder::drop, [](const Case& c) {
    const Plan plan = c.plan();
    const std::map<std::int64_t, int> times = times_seen(plan, 3);
    EXPECT_FALSE(times.contains(-1));
    for (const auto& [utterance, count] : times) ASSERT_EQ(count, 1) << utterance;
    EXPECT_EQ(static_cast<std::int64_t>(times.size()), accepted(c, plan) - plan.dropped());
    EXPECT_EQ(static_cast<std::int64_t>(times.size()), rows_of_epoch(plan, 3));
  });
}

TEST(Plan, DropLeavesOutOthersInEachEpoch) {
  const std::vector<Lengths> lengths(31, {5, 50});
  const std::vector<Shape> shapes{{16, 8, 56}};
  const Plan plan(lengths, shapes, {});
  EXPECT_EQ(plan.steps_per_epoch(), 1);
  EXPECT_EQ(plan.dropped(), 15);
  std::map<std::int64_t, int> times;
  for (std::int64_t epoch = 0; epoch < 1000; ++epoch) {
    for (const std::int64_t u : rows_of(plan, plan.batch(epoch, 0))) ++times[u];
  }
  ASSERT_EQ(times.size(), lengths.size());
  for (const auto& [utterance, count] : times) EXPECT_NEAR(count, 1000 * 16 / 31.0, 80) << utterance;
}

TEST(Plan, HasNoTwoEqualBatchesInAnEpochWithDrop) {
  for_random_cases(Remainder::drop, [](const Case& c) {
    std::set<Rows> sets;
    for (Rows rows : batches_of(c.plan(), 1)) {
      std::sort(rows.begin(), rows.end());
      EXPECT_TRUE(sets.insert(rows).second);
    }
  });
}

TEST(Plan, GivesEveryBatchOneOfItsShapesAndEveryRowRoom) {
  for (const Remainder remainder : {Remainder::drop, Remainder::wrap, Remainder::pad}) {
    for_random_cases(remainder, [](const Case& c) {
      const Plan plan = c.plan();
      EXPECT_EQ(plan.largest(), plan.shapes().back());
      for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
        const BatchPlan batch = plan.batch(7, step);
        ASSERT_EQ(batch.shape, plan.shapes()[batch.bucket]);
        ASSERT_EQ(batch.shape.rows, c.shapes[batch.bucket].rows);
        for (const std::int64_t u : rows_of(plan, batch)) {
          if (u < 0) continue;
          ASSERT_EQ(first_shape(plan.shapes(), c.lengths[u]), batch.bucket);
        }
      }
    });
  }
}

TEST(Plan, GivesRanksTogetherWhatOneRankHasAlone) {
  for (const Remainder remainder : {Remainder::drop, Remainder::wrap, Remainder::pad}) {
    for_random_cases(remainder, [](const Case& c) {
      for (const bool dynamic : {false, true}) {
        PlanOptions options = c.options;
        options.dynamic = dynamic;
        const Plan alone(c.lengths, c.shapes, options);
        options.world = 1 + static_cast<std::int32_t>(options.seed % 8);
        std::vector<Plan> ranks;
        for (options.rank = 0; options.rank < options.world; ++options.rank) {
          ranks.emplace_back(c.lengths, c.shapes, options);
          ASSERT_EQ(ranks.back().steps_per_epoch(), alone.steps_per_epoch());
        }
        for (std::int64_t step = 0; step < alone.steps_per_epoch(); ++step) {
          const BatchPlan whole = alone.batch(2, step);
          const std::int32_t share = (whole.shape.rows + options.world - 1) / options.world;
          Rows expected = rows_of(alone, whole);
          expected.resize(share * options.world, -1);
          Rows together;
          for (const Plan& rank : ranks) {
            const BatchPlan batch = rank.batch(2, step);
            ASSERT_EQ(batch.shape, (Shape{share, whole.shape.tokens, whole.shape.frames}));
            const Rows rows = rows_of(rank, batch);
            together.insert(together.end(), rows.begin(), rows.end());
          }
          ASSERT_EQ(together, expected);
        }
      }
    });
  }
}

TEST(Plan, AnswersTheSameInAnyOrderOfAsking) {
  for_random_cases(Remainder::drop, [](const Case& c) {
    const Plan plan = c.plan();
    const std::vector<Rows> forwards = batches_of(plan, 5);
    const Plan again = c.plan();
    for (std::int64_t step = plan.steps_per_epoch() - 1; step >= 0; --step) {
      ASSERT_EQ(rows_of(again, again.batch(5, step)), forwards[step]);
      (void)again.batch(step, 0);
    }
  });
}

TEST(Plan, DiffersBetweenSeedsAndEpochs) {
  std::mt19937_64 random(1);
  const std::vector<Lengths> lengths = random_lengths(random, 500, 200, 900);
  const std::vector<Shape> shapes = choose_shapes(lengths, 4, 8);
  std::set<std::vector<Rows>> epochs;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Plan plan(lengths, shapes, {.seed = seed});
    for (std::int64_t epoch = 0; epoch < 10; ++epoch) epochs.insert(batches_of(plan, epoch));
  }
  EXPECT_EQ(epochs.size(), 100u);
}

TEST(Plan, MixesTheShapesOverTheEpoch) {
  std::mt19937_64 random(1);
  const std::vector<Lengths> lengths = random_lengths(random, 4000, 200, 900);
  const Plan plan(lengths, choose_shapes(lengths, 4, 8), {});
  const std::int64_t steps = plan.steps_per_epoch();
  std::vector<double> first_half(plan.shapes().size());
  for (std::int64_t step = 0; step < steps / 2; ++step) ++first_half[plan.batch(0, step).bucket];
  for (std::size_t k = 0; k < first_half.size(); ++k) {
    const double batches = static_cast<double>(plan.bucket(static_cast<int>(k)).size()) / 8;
    EXPECT_NEAR(first_half[k] / batches, 0.5, 0.2) << "shape " << k;
  }
}

TEST(Plan, ReplacesARowFromOtherBatchesOfItsBucket) {
  const std::vector<Lengths> lengths(40, {5, 50});
  const std::vector<Shape> shapes{{4, 8, 56}};
  const Plan plan(lengths, shapes, {.rank = 1, .world = 2, .remainder = Remainder::pad});
  const Plan alone(lengths, shapes, {.remainder = Remainder::pad});
  std::vector<std::int64_t> order(lengths.size());
  for (std::int64_t step = 0; step < alone.steps_per_epoch(); ++step) {
    const BatchPlan batch = alone.batch(6, step);
    for (std::int32_t row = 0; row < 4; ++row) order[batch.position + row] = alone.utterance(batch, row);
  }
  for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
    const BatchPlan batch = plan.batch(6, step);
    for (std::int32_t row = 0; row < 2; ++row) {
      for (int j = 1; j <= 8; ++j) {
        ASSERT_EQ(plan.replacement(batch, row, j), order[(batch.position + 2 + row + j * 4) % order.size()]);
      }
    }
  }
}

TEST(Plan, HasNoReplacementForARowOfLength0) {
  const std::vector<Lengths> lengths(5, {5, 50});
  const std::vector<Shape> eight{{8, 8, 56}};
  const Plan short_batch(lengths, eight, {.remainder = Remainder::pad});
  const BatchPlan batch = short_batch.batch(0, 0);
  EXPECT_GE(short_batch.replacement(batch, 4, 1), 0);
  EXPECT_EQ(short_batch.utterance(batch, 5), -1);
  EXPECT_EQ(short_batch.replacement(batch, 5, 1), -1);
  const std::vector<Shape> five{{5, 8, 56}};
  const Plan last_rank(lengths, five, {.rank = 3, .world = 4});
  EXPECT_EQ(rows_of(last_rank, last_rank.batch(0, 0)), (Rows{-1, -1}));
  EXPECT_EQ(last_rank.replacement(last_rank.batch(0, 0), 0, 1), -1);
}

TEST(Plan, DynamicBatchesAreAsLongAsTheirLongest) {
  for (const Remainder remainder : {Remainder::drop, Remainder::wrap, Remainder::pad}) {
    for_random_cases(remainder, [](Case c) {
      c.options.dynamic = true;
      const Plan plan = c.plan();
      ASSERT_EQ(plan.shapes().size(), 1u);
      for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
        const BatchPlan batch = plan.batch(1, step);
        Shape expected{c.shapes.back().rows, 0, 0};
        for (const std::int64_t u : rows_of(plan, batch)) {
          if (u < 0) continue;
          expected.tokens = std::max(expected.tokens, c.lengths[u].tokens);
          expected.frames = std::max(expected.frames, c.lengths[u].frames);
        }
        ASSERT_EQ(batch.shape, expected);
        ASSERT_LE(batch.shape.tokens, plan.largest().tokens);
        ASSERT_LE(batch.shape.frames, plan.largest().frames);
      }
    });
  }
}

double measured_padding(const Case& c, const Plan& plan, std::int64_t epoch) {
  double valid = 0;
  double size = 0;
  for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
    const BatchPlan batch = plan.batch(epoch, step);
    size += batch.shape.rows * static_cast<double>(batch.shape.frames);
    for (const std::int64_t u : rows_of(plan, batch)) valid += u < 0 ? 0 : c.lengths[u].frames;
  }
  return 1 - valid / size;
}

TEST(Plan, PaddingIsExactWithPadAndWithDynamic) {
  for_random_cases(Remainder::pad, [](const Case& c) {
    const Plan plan = c.plan();
    EXPECT_NEAR(plan.padding(), measured_padding(c, plan, 0), 1e-9);
    EXPECT_NEAR(plan.padding(), measured_padding(c, plan, 1), 1e-9);
  });
  for_random_cases(Remainder::drop, [](Case c) {
    c.options.dynamic = true;
    const Plan plan = c.plan();
    EXPECT_NEAR(plan.padding(), measured_padding(c, plan, 0), 1e-9);
  });
}

TEST(Plan, PaddingIsTheMeanOverEpochsWithDropAndWithWrap) {
  for (const Remainder remainder : {Remainder::drop, Remainder::wrap}) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      Case c(seed);
      c.options.remainder = remainder;
      const Plan plan = c.plan();
      double sum = 0;
      for (std::int64_t epoch = 0; epoch < 200; ++epoch) sum += measured_padding(c, plan, epoch);
      EXPECT_NEAR(plan.padding(), sum / 200, 0.005);
    }
  }
}

TEST(Plan, PaddingCountsTheEmptyRowsOfRanks) {
  const std::vector<Lengths> lengths(10, {8, 100});
  const std::vector<Shape> shapes{{5, 8, 100}};
  EXPECT_NEAR(Plan(lengths, shapes, {}).padding(), 0, 1e-12);
  EXPECT_NEAR(Plan(lengths, shapes, {.rank = 1, .world = 4}).padding(), 1 - 5 / 8.0, 1e-12);
}

TEST(Plan, ShapeWithFewerUtterancesThanABatchHasNoneWithDrop) {
  const std::vector<Lengths> lengths{{5, 50}, {5, 50}, {5, 50}, {5, 50}, {5, 50}, {50, 500}};
  const std::vector<Shape> shapes{{4, 8, 56}, {4, 56, 504}};
  const Plan plan(lengths, shapes, {});
  EXPECT_EQ(plan.steps_per_epoch(), 1);
  EXPECT_EQ(plan.dropped(), 2);
  EXPECT_EQ(plan.batch(0, 0).bucket, 0);
}

std::string message(std::vector<Lengths> lengths, std::vector<Shape> shapes, PlanOptions options) {
  try {
    const Plan plan(lengths, shapes, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Plan, SaysWhatIsWrong) {
  const std::vector<Lengths> lengths{{5, 50}, {6, 60}, {7, 70}, {70, 70}};
  const std::vector<Shape> one{{4, 8, 80}};
  EXPECT_EQ(message(lengths, {}, {}), "plan: there must be at least one shape, but there is none");
  EXPECT_EQ(message(lengths, {{4, 8, 80}, {4, 16, 72}}, {}),
            "plan: shape 1 must have at least 8 tokens and 80 frames, but has 16 and 72");
  EXPECT_EQ(message(lengths, {{4, 0, 80}}, {}),
            "plan: shape 0 must have at least 1 tokens and 1 frames, but has 0 and 80");
  EXPECT_EQ(message(lengths, {{4, 8, 80}, {0, 16, 80}}, {}),
            "plan: shape 1 must have at least 1 row, but has 0");
  EXPECT_EQ(message(lengths, {{-1, 8, 80}}, {}), "plan: shape 0 must have at least 1 row, but has -1");
  EXPECT_EQ(message(lengths, one, {.world = 0}), "plan: world must be at least 1, but is 0");
  EXPECT_EQ(message(lengths, one, {.rank = 2, .world = 2}), "plan: rank must be between 0 and 1, but is 2");
  EXPECT_EQ(
      message(lengths, one, {}),
      "plan: no shape fills a batch: of 4 utterances 1 are rejected, and the shape that most take has 3 "
      "for the 4 rows of its batch: lower batch_size, or let remainder be pad");
  EXPECT_EQ(
      message(lengths, {{2, 5, 50}, {3, 8, 80}}, {}),
      "plan: no shape fills a batch: of 4 utterances 1 are rejected, and the shape that most take has 2 "
      "for the 3 rows of its batch: lower batch_size, or let remainder be pad");
  EXPECT_EQ(
      message({}, one, {.remainder = Remainder::pad}),
      "plan: no shape fills a batch: of 0 utterances 0 are rejected, and the shape that most take has 0 "
      "for the 4 rows of its batch");
  EXPECT_EQ(message(lengths, one, {.remainder = Remainder::pad}), "no error");
  const std::vector<Shape> one_row{{1, 8, 80}};
  const Plan plan(lengths, one_row, {});
  EXPECT_THROW((void)plan.batch(0, 3), Error);
  EXPECT_THROW((void)plan.batch(0, -1), Error);
}

TEST(Plan, ReplacesARowInStepsOfItsOwnShapesRows) {
  for_random_cases(Remainder::pad, [](const Case& c) {
    const Plan plan = c.plan();
    std::vector<Rows> order(plan.shapes().size());
    for (std::size_t k = 0; k < order.size(); ++k) order[k].resize(plan.bucket(static_cast<int>(k)).size());
    const auto for_each_row = [&](const auto& body) {
      for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
        const BatchPlan batch = plan.batch(4, step);
        Rows& bucket = order[batch.bucket];
        for (std::int32_t row = 0; row < batch.shape.rows; ++row) {
          const std::size_t at = batch.position + row;
          if (at < bucket.size()) body(batch, row, bucket, at);
        }
      }
    };
    for_each_row([&](const BatchPlan& batch, std::int32_t row, Rows& bucket, std::size_t at) {
      bucket[at] = plan.utterance(batch, row);
    });
    for_each_row([&](const BatchPlan& batch, std::int32_t row, const Rows& bucket, std::size_t at) {
      for (int j = 1; j <= 8; ++j) {
        ASSERT_EQ(plan.replacement(batch, row, j),
                  bucket[(at + j * static_cast<std::size_t>(batch.shape.rows)) % bucket.size()]);
      }
    });
  });
}

// If this fails, every run that resumes sees another order than the one it was stopped in.
TEST(Plan, OrderNeverChanges) {
  std::vector<Lengths> lengths(20);
  for (std::int32_t i = 0; i < 20; ++i) lengths[i] = {4 + i * 7 % 20, 40 + i * 70 % 200};
  std::vector<Shape> shapes{{3, 16, 160}, {3, 24, 240}};
  const Plan plan(lengths, shapes, {.seed = 2024, .remainder = Remainder::pad});
  EXPECT_EQ(batches_of(plan, 0), (std::vector<Rows>{{10, 12, 0},
                                                    {8, -1, -1},
                                                    {16, 18, 15},
                                                    {2, 19, 17},
                                                    {1, 6, 7},
                                                    {3, -1, -1},
                                                    {9, 4, 13},
                                                    {11, 14, 5}}));
  EXPECT_EQ(batches_of(plan, 1), (std::vector<Rows>{{2, 8, 14},
                                                    {17, 11, 5},
                                                    {16, 18, 13},
                                                    {3, -1, -1},
                                                    {9, 1, 7},
                                                    {15, 12, 10},
                                                    {19, -1, -1},
                                                    {0, 4, 6}}));
  shapes[0].rows = 5;
  const Plan own_rows(lengths, shapes, {.seed = 2024, .remainder = Remainder::pad});
  EXPECT_EQ(
      batches_of(own_rows, 0),
      (std::vector<Rows>{
          {0, 16, 18, 15, 9}, {2, 19, 17}, {4, 13, 3, -1, -1}, {8, -1, -1}, {1, 6, 7, 10, 12}, {11, 14, 5}}));
}

}  // namespace
}  // namespace penstock
