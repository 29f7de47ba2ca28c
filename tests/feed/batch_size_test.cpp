// batch_size auto: each shape has the rows that device_memory has room for.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "penstock/feed/feed.h"
#include "penstock/plan/rows.h"
#include "tests/feed/made_dataset.h"
#include "tests/long_run.h"
#include "tests/plan/random_lengths.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A byte for each frame of a row, so that device_memory is the budget in frames. Clips have up to 47.
Config automatic(const MadeDataset& made, std::int64_t frames) {
  Config config = made.config();
  config.batch_size = 0;
  config.device_memory = frames;
  config.frame_memory = 1;
  return config;
}

std::string message(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// The utterances of one global batch, those of rank 0 first.
std::vector<std::int64_t> global_batch(const std::vector<std::unique_ptr<Feed>>& ranks) {
  std::vector<std::int64_t> all;
  std::set<std::pair<Shape, std::int64_t>> seen;
  for (const auto& feed : ranks) {
    const Batch b = feed->next();
    seen.insert({b.shape, b.step});
    std::ranges::copy_if(b.utterances, std::back_inserter(all), [](std::int64_t u) { return u >= 0; });
  }
  EXPECT_EQ(seen.size(), 1u) << "all ranks have the same shape at the same step";
  return all;
}

std::vector<std::unique_ptr<Feed>> feeds_of(Config config, std::int32_t world) {
  std::vector<std::unique_ptr<Feed>> ranks;
  config.world = world;
  for (config.rank = 0; config.rank < world; ++config.rank) ranks.push_back(std::make_unique<Feed>(config));
  return ranks;
}

TEST(BatchSizeAuto, RowsTimesFramesAreWithinTheBudgetForAnyLengthsAndRanks) {
  for (std::uint64_t seed = 0, end = slow_cases(200, 5'000); seed < end; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto lengths = random_lengths(random, random_between(random, 20, 800), 200, 900);
    Config config;
    config.batch_size = 0;
    config.shapes = random_between(random, 1, 8);
    config.world = random_between(random, 1, 6);
    config.remainder = static_cast<RemainderRule>(random() % 4);
    config.frame_memory = random_between(random, 1, 3'000'000);
    config.device_memory = config.frame_memory * random_between(random, 900, 100'000);
    const std::vector<Shape> shapes = configured_shapes(lengths, config);
    ASSERT_LE(static_cast<std::int32_t>(shapes.size()), config.shapes);
    EXPECT_EQ(configured_shapes(lengths, config), shapes);
    for (const Shape& shape : shapes) {
      ASSERT_EQ(shape.rows % config.world, 0);
      EXPECT_LE(shape.rows / config.world * std::int64_t{shape.frames} * config.frame_memory,
                config.device_memory);
    }
    for (config.rank = 0; config.rank < config.world; ++config.rank) {
      const Plan plan(lengths, shapes,
                      {.rank = config.rank, .world = config.world, .remainder = Remainder::pad});
      EXPECT_TRUE(plan.rejected().empty());
      for (std::size_t k = 0; k < shapes.size(); ++k)
        EXPECT_EQ(plan.shapes()[k].rows, shapes[k].rows / config.world);
    }
  }
}

TEST(BatchSizeAuto, BatchesAreAClosedSetOfShapesWithTheirOwnRows) {
  const MadeDataset made(150);
  const Config config = automatic(made, 400);
  Feed feed(config);
  const std::span<const Shape> shapes = feed.plan().shapes();
  ASSERT_GT(shapes.size(), 1u);
  EXPECT_GT(shapes.front().rows, shapes.back().rows);
  std::set<Shape> seen;
  for (std::int64_t i = 0; i < 2 * feed.plan().steps_per_epoch(); ++i) {
    const Batch b = feed.next();
    seen.insert(b.shape);
    ASSERT_EQ(static_cast<std::int32_t>(b.utterances.size()), b.shape.rows);
    ASSERT_LE(b.shape.rows * b.shape.frames, 400);
  }
  EXPECT_EQ(seen, std::set<Shape>(shapes.begin(), shapes.end()));
}

TEST(BatchSizeAuto, OrderAndBytesAreTheSameForAnyWorkerCountLiveAndCached) {
  const MadeDataset made(100);
  std::vector<std::uint64_t> expected;
  for (const auto mode : {PreprocessingMode::runtime, PreprocessingMode::precompute})
    for (const int workers : {1, 3, 16}) {
      Config config = automatic(made, 300);
      config.preprocessing_mode = mode;
      config.num_workers = workers;
      Feed feed(config);
      const auto got = take(feed, 40);
      if (expected.empty()) expected = got;
      EXPECT_EQ(got, expected) << workers << " workers";
    }
}

/// A buffer's rows move with each shape: what another shape left behind must not show.
TEST(BatchSizeAuto, RowsAreTheUtterancesOwnAndTheRestIsPadding) {
  const MadeDataset made(100);
  Config config = automatic(made, 400);
  config.mel_pad_value = -7;
  std::map<std::int64_t, std::vector<float>> own;
  const auto for_each_row = [](Feed& feed, int batches, const auto& body) {
    for (int i = 0; i < batches; ++i) {
      const Batch b = feed.next();
      const auto bins = static_cast<std::size_t>(b.bins),
                 row = bins * static_cast<std::size_t>(b.shape.frames);
      for (std::size_t r = 0; r < b.utterances.size(); ++r)
        body(b.utterances[r], b.mel.subspan(r * row, row), bins * static_cast<std::size_t>(b.mel_lengths[r]));
    }
  };
  Config one_by_one = config;
  one_by_one.batch_size = 1;
  Feed reference(one_by_one);
  for_each_row(reference, 100, [&](std::int64_t u, std::span<const float> mel, std::size_t length) {
    own[u].assign(mel.begin(), mel.begin() + static_cast<std::ptrdiff_t>(length));
  });
  ASSERT_EQ(own.size(), 100u);
  Feed feed(config);
  for_each_row(feed, 60, [&](std::int64_t u, std::span<const float> mel, std::size_t length) {
    ASSERT_TRUE(std::ranges::equal(mel.first(length), own.at(u)));
    ASSERT_TRUE(std::ranges::all_of(mel.subspan(length), [](float x) { return x == -7.0F; }));
  });
}

TEST(BatchSizeAuto, RanksTogetherShowEveryUtteranceOnceWithPad) {
  const MadeDataset made(90);
  for (const std::int32_t world : {1, 2, 3}) {
    Config config = automatic(made, 200);
    config.remainder = RemainderRule::pad;
    const auto ranks = feeds_of(config, world);
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < ranks[0]->plan().steps_per_epoch(); ++i)
      std::ranges::copy(global_batch(ranks), std::back_inserter(all));
    EXPECT_EQ(all.size(), 90u) << world;
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), 90u) << world;
  }
}

TEST(BatchSizeAuto, NoUtteranceIsLeftOutForGoodWithDrop) {
  const MadeDataset made(60);
  // Room for many more rows than there are utterances.
  Config config = automatic(made, 1'000'000);
  config.num_workers = 1;
  Feed feed(config);
  std::set<std::int64_t> seen;
  for (int i = 0; i < (sanitized ? 100 : 300); ++i) {
    const Batch b = feed.next();
    seen.insert(b.utterances.begin(), b.utterances.end());
  }
  EXPECT_EQ(seen.size(), 60u);
}

TEST(BatchSizeAuto, AnotherWorldKeepsEachShapesGlobalBatch) {
  const MadeDataset made(120);
  const Config config = automatic(made, 150);
  const auto two = feeds_of(config, 2);
  for (int i = 0; i < 7; ++i) global_batch(two);
  const FeedState state = two[0]->state();
  EXPECT_EQ(state, two[1]->state());
  for (const std::int32_t world : {1, 3, 4}) {
    const auto others = feeds_of(config, world);
    const auto again = feeds_of(config, 2);
    for (const auto& feed : others) feed->restore(state);
    for (const auto& feed : again) feed->restore(state);
    EXPECT_EQ(others[0]->state(), state);
    for (std::size_t k = 0; k < state.shapes.size(); ++k)
      EXPECT_EQ(others[0]->plan().shapes()[k].rows, (state.shapes[k].rows + world - 1) / world);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(global_batch(others), global_batch(again)) << world << " ranks";
  }
}

TEST(BatchSizeAuto, ARestoredStateBringsItsRowsAndAnEmptyOneKeepsThePresentOnes) {
  const MadeDataset made(100);
  Feed first(automatic(made, 300));
  take(first, 5);
  const FeedState state = first.state();
  Feed fixed(made.config());
  const FeedState before = fixed.state();
  fixed.restore({.seed = 3});
  EXPECT_EQ(fixed.state().shapes, before.shapes);
  fixed.restore(state);
  EXPECT_EQ(fixed.state(), state);
  EXPECT_EQ(take(fixed, 20), take(first, 20));
}

TEST(BatchSizeAuto, PadToFixedLengthIsOneShape) {
  const MadeDataset made(60);
  Config config = automatic(made, 500);
  config.shapes = 1;
  config.pad_to_fixed_length = true;
  config.max_text_length = 60;
  config.max_mel_frames = 50;
  Feed feed(config);
  EXPECT_EQ(feed.next().shape, (Shape{8, 60, 50}));
  EXPECT_EQ(feed.plan().shapes().size(), 1u);
}

TEST(BatchSizeAuto, WhatIsMissingIsSaidWithItsKey) {
  const MadeDataset made(30);
  EXPECT_THAT(message([&] { Feed{automatic(made, 0)}; }),
              AllOf(HasSubstr("batch_size auto needs device_memory"), HasSubstr("a GPU")));
  EXPECT_THAT(message([&] { Feed{automatic(made, 20)}; }),
              AllOf(HasSubstr("a row of the largest shape has 48 frames"),
                    HasSubstr("device_memory (20 bytes) has room for 20 at a frame_memory of 1 bytes"),
                    HasSubstr("lower max_mel_frames")));
  Config no_frame = automatic(made, 400);
  no_frame.frame_memory = 0;
  EXPECT_THAT(message([&] { Feed{no_frame}; }), HasSubstr("frame_memory must be at least 1 byte, but is 0"));
  Config dynamic = automatic(made, 400);
  dynamic.shapes = 0;
  EXPECT_THAT(message([&] { Feed{dynamic}; }),
              AllOf(HasSubstr("batch_size auto"), HasSubstr("shapes is dynamic")));
  EXPECT_EQ(message([&] { Feed{automatic(made, 48)}; }), "no error");
}

TEST(FeedState, RowsThatCannotBeAreRefusedAndTheFeedGoesOn) {
  const MadeDataset made(30);
  Feed expected(made.config());
  Feed feed(made.config());
  FeedState state = feed.state();
  state.shapes[0].rows = 0;
  EXPECT_THAT(message([&] { feed.restore(state); }), HasSubstr("must have at least 1 row, but has 0"));
  state.shapes[0].rows = most_rows + 1;
  EXPECT_THAT(message([&] { feed.restore(state); }),
              AllOf(HasSubstr("needs a world of 2 at least, but world is 1"), HasSubstr("32768 rows")));
  EXPECT_EQ(take(feed, 5), take(expected, 5));
}

/// Counts what batches are made of.
class CountedMemory : public BatchMemory {
 public:
  void* allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    most_ = std::max(most_, bytes);
    return heap_->allocate(bytes);
  }
  void release(void* p) noexcept override { heap_->release(p); }
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  std::shared_ptr<BatchMemory> heap_ = heap_memory();
  std::mutex mutex_;
  std::size_t most_ = 0;
};

TEST(BatchSizeAuto, ABufferHoldsTheLargestBatchAndNotTheMostRowsOfTheLongestShape) {
  const MadeDataset made(200);
  const auto memory = std::make_shared<CountedMemory>();
  Feed feed(automatic(made, 400), {.memory = memory});
  std::size_t largest = 0;
  for (std::int64_t i = 0; i < feed.plan().steps_per_epoch(); ++i)
    largest = std::max(largest, feed.next().block.size());
  EXPECT_EQ(memory->most(), largest);
  EXPECT_LT(memory->most(), 2u * 400 * 80 * sizeof(float));
  const std::span<const Shape> shapes = feed.plan().shapes();
  EXPECT_GT(static_cast<std::size_t>(shapes.front().rows * shapes.back().frames * 80) * sizeof(float),
            memory->most());
}

}  // namespace
}  // namespace penstock
