#include "penstock/feed/device_feed.h"

#include <deque>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "tests/feed/made_dataset.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Config on_device(const MadeDataset& made, const std::string& device) {
  Config config = made.config();
  config.device = device;
  return config;
}

/// As the host reads it from the device's memory, which it can here.
std::uint64_t arrived(const DeviceBatch& batch) {
  batch.wait();
  return fingerprint(batch.device());
}

// Every way to a device, and none at all: the same batches.
TEST(DeviceFeed, DeliversWhatTheFeedFilled) {
  const MadeDataset made(60);
  Feed host(made.config());
  std::vector<std::uint64_t> expected;
  for (int i = 0; i < 60; ++i) expected.push_back(fingerprint(host.next()));
  for (const std::string device : {"cpu", "simulated"})
    for (const bool prefetch : {true, false})
      for (const bool overlap : {true, false}) {
        Config config = on_device(made, device);
        config.device_prefetch = prefetch;
        config.overlap = overlap;
        DeviceFeed feed(config);
        for (std::size_t i = 0; i < expected.size(); ++i)
          ASSERT_EQ(arrived(feed.next()), expected[i])
              << device << " " << prefetch << overlap << ", batch " << i;
      }
}

TEST(DeviceFeed, TheHostHasTheSmallArraysAtOnce) {
  const MadeDataset made(40);
  Feed host(made.config());
  DeviceFeed feed(on_device(made, "simulated"));
  for (int i = 0; i < 20; ++i) {
    const Batch expected = host.next();
    const DeviceBatch batch = feed.next();
    const Batch& small = batch.host();
    EXPECT_EQ(small.shape, expected.shape);
    EXPECT_EQ(small.step, expected.step);
    EXPECT_TRUE(std::ranges::equal(small.utterances, expected.utterances));
    EXPECT_TRUE(std::ranges::equal(small.mel_lengths, expected.mel_lengths));
    EXPECT_TRUE(std::ranges::equal(small.token_lengths, expected.token_lengths));
    EXPECT_TRUE(std::ranges::equal(small.speakers, expected.speakers));
    EXPECT_TRUE(std::ranges::equal(small.replaced, expected.replaced));
    EXPECT_TRUE(small.mel.empty() && small.tokens.empty());
  }
}

// The stage runs ahead of the consumer; the state must not.
TEST(DeviceFeed, TheStateIsBehindTheLastBatchThatWasDelivered) {
  const MadeDataset made(60);
  for (const std::string device : {"cpu", "simulated"}) {
    const Config config = on_device(made, device);
    DeviceFeed feed(config);
    for (int i = 0; i < 17; ++i) feed.next();
    const FeedState state = feed.state();
    std::vector<std::uint64_t> rest;
    for (int i = 0; i < 20; ++i) rest.push_back(arrived(feed.next()));
    DeviceFeed other(config);
    other.restore(state);
    feed.restore(state);
    EXPECT_EQ(feed.state(), state);
    for (const std::uint64_t expected : rest) {
      ASSERT_EQ(arrived(other.next()), expected);
      ASSERT_EQ(arrived(feed.next()), expected);
    }
    feed.reset();
    other.restore({.seed = state.seed});
    EXPECT_EQ(arrived(feed.next()), arrived(other.next()));
  }
}

TEST(DeviceFeed, AStateThatCannotBeRestoredChangesNothing) {
  const MadeDataset made(60);
  DeviceFeed feed(on_device(made, "simulated")), other(on_device(made, "simulated"));
  for (int i = 0; i < 5; ++i) feed.next(), other.next();
  FeedState bad = feed.state();
  bad.step = -1;
  EXPECT_THROW(feed.restore(bad), Error);
  EXPECT_EQ(feed.state(), other.state());
  EXPECT_EQ(arrived(feed.next()), arrived(other.next()));
}

TEST(DeviceFeed, ABadSampleComesInItsPlace) {
  const MadeDataset made(60);
  Feed host(made.config());
  std::vector<std::uint64_t> good;
  for (int i = 0; i < 4; ++i) good.push_back(fingerprint(host.next()));
  const Batch fifth = host.next();
  const std::int64_t bad = fifth.utterances[0];
  made.write(static_cast<int>(bad), "broken");
  DeviceFeed feed(on_device(made, "simulated"));
  // An utterance may come again in an earlier batch only in another epoch.
  for (const std::uint64_t expected : good) ASSERT_EQ(arrived(feed.next()), expected);
  EXPECT_THROW(feed.next(), SampleError);
  EXPECT_THROW(feed.next(), SampleError);
}

TEST(DeviceFeed, ABatchSizeMayFollowTheDevicesMemory) {
  const MadeDataset made(60);
  Config config = on_device(made, "simulated");
  config.batch_size = 0;
  config.frame_memory = 50'000'000;
  DeviceFeed feed(config);
  const auto free = static_cast<std::int64_t>(feed.device().info().free_bytes);
  for (const Shape& shape : feed.feed().plan().shapes())
    EXPECT_LE(std::int64_t{shape.rows} * shape.frames * config.frame_memory, free);
  config.device = "cpu";
  EXPECT_THAT([&] { DeviceFeed{config}; }, ThrowsMessage<Error>(HasSubstr("device_memory")));
}

TEST(DeviceFeed, ADeviceThatIsNotThereIsNamed) {
  const MadeDataset made(20);
  EXPECT_THAT([&] { DeviceFeed{on_device(made, "cuda")}; }, ThrowsMessage<Error>(HasSubstr("cuda")));
}

TEST(DeviceFeed, BatchesOutliveIt) {
  const MadeDataset made(40);
  DeviceBatch kept;
  std::uint64_t expected = 0;
  {
    DeviceFeed feed(on_device(made, "simulated"));
    kept = feed.next();
    expected = arrived(kept);
    feed.next();
  }
  EXPECT_EQ(arrived(kept), expected);
}

}  // namespace
}  // namespace penstock
