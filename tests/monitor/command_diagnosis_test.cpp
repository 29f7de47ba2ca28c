#include "penstock/monitor/command_diagnosis.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

/// A process whose main thread goes through `parts`, sampled 50 times a second.
StackLog made(const std::vector<std::pair<Doing, double>>& parts, int process = 7) {
  StackLog log;
  log.process = process, log.start = 1000;
  log.frames = {
      {.file = "/u/train.py", .function = "<module>", .line = 3, .expression = "f()", .text = "f()"}};
  log.stacks = {{0}};
  double t = log.start;
  for (const auto& [doing, seconds] : parts)
    for (const double end = t + seconds; t < end; t += 0.02)
      log.samples.push_back({.t = t, .cpu = (t - 1000) / 2, .stack = 0, .doing = doing});
  return log;
}

/// The same parts, `times` over, behind some imports.
StackLog repeated(const std::vector<std::pair<Doing, double>>& parts, int times) {
  std::vector<std::pair<Doing, double>> all = {{Doing::start, 2}};
  for (int i = 0; i < times; ++i) all.insert(all.end(), parts.begin(), parts.end());
  return made(all);
}

std::vector<CommandSample> machine(double seconds, double gpu = not_logged, double device = not_logged) {
  std::vector<CommandSample> samples;
  for (double t = 1000; t < 1000 + seconds; t += 0.25)
    samples.push_back(
        {.t = t, .seconds = 0.25, .gpu = gpu, .cpus = 1, .device_threads = device, .processes = 1});
  return samples;
}

Bound bound(const StackLog& log, const std::vector<CommandSample>& samples = {}) {
  return diagnose({log}, samples).bound;
}

TEST(CommandDiagnosisTest, TellsTheBoundsApart) {
  EXPECT_EQ(bound(repeated({{Doing::compute, 0.2}}, 50)), Bound::healthy);
  EXPECT_EQ(bound(repeated({{Doing::input, 0.3}, {Doing::compute, 0.2}}, 20)), Bound::input);
  EXPECT_EQ(bound(repeated({{Doing::sync, 0.3}, {Doing::compute, 0.2}}, 20)), Bound::sync);
  EXPECT_EQ(bound(repeated({{Doing::compile, 0.3}, {Doing::compute, 0.2}}, 20)), Bound::compile);
  EXPECT_EQ(bound(repeated({{Doing::python, 0.5}, {Doing::compute, 0.2}}, 20)), Bound::python);
}

TEST(CommandDiagnosisTest, AStepThatIsHardlySeenBetweenItsInputsIsInputBound) {
  const CommandDiagnosis d =
      diagnose({made({{Doing::start, 2}, {Doing::input, 3}, {Doing::compute, 0.02}, {Doing::input, 3}})}, {});
  EXPECT_EQ(d.bound, Bound::input);
  EXPECT_GT(d.shares[static_cast<std::size_t>(Doing::input)], 0.98);
  EXPECT_EQ(bound(made({{Doing::start, 2}, {Doing::input, 6}})), Bound::unknown) << "nothing was trained";
}

TEST(CommandDiagnosisTest, CompilingOnceInTheBeginningIsAsItShouldBe) {
  const CommandDiagnosis d = diagnose({made({{Doing::start, 2},
                                             {Doing::compile, 6},
                                             {Doing::compute, 0.1},
                                             {Doing::compile, 3},
                                             {Doing::compute, 8}})},
                                      {});
  EXPECT_EQ(d.bound, Bound::healthy);
  EXPECT_NEAR(d.first_compile_s, 9, 0.2);
  EXPECT_EQ(d.late_compile, 0);
  EXPECT_NEAR(d.start_s, 8, 0.1);
}

TEST(CommandDiagnosisTest, ARunThatEndsInItsFirstCompilingIsNotJudged) {
  const CommandDiagnosis d =
      diagnose({made({{Doing::start, 2}, {Doing::compute, 1}, {Doing::compile, 6}})}, {});
  EXPECT_EQ(d.bound, Bound::unknown);
  EXPECT_EQ(d.compiles, 1U);
}

TEST(CommandDiagnosisTest, WhoWaitsForABusyDeviceIsHealthy) {
  const StackLog log = repeated({{Doing::sync, 0.8}, {Doing::compute, 0.1}}, 12);
  EXPECT_EQ(bound(log, machine(12)), Bound::sync);
  EXPECT_EQ(bound(log, machine(12, 0.97)), Bound::healthy);
  EXPECT_EQ(bound(log, machine(12, not_logged, 0.99)), Bound::healthy) << "threads that compute for JAX";
  EXPECT_EQ(bound(log, machine(12, not_logged, 0.4)), Bound::sync);
}

TEST(CommandDiagnosisTest, AnIdleGpuUnderABusyMainThreadIsLaunchBound) {
  const StackLog log = repeated({{Doing::compute, 0.2}}, 50);
  EXPECT_EQ(bound(log, machine(12, 0.3)), Bound::launch);
  EXPECT_EQ(bound(log, machine(12, 0.95)), Bound::healthy);
}

TEST(CommandDiagnosisTest, InputBesideAStepThatContainsItsIteratorIsFound) {
  StackLog log = repeated({{Doing::compute, 0.2}}, 50);
  for (std::size_t i = 0; i < log.samples.size(); i += 5) log.samples[i].input_beside = true;
  EXPECT_EQ(bound(log), Bound::input);
}

TEST(CommandDiagnosisTest, TheProcessThatTrainsIsJudgedAndNotItsWorkers) {
  StackLog worker = made({{Doing::input, 30}}, 8);
  worker.frames.push_back({.file = "/x/torch/utils/data/_utils/worker.py", .function = "_worker_loop"});
  const StackLog launcher = made({{Doing::python, 30}}, 9);
  const CommandDiagnosis d =
      diagnose({launcher, worker, made({{Doing::start, 2}, {Doing::compute, 10}}, 7)}, {});
  EXPECT_EQ(d.process, 7);
  EXPECT_EQ(d.trainers, 1U);
  EXPECT_EQ(d.bound, Bound::healthy);
}

TEST(CommandDiagnosisTest, TooLittleIsNotJudged) {
  EXPECT_EQ(diagnose({}, {}).bound, Bound::unknown);
  EXPECT_FALSE(diagnose({}, machine(3)).why.empty());
  EXPECT_EQ(bound(made({{Doing::start, 5}})), Bound::unknown);
  EXPECT_EQ(bound(made({{Doing::start, 5}, {Doing::compute, 0.2}})), Bound::unknown);
  EXPECT_FALSE(diagnose({}, {}).found_a_problem());
}

TEST(CommandDiagnosisTest, LinesOfTheUsersCodeComeWithTheirShare) {
  const CommandDiagnosis d =
      diagnose({repeated({{Doing::input, 0.6}, {Doing::compute, 0.2}}, 20)}, machine(18));
  ASSERT_EQ(d.lines.size(), 2U);
  EXPECT_EQ(d.lines[0].doing, Doing::input);
  EXPECT_NEAR(d.lines[0].share, 0.75, 0.03);
  EXPECT_EQ(d.lines[0].line, 3);
  EXPECT_NEAR(d.main_cpu, 0.5, 0.01);
  EXPECT_NEAR(d.seconds, 18, 0.01);
}

}  // namespace
}  // namespace penstock
