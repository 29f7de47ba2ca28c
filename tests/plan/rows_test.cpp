#include "penstock/plan/rows.h"

#include <gtest/gtest.h>

#include "tests/long_run.h"
#include "tests/plan/random_lengths.h"

namespace penstock {
namespace {

TEST(RowsWithin, IsWhatFitsInMultiplesOf8From8On) {
  EXPECT_EQ(rows_within(8000, 872), 8);
  EXPECT_EQ(rows_within(8000, 1000), 8);
  EXPECT_EQ(rows_within(8000, 1001), 7);
  EXPECT_EQ(rows_within(8000, 500), 16);
  EXPECT_EQ(rows_within(8000, 501), 8);
  EXPECT_EQ(rows_within(8000, 8000), 1);
  EXPECT_EQ(rows_within(8000, 8001), 0);
  EXPECT_EQ(rows_within(0, 1), 0);
  EXPECT_EQ(rows_within(std::int64_t{1} << 50, 8), most_rows);
}

/// A chain of random lengths, a budget that has room for a row of its largest shape, and ranks.
struct RowsCase {
  explicit RowsCase(std::uint64_t seed) : random(seed) {
    lengths = random_lengths(random, random_between(random, 1, 600), 200, 900);
    shapes = choose_shapes(lengths, random_between(random, 1, 8), 8);
    world = random_between(random, 1, 5);
    remainder = static_cast<Remainder>(seed % 3);
    if (remainder == Remainder::drop) shapes = without_rare_shapes(lengths, shapes, world);
    budget =
        std::int64_t{shapes.back().frames} * random_between(random, 1, 100) / random_between(random, 1, 3);
    budget = std::max<std::int64_t>(budget, shapes.back().frames);
  }

  [[nodiscard]] std::vector<Shape> with_rows() const {
    return penstock::with_rows(lengths, shapes, budget, world, remainder);
  }
  [[nodiscard]] std::int64_t utterances(std::size_t k) const {
    return std::ranges::count_if(lengths,
                                 [&](Lengths l) { return first_shape(shapes, l) == static_cast<int>(k); });
  }

  std::mt19937_64 random;
  std::vector<Lengths> lengths;
  std::vector<Shape> shapes;
  std::int64_t budget = 0;
  std::int32_t world = 1;
  Remainder remainder = Remainder::drop;
};

template <typename Body>
void for_random_cases(const Body& body) {
  for (std::uint64_t seed = 0, end = slow_cases(300, 10'000); seed < end; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    body(RowsCase(seed));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(WithRows, EveryShapeIsWithinTheBudgetAndKeepsItsLengths) {
  for_random_cases([](const RowsCase& c) {
    const std::vector<Shape> shapes = c.with_rows();
    ASSERT_EQ(shapes.size(), c.shapes.size());
    for (std::size_t k = 0; k < shapes.size(); ++k) {
      EXPECT_EQ(shapes[k].tokens, c.shapes[k].tokens);
      EXPECT_EQ(shapes[k].frames, c.shapes[k].frames);
      ASSERT_EQ(shapes[k].rows % c.world, 0);
      const std::int32_t rows = shapes[k].rows / c.world;
      EXPECT_GE(rows, 1);
      EXPECT_TRUE(rows < 8 || rows % 8 == 0) << rows;
      EXPECT_LE(std::int64_t{rows} * shapes[k].frames, c.budget);
    }
  });
}

TEST(WithRows, NoMoreRowsWouldFitOrFindUtterances) {
  for_random_cases([](const RowsCase& c) {
    const std::vector<Shape> shapes = c.with_rows();
    for (std::size_t k = 0; k < shapes.size(); ++k) {
      const std::int32_t rows = shapes[k].rows / c.world;
      const std::int64_t more = rows + (rows < 8 ? 1 : 8);
      const bool fits = more * shapes[k].frames <= c.budget;
      if (c.remainder == Remainder::drop)
        EXPECT_TRUE(!fits || more * c.world > c.utterances(k)) << rows;
      else
        EXPECT_TRUE(!fits || shapes[k].rows >= c.utterances(k)) << rows;
    }
  });
}

TEST(WithRows, NoShapeOfAsManyUtterancesAsRanksIsWithoutABatch) {
  for_random_cases([](const RowsCase& c) {
    if (static_cast<std::int32_t>(c.lengths.size()) < c.world && c.remainder == Remainder::drop) return;
    const std::vector<Shape> shapes = c.with_rows();
    const Plan plan(c.lengths, shapes, {.world = c.world, .remainder = c.remainder});
    std::vector<std::int64_t> batches(shapes.size());
    for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) ++batches[plan.batch(0, step).bucket];
    for (const std::int64_t count : batches) EXPECT_GE(count, 1);
  });
}

TEST(WithRows, ShortShapesHaveMoreRowsThanLongOnes) {
  std::mt19937_64 random(1);
  const std::vector<Lengths> lengths = random_lengths(random, 20'000, 200, 900);
  const std::vector<Shape> shapes =
      with_rows(lengths, choose_shapes(lengths, 6, 8), 50'000, 2, Remainder::drop);
  ASSERT_EQ(shapes.size(), 6u);
  for (const Shape& shape : shapes) EXPECT_EQ(shape.rows, 2 * rows_within(50'000, shape.frames));
  EXPECT_TRUE(std::ranges::is_sorted(shapes, std::greater(), &Shape::rows));
  EXPECT_GT(shapes.front().rows, 2 * shapes.back().rows);
}

TEST(WithRows, AGlobalBatchHasItsLimitToo) {
  const std::vector<Lengths> lengths(100, {8, 8});
  const std::vector<Shape> shapes{{0, 8, 8}};
  const std::int64_t much = std::int64_t{1} << 50;
  EXPECT_EQ(with_rows(lengths, shapes, much, 1, Remainder::pad)[0].rows, 104);
  EXPECT_EQ(with_rows(lengths, shapes, much, 3, Remainder::pad)[0].rows, 3 * 40);
  EXPECT_EQ(with_rows(lengths, shapes, much, 1, Remainder::drop)[0].rows, 96);
  EXPECT_EQ(with_rows(lengths, shapes, much, 20, Remainder::drop)[0].rows, 20 * 5);
  EXPECT_EQ(with_rows(lengths, shapes, much, 1 << 20, Remainder::drop)[0].rows, 1 << 20);
  const std::vector<Lengths> many(1'000'000, {8, 8});
  EXPECT_EQ(with_rows(many, shapes, much, 7, Remainder::pad)[0].rows, 7 * most_rows);
}

}  // namespace
}  // namespace penstock
