#include "penstock/feed/feed_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/monitor/run_reader.h"
#include "tests/feed/made_dataset.h"

namespace penstock {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

TEST(FeedLog, LinesAddUpToWhatWasDeliveredAndTheLastNamesTheBadSamples) {
  MadeDataset made(30);
  made.write(7, "");
  Config config = made.config();
  config.on_bad_sample = OnBadSample::skip;
  Feed feed(config);
  const TempFolder run;
  RunLog log(run.path());
  FeedLog lines(log, feed);
  auto now = FeedLog::Clock::now();
  lines.after_batch(now);
  ASSERT_THAT(read_run(run.path()).feed, IsEmpty());  // it is not time yet
  std::int64_t rows = 0;
  for (int i = 0; i < 20; ++i) {
    rows += feed.next().shape.rows;
    if (i % 5 == 4) lines.after_batch(now += 3 * FeedLog::every);
  }
  lines.finish();

  const RunRecords records = read_run(run.path());
  ASSERT_THAT(records.feed, SizeIs(5));
  std::int64_t samples = 0;
  for (const FeedRecord& line : records.feed) {
    samples += line.samples;
    EXPECT_EQ(line.workers, 2);
    EXPECT_EQ(line.depth, 3);
    EXPECT_EQ(line.skipped, 1);
    EXPECT_THAT(line.skipped_samples, SizeIs(&line == &records.feed.back() ? 1 : 0));
    if (line.samples == 0) continue;
    EXPECT_GE(line.ring_level, 0);
    EXPECT_LE(line.ring_level, 3);
  }
  EXPECT_EQ(samples, rows);
  EXPECT_THAT(records.feed.front().stages, SizeIs(stage_count));
  EXPECT_GT(records.feed.front().stages.at(2).second, 0);  // mel
  EXPECT_EQ(records.feed.back().skipped_samples.at(0).id, MadeDataset::id(7));
  EXPECT_EQ(records.damaged_lines, 0U);
}

}  // namespace
}  // namespace penstock
