#include "penstock/plan/shapes.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "tests/long_run.h"
#include "tests/plan/random_lengths.h"

namespace penstock {
namespace {

std::int32_t round_up(std::int32_t length) {
  return (length + shape_multiple - 1) / shape_multiple * shape_multiple;
}

Shape bounding_shape(std::span<const Lengths> lengths, std::int32_t rows) {
  Shape shape{rows, 0, 0};
  for (const Lengths length : lengths) {
    shape.tokens = std::max(shape.tokens, round_up(length.tokens));
    shape.frames = std::max(shape.frames, round_up(length.frames));
  }
  return shape;
}

/// Buckets with equally many utterances, by frames; each with the tokens that it and the ones before it need.
std::vector<Shape> quantile_buckets(std::vector<Lengths> lengths, int count, std::int32_t rows) {
  std::sort(lengths.begin(), lengths.end(), [](Lengths a, Lengths b) { return a.frames < b.frames; });
  std::vector<Shape> shapes;
  for (int k = 1; k <= count; ++k) {
    const std::size_t end = (lengths.size() * k + count - 1) / count;
    const std::int32_t frames = round_up(lengths[end - 1].frames);
    std::vector<Lengths> inside;
    for (const Lengths length : lengths) {
      if (length.frames <= frames) inside.push_back(length);
    }
    shapes.push_back(bounding_shape(inside, rows));
  }
  return shapes;
}

struct Best {
  double size = std::numeric_limits<double>::infinity();
  std::size_t shapes = 0;
};

/// Tries every chain over all multiples of 8 that ends with the last of `chain`, `more` shapes being left to
/// choose.
void try_all_chains(std::span<const Lengths> lengths, std::vector<Shape>& chain, int more, Best& best) {
  const Shape first = chain.front();
  const double size = padded_size(lengths, chain, first.rows);
  if (size < best.size || (size == best.size && chain.size() < best.shapes)) best = {size, chain.size()};
  if (more == 0) return;
  for (std::int32_t tokens = shape_multiple; tokens <= first.tokens; tokens += shape_multiple) {
    for (std::int32_t frames = shape_multiple; frames <= first.frames; frames += shape_multiple) {
      if (tokens == first.tokens && frames == first.frames) continue;
      chain.insert(chain.begin(), {first.rows, tokens, frames});
      try_all_chains(lengths, chain, more - 1, best);
      chain.erase(chain.begin());
    }
  }
}

TEST(ChooseShapes, EqualsBruteForceOverAllChains) {
  for (std::uint64_t seed = 0, end = slow_cases(300, 6'000); seed < end; ++seed) {
    std::mt19937_64 random(seed);
    const int count = 1 + static_cast<int>(seed % 4);
    const std::int32_t side = count == 4 ? 5 : 8;
    const std::vector<Lengths> lengths = random_lengths(random, random_between(random, 1, 40),
                                                        side * shape_multiple, (side + 1) * shape_multiple);
    const std::int32_t rows = random_between(random, 1, 9);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", shapes " << count << ", rows " << rows);
    std::vector<Shape> chain{bounding_shape(lengths, rows)};
    Best best;
    try_all_chains(lengths, chain, count - 1, best);
    const std::vector<Shape> chosen = choose_shapes(lengths, count, rows);
    ASSERT_EQ(padded_size(lengths, chosen, rows), best.size);
    ASSERT_EQ(chosen.size(), best.shapes);
  }
}

class ChosenShapes : public testing::TestWithParam<int> {};

TEST_P(ChosenShapes, AreAChainOfMultiplesThatHoldsEverythingAndHasNoEmptyOrLooseShape) {
  for (std::uint64_t seed = 0, end = slow_cases(60, 300); seed < end; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const std::vector<Lengths> lengths =
        random_lengths(random, random_between(random, 1, 800), random_between(random, 1, 900),
                       random_between(random, 1, 3000));
    const std::vector<Shape> shapes = choose_shapes(lengths, GetParam(), 16);
    ASSERT_LE(static_cast<int>(shapes.size()), GetParam());
    std::vector<std::vector<Lengths>> inside(shapes.size());
    for (const Lengths length : lengths) {
      const int shape = first_shape(shapes, length);
      ASSERT_GE(shape, 0);
      for (std::size_t k = shape; k < shapes.size(); ++k) inside[k].push_back(length);
    }
    for (std::size_t k = 0; k < shapes.size(); ++k) {
      EXPECT_EQ(shapes[k], bounding_shape(inside[k], 16));
      EXPECT_GT(inside[k].size(), k == 0 ? 0 : inside[k - 1].size());
    }
  }
}

TEST_P(ChosenShapes, AreNeverWorseThanQuantileBuckets) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    std::mt19937_64 random(seed);
    const int largest_set = seed % 10 == 0 ? 20'000 : 1000;
    const std::vector<Lengths> lengths =
        random_lengths(random, random_between(random, 1, largest_set), random_between(random, 1, 2000),
                       random_between(random, 1, seed % 3 == 0 ? 10'000 : 1000));
    const std::int32_t rows = random_between(random, 1, 40);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", rows " << rows);
    const double quantiles = padded_size(lengths, quantile_buckets(lengths, GetParam(), rows), rows);
    EXPECT_LE(padded_size(lengths, choose_shapes(lengths, GetParam(), rows), rows), quantiles);
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, ChosenShapes, testing::Values(1, 2, 3, 4, 8));

TEST(ChooseShapes, NeverPadsMoreWithMoreShapes) {
  std::mt19937_64 random(3);
  const std::vector<Lengths> lengths = random_lengths(random, 2000, 250, 900);
  double before = std::numeric_limits<double>::infinity();
  for (int count = 1; count <= 12; ++count) {
    const double size = padded_size(lengths, choose_shapes(lengths, count, 16), 16);
    EXPECT_LE(size, before) << count;
    before = size;
  }
}

TEST(ChooseShapes, TakesOneShapeWhereMoreAreNoBetter) {
  const std::vector<Lengths> alike(100, {30, 300});
  EXPECT_EQ(choose_shapes(alike, 8, 16), (std::vector<Shape>{{16, 32, 304}}));
  const std::vector<Lengths> fewer_than_a_batch{{10, 100}, {20, 200}, {30, 300}};
  EXPECT_EQ(choose_shapes(fewer_than_a_batch, 8, 16), (std::vector<Shape>{{16, 32, 304}}));
}

TEST(ChooseShapes, DoesNotCountUtterancesWithoutTokensOrFrames) {
  const std::vector<Lengths> lengths{{0, 5000}, {8, 80}, {900, 0}, {-1, -1}};
  EXPECT_EQ(choose_shapes(lengths, 4, 1), (std::vector<Shape>{{1, 8, 80}}));
}

TEST(ChooseShapes, SaysWhatIsWrong) {
  const auto message = [](std::vector<Lengths> lengths, int count, std::int32_t rows) -> std::string {
    try {
      choose_shapes(lengths, count, rows);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message({}, 4, 16),
            "plan: shapes need at least one utterance with tokens and frames, but there is none among 0");
  EXPECT_EQ(message({{0, 5}, {5, 0}}, 4, 16),
            "plan: shapes need at least one utterance with tokens and frames, but there is none among 2");
  EXPECT_EQ(message({{1, 1}}, 0, 16), "plan: the number of shapes must be at least 1, but is 0");
  EXPECT_EQ(message({{1, 1}}, 4, 0), "plan: a batch must have at least 1 row, but has 0");
  EXPECT_EQ(message({{1, longest_length + 1}}, 4, 1),
            "plan: an utterance must have at most 16777216 tokens and frames, but one has 16777217");
  EXPECT_EQ(message({{1, longest_length}}, 4, 1), "no error");
}

TEST(PaddedSize, CountsWholeBatchesOfEachShape) {
  const std::vector<Shape> shapes{{4, 8, 16}, {4, 16, 32}};
  const std::vector<Lengths> lengths{{8, 16}, {1, 1}, {3, 9}, {8, 10}, {2, 2}, {9, 9}, {17, 1}, {0, 4}};
  EXPECT_EQ(padded_size(lengths, shapes, 4), 8 * (8 + 16) + 4 * (16 + 32));
}

TEST(FirstShape, IsTheFirstThatHoldsBothLengths) {
  const std::vector<Shape> shapes{{1, 8, 16}, {1, 16, 16}, {1, 16, 32}};
  EXPECT_EQ(first_shape(shapes, {8, 16}), 0);
  EXPECT_EQ(first_shape(shapes, {9, 16}), 1);
  EXPECT_EQ(first_shape(shapes, {1, 17}), 2);
  EXPECT_EQ(first_shape(shapes, {17, 1}), -1);
  EXPECT_EQ(first_shape(shapes, {1, 33}), -1);
  EXPECT_EQ(first_shape(shapes, {0, 1}), -1);
  EXPECT_EQ(first_shape(shapes, {1, 0}), -1);
  EXPECT_EQ(first_shape({}, {1, 1}), -1);
}

TEST(Shapes, RareShapesGiveWaySoThatDroppingLeavesNobodyOutForGood) {
  std::vector<Lengths> lengths;
  for (int i = 0; i < 100; ++i) lengths.push_back({20, 100});
  for (int i = 0; i < 3; ++i) lengths.push_back({60, 200});
  for (int i = 0; i < 40; ++i) lengths.push_back({90, 300});
  for (int i = 0; i < 2; ++i) lengths.push_back({200, 900});
  const std::vector<Shape> chain = {{8, 24, 104}, {8, 64, 200}, {8, 96, 304}, {8, 200, 904}};
  EXPECT_EQ(without_rare_shapes(lengths, chain, 8), (std::vector<Shape>{{8, 24, 104}, {8, 200, 904}}));
  EXPECT_EQ(without_rare_shapes(lengths, chain, 2), chain);
  EXPECT_EQ(without_rare_shapes(lengths, chain, 1000), (std::vector<Shape>{{8, 200, 904}}));
}

}  // namespace
}  // namespace penstock
