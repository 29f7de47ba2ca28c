#include "penstock/feed/feed.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "penstock/decode/decode.h"
#include "penstock/features/mel.h"
#include "penstock/feed/slots.h"
#include "tests/feed/made_dataset.h"
#include "tests/long_run.h"

namespace penstock {
namespace {

TEST(Feed, OrderAndBytesAreTheSameForAnyWorkerCount) {
  const MadeDataset made(60);
  std::vector<std::uint64_t> expected;
  for (const int workers : {1, 2, 7, 64}) {
    Config config = made.config();
    config.num_workers = workers;
    Feed feed(config);
    const auto got = take(feed, 40);
    if (expected.empty()) expected = got;
    EXPECT_EQ(got, expected) << workers << " workers";
  }
  EXPECT_EQ(std::set(expected.begin(), expected.end()).size(), expected.size());
}

// A consumer that is slow, then fast, then slow again: workers are parked and woken, the ring gets shorter
// and longer. The batches do not show it. On a slow machine it has to be slower before it need not wait.
TEST(Feed, OrderAndBytesAreTheSameWhateverTheAutotunerDoes) {
  const MadeDataset made(60);
  Config config = made.config();
  config.num_workers = 1;
  Feed fixed(config);
  config.num_workers = 0;
  config.prefetch_buffer_size = 6;
  std::int64_t told = 0;
  Feed tuned(config, {.tuned = [&](const TuneChange& change) {
               ++told;
               EXPECT_GE(change.workers, 1);
               EXPECT_GE(change.depth, 2);
               EXPECT_LE(change.depth, 6);
               EXPECT_FALSE(change.reason.empty());
             }});
  for (int i = 0; i < 400 || (told == 0 && i < 4000); ++i) {
    ASSERT_EQ(fingerprint(tuned.next()), fingerprint(fixed.next())) << i;
    if (i % 200 < 100) std::this_thread::sleep_for(std::chrono::milliseconds(3 << std::min(i / 200, 6)));
  }
  EXPECT_GT(told, 0);
  EXPECT_EQ(tuned.stats().tune_changes, told);
  tuned.reset();
  fixed.reset();
  EXPECT_EQ(take(tuned, 20), take(fixed, 20));
}

TEST(Feed, AnExplicitNumberOfWorkersIsKept) {
  const MadeDataset made(40);
  Config config = made.config();
  config.num_workers = 3;
  Feed feed(config);
  for (int i = 0; i < 60; ++i) {
    feed.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(feed.workers(), 3);
  EXPECT_EQ(feed.stats().depth, config.prefetch_buffer_size);
  EXPECT_EQ(feed.stats().tune_changes, 0);
}

TEST(Feed, EveryRowIsWhatItsUtteranceGivesAndTheRestIsPadding) {
  const MadeDataset made(40);
  Config config = made.config();
  config.mel_pad_value = -7;
  Feed feed(config);
  const Mel mel(config.mel);
  const Dataset& dataset = feed.dataset();
  Decoder decoder({});
  MelScratch mel_scratch;
  TextScratch text_scratch;
  for (int i = 0; i < 20; ++i) {
    const Batch b = feed.next();
    const auto frames = static_cast<std::size_t>(b.shape.frames),
               tokens = static_cast<std::size_t>(b.shape.tokens);
    for (std::size_t r = 0; r < static_cast<std::size_t>(b.shape.rows); ++r) {
      const Utterance u = dataset.index.utterance(b.utterances[r]);
      const std::string bytes = read_text(made.folder() / u.path);
      const auto audio = decoder.decode(std::as_bytes(std::span(bytes)), u.path);
      std::vector<float> expected(frames * 80, -7.0F);
      mel.compute(audio, expected.data(), 80, mel_scratch);
      ASSERT_EQ(b.mel_lengths[r], config.mel.frames(static_cast<std::int64_t>(audio.size())));
      ASSERT_TRUE(std::ranges::equal(b.mel.subspan(r * frames * 80, frames * 80), expected));
      std::vector<std::int32_t> ids(tokens, SymbolTable::pad);
      ASSERT_EQ(b.token_lengths[r], dataset.tokenizer->encode(u.text, ids, text_scratch));
      ASSERT_TRUE(std::ranges::equal(b.tokens.subspan(r * tokens, tokens), ids));
      ASSERT_EQ(b.speakers[r], u.speaker);
      ASSERT_EQ(b.replaced[r], 0);
    }
  }
}

TEST(Feed, BatchesFollowThePlanOverEpochs) {
  const MadeDataset made(30);
  Feed feed(made.config());
  const Plan& plan = feed.plan();
  for (std::int64_t epoch = 0; epoch < 3; ++epoch)
    for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
      const Batch b = feed.next();
      ASSERT_EQ(b.epoch, epoch);
      ASSERT_EQ(b.step, step);
      const BatchPlan expected = plan.batch(epoch, step);
      ASSERT_EQ(b.shape, expected.shape);
      ASSERT_NE(std::ranges::find(plan.shapes(), b.shape), plan.shapes().end());
      for (std::int32_t r = 0; r < b.shape.rows; ++r)
        ASSERT_EQ(b.utterances[static_cast<std::size_t>(r)],
                  feed.dataset().members[static_cast<std::size_t>(plan.utterance(expected, r))]);
    }
}

TEST(Feed, TheLayoutMayBeTransposed) {
  const MadeDataset made(20);
  Config config = made.config();
  Feed frames_first(config);
  config.mel.layout = MelLayout::bins_first;
  Feed bins_first(config);
  for (int i = 0; i < 12; ++i) {
    const Batch a = frames_first.next(), b = bins_first.next();
    ASSERT_EQ(a.shape, b.shape);
    const auto frames = static_cast<std::size_t>(a.shape.frames);
    for (std::size_t r = 0; r < static_cast<std::size_t>(a.shape.rows); ++r)
      for (std::size_t f = 0; f < frames; ++f)
        for (std::size_t bin = 0; bin < 80; ++bin)
          ASSERT_EQ(a.mel[(r * frames + f) * 80 + bin], b.mel[(r * 80 + bin) * frames + f]);
  }
}

TEST(Feed, ValidationSeesEveryUtteranceExactlyOnce) {
  const MadeDataset made(61);
  Config config = made.config();
  config.split = Split::val;
  config.val_fraction = 0.4;
  Feed feed(config);
  std::map<std::int64_t, int> seen;
  for (std::int64_t i = 0; i < feed.plan().steps_per_epoch(); ++i) {
    const Batch b = feed.next();
    for (std::size_t r = 0; r < b.utterances.size(); ++r) {
      ++seen[b.utterances[r]];
      if (b.utterances[r] >= 0) continue;
      EXPECT_EQ(b.mel_lengths[r], 0);
      EXPECT_EQ(b.token_lengths[r], 0);
      EXPECT_EQ(b.speakers[r], -1);
    }
  }
  seen.erase(-1);
  EXPECT_EQ(seen.size(), feed.dataset().members.size());
  for (const auto& [utterance, times] : seen) {
    EXPECT_EQ(times, 1);
    EXPECT_TRUE(feed.dataset().index.utterance(utterance).validation);
  }
}

TEST(Feed, DynamicShapesAreTheLongestOfTheirBatch) {
  const MadeDataset made(30);
  Config config = made.config();
  config.shapes = 0;
  Feed feed(config);
  for (int i = 0; i < 10; ++i) {
    const Batch b = feed.next();
    EXPECT_EQ(b.shape.frames, *std::ranges::max_element(b.mel_lengths));
    EXPECT_EQ(b.shape.tokens, *std::ranges::max_element(b.token_lengths));
  }
}

TEST(Feed, TooLongUtterancesAreLeftOutWholeNeverCut) {
  const MadeDataset made(40);
  Config config = made.config();
  config.pad_to_fixed_length = true;
  config.shapes = 1;
  config.max_mel_frames = 30;
  config.max_text_length = 50;
  Feed feed(config);
  EXPECT_GT(feed.plan().rejected().size(), 0u);
  for (int i = 0; i < 10; ++i) {
    const Batch b = feed.next();
    EXPECT_EQ(b.shape, (Shape{4, 50, 30}));
    for (std::size_t r = 0; r < 4; ++r)
      EXPECT_EQ(b.mel_lengths[r],
                config.mel.frames(feed.dataset().index.utterance(b.utterances[r]).audio.samples));
  }
}

TEST(FeedState, ARestoredFeedGivesTheSameNextBatches) {
  const MadeDataset made(50);
  Config config = made.config();
  Feed whole(config);
  std::vector<FeedState> states{whole.state()};
  std::vector<std::uint64_t> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(fingerprint(whole.next()));
    states.push_back(whole.state());
  }
  config.num_workers = 5;
  Feed other(config);
  for (const std::size_t at : {0u, 1u, 7u, 30u, 12u, 24u}) {
    other.restore(states[at]);
    EXPECT_EQ(other.state(), states[at]);
    EXPECT_EQ(take(other, 5), std::vector(all.begin() + at, all.begin() + at + 5)) << at;
  }
  other.reset();
  EXPECT_EQ(take(other, 5), std::vector(all.begin(), all.begin() + 5));
}

TEST(FeedState, AnotherSeedIsTakenOver) {
  const MadeDataset made(50);
  Config config = made.config();
  config.seed = 77;
  Feed expected(config);
  config.seed = 5;
  Feed feed(config);
  take(feed, 3);
  feed.restore({.seed = 77});
  EXPECT_EQ(take(feed, 10), take(expected, 10));
  EXPECT_THROW(feed.restore({.epoch = -1}), Error);
  EXPECT_EQ(take(feed, 1), take(expected, 1));
}

std::vector<std::int64_t> batch_of_all(const std::vector<Feed*>& ranks) {
  std::vector<std::int64_t> all;
  for (Feed* feed : ranks) {
    const Batch b = feed->next();
    std::ranges::copy_if(b.utterances, std::back_inserter(all), [](std::int64_t u) { return u >= 0; });
  }
  return all;
}

TEST(FeedState, RanksShareTheGlobalBatchAndAnotherWorldKeepsIt) {
  const MadeDataset made(80);
  Config config = made.config();
  config.batch_size = 6;
  Feed alone(config);
  config.batch_size = 3;
  config.world = 2;
  Feed first(config);
  config.rank = 1;
  Feed second(config);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(batch_of_all({&first, &second}), batch_of_all({&alone}));
  // Four ranks of two rows each go on where two ranks of three stopped: one row of length 0 per batch at most
  // two ranks.
  config.world = 4;
  std::vector<std::unique_ptr<Feed>> four;
  for (config.rank = 0; config.rank < 4; ++config.rank) {
    four.push_back(std::make_unique<Feed>(config));
    four.back()->restore(first.state());
    EXPECT_EQ(four.back()->next().shape.rows, 2);
    four.back()->restore(first.state());
  }
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(batch_of_all({four[0].get(), four[1].get(), four[2].get(), four[3].get()}),
              batch_of_all({&alone}));
}

TEST(Feed, ABatchStaysAsItIsWhileItIsHeld) {
  const MadeDataset made(40);
  Feed feed(made.config());
  std::vector<Batch> held;
  std::vector<std::uint64_t> prints;
  for (int i = 0; i < 3; ++i) {
    held.push_back(feed.next());
    prints.push_back(fingerprint(held.back()));
    take(feed, 6);
  }
  for (std::size_t i = 0; i < held.size(); ++i) EXPECT_EQ(fingerprint(held[i]), prints[i]);
}

TEST(Feed, KeepingTooManyBatchesIsAClearErrorAndLettingGoMends) {
  const MadeDataset made(40);
  Feed feed(made.config());
  std::vector<Batch> held;
  try {
    for (int i = 0; i < 100; ++i) held.push_back(feed.next());
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("let go of batches"));
  }
  EXPECT_GE(held.size(), 3u);
  EXPECT_EQ(feed.state().step + feed.state().epoch * feed.plan().steps_per_epoch(),
            static_cast<std::int64_t>(held.size()));
  held.clear();
  EXPECT_NO_THROW(take(feed, 20));
}

TEST(Feed, BatchesOutliveTheFeed) {
  const MadeDataset made(20);
  Batch batch;
  std::uint64_t print = 0;
  {
    Feed feed(made.config());
    batch = feed.next();
    print = fingerprint(batch);
  }
  EXPECT_EQ(fingerprint(batch), print);
  std::thread([b = std::move(batch)]() mutable { b = {}; }).join();
}

TEST(Feed, WhatAConsumerWritesIsGoneWhenItsMemoryComesRound) {
  const MadeDataset made(40);
  Config config = made.config();
  Feed untouched(config), written(config);
  for (int i = 0; i < 60; ++i) {
    const Batch batch = written.next();
    ASSERT_EQ(fingerprint(batch), fingerprint(untouched.next())) << i;
    const auto block = std::span(const_cast<std::byte*>(batch.block.data()), batch.block.size());
    std::ranges::fill(block, std::byte{0xA5});
    *batch.written = true;
  }
}

TEST(Feed, SharesOfAnEpochTogetherAreAllOfIt) {
  const MadeDataset made(60);
  const Config config = made.config();
  Feed whole(config);
  const std::int64_t steps = whole.plan().steps_per_epoch();
  const auto expected = take(whole, static_cast<int>(2 * steps));
  for (const std::int64_t every : {2, 3, 5}) {
    std::vector<std::uint64_t> got(expected.size());
    for (std::int64_t first = 0; first < every; ++first) {
      Feed share(config, {.first = first, .every = every});
      for (std::int64_t epoch = 0; epoch < 2; ++epoch)
        for (std::int64_t step = first; step < steps; step += every)
          got[static_cast<std::size_t>(epoch * steps + step)] = fingerprint(share.next());
      // Restored, it goes on with its own next batch.
      share.restore({.seed = config.seed, .epoch = 1, .step = 1});
      const Batch next = share.next();
      EXPECT_GE(next.step, 1);
      EXPECT_EQ(next.step % every, first);
      EXPECT_EQ(fingerprint(next), expected[static_cast<std::size_t>(steps + next.step)]);
    }
    EXPECT_EQ(got, expected) << every << " shares";
  }
}

TEST(Feed, AShareWithoutABatchIsAnErrorThatSaysSo) {
  const MadeDataset made(40);
  try {
    Feed feed(made.config(), {.first = 500, .every = 501});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("none is left for number 501 of 501"));
  }
}

TEST(Slot, AWaitIsPolledAndCanBeGivenUpAndTakenUpAgain) {
  const std::vector<Shape> shapes = {{.rows = 1, .tokens = 8, .frames = 8}};
  Slot slot;
  slot.open(1, {.plan = {.shape = shapes[0]}, .buffer = std::make_shared<BatchBuffer>(shapes, 80)});
  int polls = 0;
  EXPECT_THROW(slot.wait([&] {
    if (++polls == 2) throw std::runtime_error("Ctrl-C");
  }),
               std::runtime_error);
  EXPECT_EQ(polls, 2);
  ASSERT_EQ(slot.claim(1), 0);
  std::jthread worker([&] { slot.finish(0); });
  slot.wait([] {});
  EXPECT_TRUE(slot.ready());
}

TEST(Slot, ABatchThatOpensWhileAWorkerLooksIsNotPassedOver) {
  const std::vector<Shape> shapes = {{.rows = 2, .tokens = 8, .frames = 8}};
  const auto buffer = std::make_shared<BatchBuffer>(shapes, 80);
  const auto batches = static_cast<std::uint64_t>(cases(100'000, 2'000'000));
  Slot slot;
  std::atomic<std::uint64_t> passed{0};
  std::jthread worker([&](const std::stop_token& stopping) {
    for (std::uint64_t sequence = 1; !stopping.stop_requested();) {
      const std::int32_t row = slot.claim(sequence);
      if (row >= 0)
        slot.finish(row);
      else if (row == Slot::none_left)
        passed = sequence++;
      else
        std::this_thread::yield();  // both threads may have to share a CPU
    }
  });
  for (std::uint64_t sequence = 1; sequence <= batches; ++sequence) {
    slot.open(sequence, {.plan = {.shape = shapes[0]}, .buffer = buffer});
    while (passed < sequence) std::this_thread::yield();
    ASSERT_TRUE(slot.ready()) << "batch " << sequence << " was left behind with unclaimed rows";
  }
}

TEST(Feed, TooFewUtterancesForABatchIsAnErrorThatSaysSo) {
  const MadeDataset made(3);
  EXPECT_THROW(Feed{made.config()}, Error);
  Config config = made.config();
  config.remainder = RemainderRule::pad;
  config.shapes = 1;
  Feed feed(config);
  EXPECT_EQ(feed.next().utterances[3], -1);
}

TEST(FeedLong, OrderIsTheSameForAnyWorkerCountOverManyBatches) {
  const MadeDataset made(cases(40, 400), 3, 40000);
  const int batches = cases(30, 2000);
  std::vector<std::uint64_t> expected;
  for (const int workers : {1, 2, 7, 64}) {
    Config config = made.config();
    config.num_workers = workers;
    Feed feed(config);
    const auto got = take(feed, batches);
    if (expected.empty()) expected = got;
    ASSERT_EQ(got, expected);
  }
  printf("EVIDENCE order and bytes with 1, 2, 7 and 64 workers | the same | the same over %d batches\n",
         batches);
}

}  // namespace
}  // namespace penstock
