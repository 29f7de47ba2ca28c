#include "penstock/monitor/diagnosis.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using testing::HasSubstr;

/// A run that is made step by step.
struct MadeRun {
  RunRecords records;
  double t = 1e9;
  std::int64_t step = 0;
  std::mt19937 random{7};

  void event(const std::string& name, double seconds = 0) {
    t += seconds;
    EventRecord e;
    e.t = t, e.event = name, e.step = step;
    records.events.push_back(e);
  }
  /// Times in ms, with a little noise.
  StepRecord& add(double compute, double wait, Shape shape = {16, 64, 320}) {
    std::uniform_real_distribution<double> noise(0.97, 1.03);
    StepRecord s;
    s.step_ms = compute * noise(random), s.data_ms = wait * noise(random);
    t += (s.step_ms + s.data_ms) / 1e3;
    s.t = t, s.step = ++step, s.shape = shape, s.padding = 0.1;
    if (!records.steps.empty())
      s.epoch = records.steps.back().epoch, s.retraces = records.steps.back().retraces;
    records.steps.push_back(s);
    return records.steps.back();
  }
  void many(int count, double compute, double wait) {
    for (int i = 0; i < count; ++i) add(compute, wait);
  }
  void feed(std::vector<std::pair<std::string, double>> stages, int workers = 2) {
    FeedRecord f;
    f.t = t, f.samples = 1000, f.stages = std::move(stages), f.workers = workers;
    records.feed.push_back(f);
  }
  void machine(double cpu, int cores, std::vector<double> gpus = {}) {
    SystemRecord s;
    s.t = t, s.cpu_busy = cpu, s.cores.assign(static_cast<std::size_t>(cores), cpu);
    for (const double busy : gpus) {
      s.gpus.emplace_back();
      s.gpus.back().utilisation = busy;
    }
    records.system.push_back(s);
  }
  [[nodiscard]] RunDiagnosis diagnosis() const { return diagnose(records); }
};

TEST(RunDiagnosisTest, WhatComesBehindTheLastStepKeepsNobodyWaiting) {
  MadeRun run;
  run.event("start");
  run.many(100, 20, 0.1);
  run.event("validation", 1), run.event("checkpoint", 1);
  run.event("resume");
  run.many(100, 20, 0.1);
  run.event("validation", 1), run.event("checkpoint", 1);
  EXPECT_THAT(run.diagnosis().findings, testing::IsEmpty());
}

TEST(BandTest, IsByTheClockWithoutAStepAndByTheWaitWithOne) {
  EXPECT_EQ(band_of(99, 0), Band::good);
  EXPECT_EQ(band_of(100, 0), Band::moderate);
  EXPECT_EQ(band_of(500, 0), Band::moderate);
  EXPECT_EQ(band_of(501, 0), Band::slow);
  EXPECT_EQ(band_of(800, 780), Band::good) << "a long step that hardly waits";
  EXPECT_EQ(band_of(13, 10), Band::moderate);
  EXPECT_EQ(band_of(20, 10), Band::slow) << "a short batch, of which half is waiting";
}

TEST(RunDiagnosisTest, ALogWithoutStepsIsNotCalledHealthy) {
  MadeRun run;
  EXPECT_EQ(run.diagnosis().steps, 0U);
  EXPECT_FALSE(run.diagnosis().healthy());
  run.event("start");
  run.add(100, 900);
  EXPECT_EQ(run.diagnosis().steps, 0U) << "the first is cold";
  EXPECT_NEAR(run.diagnosis().cold_ms, 1000, 50);
  run.add(100, 1);
  EXPECT_EQ(run.diagnosis().steps, 1U);
  EXPECT_TRUE(run.diagnosis().healthy());
}

TEST(RunDiagnosisTest, ADeviceThatHardlyWaitsIsHealthy) {
  MadeRun run;
  run.event("start");
  run.add(400, 2000);
  run.many(200, 100, 1);
  const RunDiagnosis d = run.diagnosis();
  EXPECT_TRUE(d.healthy());
  EXPECT_FALSE(d.swings);
  EXPECT_NEAR(d.au, 0.99, 0.01);
  EXPECT_EQ(d.band, Band::good);
  EXPECT_NEAR(d.batch.mean, 101, 1) << "without the cold step";
}

TEST(RunDiagnosisTest, TheColdStepAfterEveryResumeIsApart) {
  MadeRun run;
  for (int session = 0; session < 3; ++session) {
    run.event(session == 0 ? "start" : "resume", 60);
    run.add(100, 5000);
    run.many(20, 100, 1);
  }
  EXPECT_EQ(run.diagnosis().steps, 60U);
  EXPECT_TRUE(run.diagnosis().healthy());
  EXPECT_LT(run.diagnosis().outside, 0.01) << "the time between two processes is nobody's";
}

TEST(RunDiagnosisTest, LiveStagesThatAreTooSlowAskForTheCache) {
  MadeRun run;
  run.add(50, 50);
  run.many(100, 50, 50);
  run.feed({{"read", 100}, {"decode", 2000}, {"mel", 10000}, {"tokens", 50}, {"pad", 350}});
  run.machine(0.9, 2);
  const RunDiagnosis d = run.diagnosis();
  ASSERT_FALSE(d.findings.empty());
  EXPECT_EQ(d.findings[0].cause, "data");
  EXPECT_THAT(d.findings[0].what, HasSubstr("mel"));
  EXPECT_EQ(d.findings[0].lines, "preprocessing_mode: precompute");
  EXPECT_GT(d.findings[0].au_after, 0.95);
  EXPECT_EQ(d.stages.front().name, "mel");
  EXPECT_NEAR(d.samples_per_second_possible, 2 / 12500e-6, 1);
  EXPECT_NEAR(d.samples_per_second_needed, 16 / 50e-3, 5);
}

TEST(RunDiagnosisTest, ALoopThatHasItsDataFromElsewhereIsNotToldOurSettings) {
  MadeRun run;
  run.many(100, 50, 50);
  run.records.steps.back().retraces = 30;
  const RunDiagnosis d = run.diagnosis();
  ASSERT_EQ(d.findings.size(), 2U);
  EXPECT_THAT(d.findings[0].lines, HasSubstr("penstock diagnose -- "));
  EXPECT_THAT(d.findings[1].lines, HasSubstr("penstock.guard("));
}

TEST(RunDiagnosisTest, OneWorkerOfManyCoresAsksForMoreOfThem) {
  MadeRun run;
  run.many(100, 50, 50);
  run.feed({{"cache", 6000}, {"pad", 250}}, 1);
  run.machine(0.2, 8);
  const RunDiagnosis d = run.diagnosis();
  ASSERT_FALSE(d.findings.empty());
  EXPECT_EQ(d.findings[0].lines, "num_workers: 2");
  EXPECT_NEAR(d.findings[0].au_after, 1.0, 0.05);
}

TEST(RunDiagnosisTest, WorkersThatAreFastEnoughOnAverageAskForALongerRing) {
  MadeRun run;
  for (int i = 0; i < 200; ++i) run.add(50, i % 10 == 0 ? 120 : 0.5);
  run.feed({{"cache", 400}, {"pad", 100}}, 2);
  run.machine(0.2, 2);
  const RunDiagnosis d = run.diagnosis();
  ASSERT_FALSE(d.findings.empty());
  EXPECT_EQ(d.findings[0].lines, "prefetch_buffer_size: 16");
  EXPECT_TRUE(d.swings);
  EXPECT_NEAR(d.slow.oscillation.period, 10, 1);
  EXPECT_EQ(d.slow.cause, "data");
}

TEST(RunDiagnosisTest, PausesAtCheckpointsAreFoundAndTheirPeriodToo) {
  MadeRun run;
  for (int i = 1; i <= 300; ++i) {
    run.add(50, 0.5);
    if (i % 25 == 0) run.event("checkpoint", 0.8);
  }
  const RunDiagnosis d = run.diagnosis();
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].cause, "checkpoint");
  EXPECT_EQ(d.findings[0].lines, "save_every: 100") << "four times as rare";
  EXPECT_EQ(d.slow.cause, "checkpoint");
  EXPECT_NEAR(d.slow.oscillation.period, 25, 1);
  EXPECT_TRUE(d.swings);
}

TEST(RunDiagnosisTest, ValidationIsNotTakenForACheckpoint) {
  MadeRun run;
  for (int i = 1; i <= 300; ++i) {
    run.add(50, 0.5);
    if (i % 20 == 0) run.event("checkpoint", 0.001);
    if (i % 30 == 0) run.event("validation", 2);
  }
  const RunDiagnosis d = run.diagnosis();
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].cause, "validation");
  EXPECT_EQ(d.slow.cause, "validation");
}

TEST(RunDiagnosisTest, RetracesAreNamedWithTheirCause) {
  MadeRun run;
  for (int i = 1; i <= 200; ++i) {
    const bool retraced = i % 10 == 5;
    StepRecord& s = run.add(retraced ? 700 : 50, 0.5);
    if (!retraced) continue;
    ++s.retraces;
    run.event("retrace");
    run.records.events.back().cause = "shape 16 x 64 x 321 is none of the 4 that were planned";
  }
  const RunDiagnosis d = run.diagnosis();
  EXPECT_EQ(d.retraces, 20);
  ASSERT_FALSE(d.findings.empty());
  EXPECT_EQ(d.findings[0].cause, "retraces");
  EXPECT_THAT(d.findings[0].what, HasSubstr("none of the 4"));
  EXPECT_EQ(d.slow.cause, "retrace");
}

TEST(RunDiagnosisTest, LargerBatchesThatTakeLongerAreAsTheyShouldBe) {
  MadeRun run;
  for (int i = 0; i < 300; ++i) {
    const bool large = run.random() % 6 == 0;
    run.add(large ? 400 : 60, 0.5, large ? Shape{16, 256, 1600} : Shape{16, 64, 320});
  }
  const RunDiagnosis d = run.diagnosis();
  EXPECT_TRUE(d.swings) << "CV " << d.batch.cv;
  EXPECT_EQ(d.slow.cause, "shapes");
  EXPECT_TRUE(d.healthy());
}

TEST(RunDiagnosisTest, SlowEpochBeginningsAreNamed) {
  MadeRun run;
  for (int i = 0; i < 300; ++i) {
    StepRecord& s = run.add(50, i % 30 == 0 ? 400 : 0.5);
    s.epoch = i / 30;
  }
  EXPECT_EQ(run.diagnosis().slow.cause, "epoch");
  EXPECT_NEAR(run.diagnosis().slow.oscillation.period, 30, 1);
}

TEST(RunDiagnosisTest, PaddingIsWasteAlsoWhenTheDeviceIsBusy) {
  MadeRun run;
  run.many(100, 50, 0.5);
  for (StepRecord& s : run.records.steps) s.padding = 0.45;
  const RunDiagnosis d = run.diagnosis();
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].cause, "padding");
}

TEST(RunDiagnosisTest, AnIdleGpuWhoseDataIsThereIsTheStepsFault) {
  MadeRun run;
  run.many(100, 50, 0.5);
  run.machine(0.3, 8, {0.35});
  const RunDiagnosis d = run.diagnosis();
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].cause, "device");
  EXPECT_NEAR(d.gpu_busy, 0.35, 1e-9);
}

TEST(RunDiagnosisTest, WhatCostsMostComesFirst) {
  MadeRun run;
  for (int i = 1; i <= 200; ++i) {
    run.add(50, 10);
    if (i % 10 == 0) run.event("validation", 5);
  }
  const RunDiagnosis d = run.diagnosis();
  ASSERT_EQ(d.findings.size(), 2U);
  EXPECT_EQ(d.findings[0].cause, "validation");
  EXPECT_EQ(d.findings[1].cause, "data");
}

TEST(RunDiagnosisTest, BatchesWithoutAStepHaveABandAndNoAu) {
  MadeRun run;
  run.many(50, 0, 200);
  for (StepRecord& s : run.records.steps) s.step_ms = not_logged;
  const RunDiagnosis d = run.diagnosis();
  EXPECT_EQ(d.steps, 49U);
  EXPECT_EQ(d.au, 0);
  EXPECT_EQ(d.band, Band::moderate);
  EXPECT_TRUE(d.findings.empty());
}

}  // namespace
}  // namespace penstock
