#include "penstock/feed/tune.h"

#include <random>

#include <gmock/gmock.h>

#include "penstock/core/error.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/feed.h"
#include "tests/feed/made_dataset.h"
#include "tests/long_run.h"

namespace penstock {
namespace {

using testing::ElementsAre;

const Machine ideal{.cpus = 64, .next_seconds = 0, .notify_seconds = 0, .wake_seconds = 0, .spin_seconds = 0};

/// A frame takes one worker a second, and so does a step of `step` frames: whole numbers to think with.
ModeCost second_per_frame(double slowdown_of_two = 1) {
  return {.cost = {.frame = 1}, .points = {{1, 1}, {2, slowdown_of_two}}};
}

BatchWork batch(double step, std::vector<std::int32_t> frames) {
  BatchWork w{.step_seconds = step};
  for (const std::int32_t f : frames) {
    w.rows.push_back({.frames = f});
    w.valid_frames += f;
    w.frames += 20;
  }
  return w;
}

TEST(Tune, AFeedThatIsHalfAsFastKeepsTheDeviceHalfBusy) {
  const std::vector<BatchWork> work(50, batch(10, {5, 5, 5, 5}));
  EXPECT_NEAR(predict(work, second_per_frame(), {.workers = 1, .depth = 4}, ideal).au, 0.5, 0.02);
  EXPECT_NEAR(predict(work, second_per_frame(), {.workers = 2, .depth = 4}, ideal).au, 1, 0.02);
  EXPECT_NEAR(predict(work, second_per_frame(2), {.workers = 2, .depth = 4}, ideal).au, 0.5, 0.02);
}

TEST(Tune, PaddingAndUsefulFramesAreThoseOfTheStepsThatCount) {
  std::vector<BatchWork> work(10, batch(4, {1, 3}));
  work[0] = work[1] = batch(4, {20, 20});
  const Prediction p = predict(work, second_per_frame(), {.workers = 2, .depth = 2, .warm_up = 1}, ideal);
  EXPECT_DOUBLE_EQ(p.padding, 0.9);
  EXPECT_NEAR(p.frames_per_second, 1, 1e-9);  // 4 valid frames in each step of 4 seconds
  EXPECT_NEAR(p.seconds, 32, 1e-9);
}

/// What a ring of 2 or 3 slots does with one worker, as a recursion over whole batches.
double by_recursion(const std::vector<BatchWork>& work, std::size_t depth) {
  std::vector<double> start(work.size()), end(work.size());
  double filled = 0, computed = 0;
  for (std::size_t n = 0; n < work.size(); ++n) {
    const double opened = n < depth ? 0 : end[n - depth];
    filled = std::max(filled, opened) + static_cast<double>(work[n].valid_frames);
    start[n] = std::max(filled, n == 0 ? 0 : end[n - 1]);
    end[n] = start[n] + work[n].step_seconds;
    if (n > 0) computed += work[n].step_seconds;
  }
  return computed / (end.back() - start[1]);
}

TEST(Tune, OneWorkerIsAsTheRecursionSays) {
  std::mt19937 random(5);
  for (int i = 0; i < cases(100, 5000); ++i) {
    std::vector<BatchWork> work;
    for (int n = 0; n < 30; ++n) {
      std::vector<std::int32_t> rows(1 + random() % 4);
      for (auto& r : rows) r = static_cast<std::int32_t>(1 + random() % 9);
      work.push_back(batch(static_cast<double>(1 + random() % 20), rows));
    }
    for (const int depth : {2, 3})
      EXPECT_NEAR(predict(work, second_per_frame(), {.workers = 1, .depth = depth}, ideal).au,
                  by_recursion(work, static_cast<std::size_t>(depth)), 1e-9);
  }
}

TEST(Tune, ADeeperRingEvensOutBatchesOfDifferentLength) {
  std::vector<BatchWork> work;
  for (int n = 0; n < 60; ++n) work.push_back(batch(10, {n % 4 == 0 ? 27 : 2}));
  const auto au = [&](int depth) {
    return predict(work, second_per_frame(), {.workers = 1, .depth = depth, .warm_up = 10}, ideal).au;
  };
  EXPECT_LT(au(2), au(3));
  EXPECT_LT(au(3), 0.9);
  EXPECT_GT(au(8), 0.99);
}

TEST(Tune, CopiesThatAreNotHiddenAddToEveryStep) {
  const std::vector<BatchWork> work(40, batch(10, {2, 2}));
  Machine machine = ideal;
  EXPECT_NEAR(predict(work, second_per_frame(), {.workers = 2, .depth = 4}, machine).au, 1, 0.001);
  machine.copy_frame = 10.0 / static_cast<double>(work[0].frames);  // as long as a step
  EXPECT_NEAR(predict(work, second_per_frame(), {.workers = 2, .depth = 4}, machine).au, 0.5, 0.01);
}

TEST(Tune, TheDevicesBuffersMakeTheRingLonger) {
  std::vector<BatchWork> work;
  for (int i = 0; i < 80; ++i) work.push_back(i % 8 == 0 ? batch(10, {20, 20}) : batch(10, {4, 4}));
  const auto au = [&](int depth, int device) {
    Machine machine = ideal;
    machine.device_batches = device;
    return predict(work, second_per_frame(), {.workers = 1, .depth = depth}, machine).au;
  };
  EXPECT_LT(au(2, 0), au(2, 3));
  EXPECT_EQ(au(2, 3), au(5, 0));
}

TEST(Tune, MoreWorkersThanCpusBringNothing) {
  const std::vector<BatchWork> work(40, batch(5, {5, 5}));
  Machine machine = ideal;
  machine.cpus = 1;
  const double one = predict(work, second_per_frame(), {.workers = 1, .depth = 4}, machine).au;
  EXPECT_EQ(predict(work, second_per_frame(), {.workers = 8, .depth = 4}, machine).au, one);
  EXPECT_NEAR(one, 0.5, 0.01);
}

TEST(Tune, AConsumerThatWaitedIsWokenAndItsWakerPaysForIt) {
  const std::vector<BatchWork> work(60, batch(1, {5, 5}));  // it always waits
  Machine machine = ideal;
  machine.wake_seconds = 3;  // hidden by the next batch's filling
  EXPECT_NEAR(predict(work, second_per_frame(), {.workers = 1, .depth = 4}, machine).au, 0.1, 0.002);
  machine.notify_seconds = 2;
  EXPECT_NEAR(predict(work, second_per_frame(), {.workers = 1, .depth = 4}, machine).au, 1 / 12.0, 0.002);
}

TEST(Tune, WorkersThatRestedWakeUpFirst) {
  const std::vector<BatchWork> work(60, batch(6, {4}));
  Machine machine = ideal;
  const auto au = [&](int depth) {
    return predict(work, second_per_frame(), {.workers = 1, .depth = depth, .warm_up = 10}, machine).au;
  };
  EXPECT_NEAR(au(2), 1, 1e-9);  // fills for 4 seconds of every 6, and sleeps
  machine.wake_seconds = 5;     // 3 more than it sleeps
  EXPECT_LT(au(2), 0.9);
  EXPECT_NEAR(au(8), 1, 1e-9);  // woken for 4 batches at a time
}

TEST(Tune, WakingAWorkerCostsTheConsumerOncePerHalfRing) {
  const std::vector<BatchWork> work(81, batch(9, {1}));
  Machine machine = ideal;
  machine.notify_seconds = 1;
  const auto seconds = [&](int depth) {
    return predict(work, second_per_frame(), {.workers = 1, .depth = depth, .warm_up = 16}, machine).seconds;
  };
  EXPECT_NEAR(seconds(2), 64 * 9 + 64, 1.5);
  EXPECT_NEAR(seconds(8), 64 * 9 + 16, 1.5);
}

TEST(Tune, AConsumerThatSpinsTakesACpuFromTheWorkers) {
  const std::vector<BatchWork> work(60, batch(6, {4, 4, 4, 4}));
  Machine machine = ideal;
  const auto au = [&](int cpus) {
    machine.cpus = cpus;
    return predict(work, second_per_frame(), {.workers = 2, .depth = 4}, machine).au;
  };
  EXPECT_NEAR(au(2), 0.75, 0.01);
  machine.spin_seconds = 4;  // of every batch: 16 = 4 + 2 x 6
  EXPECT_NEAR(au(2), 0.6, 0.01);
  EXPECT_NEAR(au(3), 0.75, 0.01);
}

TEST(Tune, SlowdownIsLinearBetweenWhatWasMeasured) {
  const ModeCost cost{.points = {{1, 1}, {2, 1.2}, {4, 2}}};
  EXPECT_DOUBLE_EQ(cost.slowdown(1), 1);
  EXPECT_DOUBLE_EQ(cost.slowdown(2), 1.2);
  EXPECT_DOUBLE_EQ(cost.slowdown(3), 1.6);
  EXPECT_DOUBLE_EQ(cost.slowdown(8), 4);  // the same speed, shared by twice as many
}

TEST(Tune, WorkerCountsDoubleUpToTheMost) {
  EXPECT_THAT(worker_counts(1), ElementsAre(1));
  EXPECT_THAT(worker_counts(2), ElementsAre(1, 2));
  EXPECT_THAT(worker_counts(6), ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(worker_counts(8), ElementsAre(1, 2, 4, 8));
}

TuneLine line(TuneSetting setting, double au, double frames = 1000) {
  return {.setting = setting, .predicted = {.au = au, .frames_per_second = frames}};
}
constexpr auto live = PreprocessingMode::runtime, cached = PreprocessingMode::precompute;

TEST(Tune, TheLeastThatIsAsGoodAsTheBestIsRecommended) {
  const std::vector<TuneLine> lines = {line({live, 1, 8, 4}, 0.70),    line({live, 2, 2, 4}, 0.988),
                                       line({live, 2, 4, 4}, 0.985),   line({live, 2, 6, 4}, 0.991),
                                       line({live, 4, 4, 4}, 0.993),   line({live, 2, 8, 4}, 0.992),
                                       line({cached, 2, 4, 4}, 0.985), line({cached, 4, 2, 4}, 0.993)};
  EXPECT_EQ(recommended(lines).setting, (TuneSetting{cached, 2, 4, 4}));
  EXPECT_EQ(recommended(std::vector(lines.begin(), lines.begin() + 5)).setting, (TuneSetting{live, 2, 4, 4}));
  EXPECT_EQ(recommended(std::vector(lines.begin(), lines.begin() + 2)).setting, (TuneSetting{live, 2, 2, 4}));
}

TEST(Tune, ShapesAreRankedByUsefulFramesNotByUtilisation) {
  const std::vector<TuneLine> lines = {line({live, 1, 4, 1}, 0.99, 700), line({live, 1, 4, 4}, 0.95, 940),
                                       line({live, 1, 4, 8}, 0.94, 940), line({live, 1, 2, 8}, 0.47, 470)};
  EXPECT_EQ(recommended(lines).setting.shapes, 4);
}

TEST(TuneWork, IsWhatTheFeedDelivers) {
  const MadeDataset made(40);
  Config config = made.config();
  Feed feed(config);
  const std::int64_t steps = 3 * feed.plan().steps_per_epoch();
  const auto work = planned_work(planned(feed.dataset(), config), feed.dataset().lengths, steps, 3, 0.5);
  double longest = 0;
  for (const BatchWork& w : work) {
    const Batch b = feed.next();
    ASSERT_EQ(w.rows.size(), static_cast<std::size_t>(b.shape.rows));
    for (std::size_t r = 0; r < w.rows.size(); ++r) {
      EXPECT_EQ(w.rows[r].frames, b.mel_lengths[r]);
      EXPECT_LE(w.rows[r].frames + w.rows[r].cleared, b.shape.frames);
    }
    EXPECT_EQ(w.frames, static_cast<std::int64_t>(b.shape.rows) * b.shape.frames);
    EXPECT_NEAR(w.step_seconds, 0.5 * b.shape.frames / feed.plan().largest().frames, 1e-12);
    longest = std::max(longest, w.step_seconds);
  }
  EXPECT_DOUBLE_EQ(longest, 0.5);
}

TEST(TuneWork, ABufferOfTheSameShapeIsOnlyClearedBehindItsLastRows) {
  const MadeDataset made(40);
  Config config = made.config();
  config.shapes = 1;
  const Dataset dataset = open_dataset(config);
  const auto work = planned_work(planned(dataset, config), dataset.lengths, 8, 3, 1);
  for (std::size_t n = 3; n < work.size(); ++n)
    for (std::size_t r = 0; r < work[n].rows.size(); ++r)
      EXPECT_EQ(work[n].rows[r].cleared, std::max(0, work[n - 3].rows[r].frames - work[n].rows[r].frames));
}

TEST(TuneMeasure, CostsAreFoundForEveryModeAndWorkerCount) {
  const MadeDataset made(24);
  Config runtime = made.config(), precompute = made.config();
  runtime.preprocessing_mode = live;
  precompute.preprocessing_mode = cached;
  const Dataset dataset = open_dataset(precompute);
  EXPECT_FALSE(cache_is_complete(precompute, dataset));
  build_cache(precompute, dataset);
  EXPECT_TRUE(cache_is_complete(precompute, dataset));

  std::vector<std::size_t> progress;
  const auto costs = measure_fill_costs(
      std::vector{runtime, precompute}, std::vector{1, 2},
      {.seconds = 0.01, .repeats = 2, .progress = [&](std::size_t done, std::size_t total) {
         EXPECT_EQ(total, 8u);
         progress.push_back(done);
       }});
  EXPECT_THAT(progress, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].mode, live);
  EXPECT_EQ(costs[1].mode, cached);
  for (const ModeCost& c : costs) {
    EXPECT_GT(c.cost.frame, 0);
    EXPECT_GE(c.cost.row, 0);
    ASSERT_EQ(c.points.size(), 2u);
    EXPECT_EQ(c.points[1].workers, 2);
    EXPECT_NEAR(c.points[0].slowdown, 1, 0.5);  // the median of two turns against their own cost
    for (const ModeCost::Point& p : c.points) EXPECT_GT(p.samples_per_second, 0);
  }
}

TEST(TuneMeasure, TheCheckEndsAMeasurement) {
  const MadeDataset made(24);
  Config config = made.config();
  config.preprocessing_mode = live;
  const auto interrupted = [] { throw Error("interrupted"); };
  EXPECT_THROW(measure_fill_costs(std::vector{config}, std::vector{1}, {.check = interrupted}), Error);
  EXPECT_THROW(measure_au(config, 1e-3, 10, 2, interrupted), Error);
}

TEST(TuneMeasure, TheEmulatedRunHasTheStepsThatWereAskedFor) {
  const MadeDataset made(24);
  Config config = made.config();
  config.preprocessing_mode = live;
  const MeasuredAu measured = measure_au(config, 1e-3, 30, 8);
  EXPECT_EQ(measured.steps, 22);
  EXPECT_GT(measured.au, 0);
  EXPECT_LE(measured.au, 1);
  EXPECT_GT(measured.frames_per_second, 0);
}

TEST(TuneSearch, EveryCombinationIsPredicted) {
  const MadeDataset made(40);
  Config config = made.config();
  const Dataset dataset = open_dataset(config);
  const ModeCost cost{.mode = live, .cost = {.frame = 1e-6, .row = 1e-5}, .points = {{1, 1}, {2, 1.1}}};
  const TuneMode mode{.config = config, .dataset = &dataset, .cost = cost};
  const auto lines =
      evaluate(std::vector{mode}, {.workers = {1, 2}, .depths = {2, 8}, .shapes = {1, 3}}, 0.01, 50);
  EXPECT_EQ(lines.size(), 8u);
  for (const TuneLine& l : lines) {
    EXPECT_GT(l.predicted.au, 0.9);
    EXPECT_LE(l.predicted.au, 1);
  }
  EXPECT_GT(lines.front().predicted.padding, lines.back().predicted.padding);  // 1 shape, 3 shapes
}

}  // namespace
}  // namespace penstock
