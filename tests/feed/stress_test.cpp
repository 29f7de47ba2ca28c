// The feed under slow and failing storage and early destruction. The delays and errors come from below: this
// program's own openat() and pread() stand in front of the system's.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <random>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/feed/feed.h"
#include "tests/feed/made_dataset.h"
#include "tests/long_run.h"

namespace {

std::atomic<int> most_delay_us{0};
std::atomic<int> failing_share{0};  // of 1000 reads

std::mt19937& thread_random() {
  static std::atomic<unsigned> seeds{1};
  thread_local std::mt19937 random(seeds++);
  return random;
}

void delay() {
  if (const int most = most_delay_us; most > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(thread_random()() % static_cast<unsigned>(most)));
}

}  // namespace

extern "C" int openat(int folder, const char* path, int flags, ...) {
  delay();
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

extern "C" ssize_t pread(int fd, void* buffer, size_t size, off_t offset) {
  delay();
  if (static_cast<int>(thread_random()() % 1000) < failing_share) {
    errno = EIO;
    return -1;
  }
  // Now and then less than was asked for, as a file system may do.
  if (most_delay_us > 0 && size > 1) size -= thread_random()() % (size / 2);
  return syscall(SYS_pread64, fd, buffer, size, offset);
}

namespace penstock {
namespace {

struct Storage {
  Storage(int delay_us, int failing) { most_delay_us = delay_us, failing_share = failing; }
  ~Storage() { most_delay_us = 0, failing_share = 0; }
};

TEST(FeedStress, SlowStorageChangesNothingButTime) {
  const MadeDataset made(40);
  Config config = made.config();
  config.num_workers = 1;
  Feed calm(config);
  std::vector<std::uint64_t> expected;
  for (int i = 0; i < 60; ++i) expected.push_back(fingerprint(calm.next()));
  const Storage slow(300, 0);
  config.num_workers = 9;
  for (int round = 0; round < cases(2, 40); ++round) {
    Feed feed(config);
    for (int i = 0; i < 60; ++i) {
      if (thread_random()() % 4 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(thread_random()() % 500));
      ASSERT_EQ(fingerprint(feed.next()), expected[static_cast<std::size_t>(i)]);
    }
  }
}

TEST(FeedStress, ItCanBeDestroyedAndRestoredAtAnyMoment) {
  const MadeDataset made(40);
  Config config = made.config();
  { const Feed index_it(config); }
  const Storage slow(200, 0);
  for (int round = 0; round < cases(60, 3000); ++round) {
    config.num_workers = 1 + static_cast<int>(thread_random()() % 12);
    config.prefetch_buffer_size = 2 + static_cast<int>(thread_random()() % 5);
    Feed feed(config);
    Batch kept;
    for (auto i = thread_random()() % 5; i > 0; --i) kept = feed.next();
    if (thread_random()() % 3 == 0) {
      feed.restore({.seed = 0, .epoch = static_cast<std::int64_t>(thread_random()() % 5)});
      kept = feed.next();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(thread_random()() % 300));
  }
}

TEST(FeedStress, WorkersThatAreJustLookingForWorkSeeThatItStops) {
  const MadeDataset made(8, 1, 2000);
  Config config = made.config();
  config.num_workers = 8;
  config.prefetch_buffer_size = 2;
  Feed feed(config);
  for (int round = 0; round < cases(60, 30'000); ++round) {
    for (int i = round % 4; i > 0; --i) feed.next();
    feed.reset();
  }
}

TEST(FeedStress, ReadErrorsAreSkippedAndNamed) {
  const MadeDataset made(60);
  Config config = made.config();
  { const Feed index_it(config); }
  config.on_bad_sample = OnBadSample::skip;
  config.num_workers = 5;
  const Storage failing(50, 100);
  Feed feed(config);
  for (int i = 0; i < cases(60, 2000); ++i) {
    const Batch b = feed.next();
    for (std::size_t r = 0; r < b.utterances.size(); ++r)
      ASSERT_EQ(b.utterances[r] < 0, b.mel_lengths[r] == 0);
  }
  ASSERT_FALSE(feed.skipped().empty());
  for (const SkippedSample& s : feed.skipped())
    EXPECT_EQ(s.reason, "read: " + s.path + ": Input/output error") << s.id;
}

TEST(FeedStress, AReadErrorReachesTheConsumerWhichMayTryAgain) {
  const MadeDataset made(30);
  { const Feed index_it(made.config()); }
  Feed feed(made.config());
  {
    const Storage failing(0, 1000);
    EXPECT_THROW(
        {
          for (int i = 0; i < 100; ++i) feed.next();
        },
        SampleError);
  }
  const FeedState at = feed.state();
  feed.restore(at);
  EXPECT_NO_THROW(feed.next());
}

}  // namespace
}  // namespace penstock
