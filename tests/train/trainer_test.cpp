#include "train/trainer.h"

#include <csignal>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "penstock/core/error.h"
#include "tests/feed/made_dataset.h"
#include "tests/long_run.h"
#include "tests/train/fake_graphs.h"
#include "tests/train/small_model.h"
#include "train/checkpoint.h"
#include "train/retrace.h"

namespace penstock::train {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::ThrowsMessage;

std::vector<json> log_of(const std::filesystem::path& run, const std::string& kind) {
  std::vector<json> lines;
  std::ifstream file(run / "log.jsonl");
  for (std::string line; std::getline(file, line);)
    if (json object = json::parse(line); object["kind"] == kind) lines.push_back(std::move(object));
  return lines;
}

std::vector<json> events(const std::filesystem::path& run, const std::string& name) {
  std::vector<json> found;
  for (json& line : log_of(run, "event"))
    if (line["event"] == name) found.push_back(std::move(line));
  return found;
}

/// What must not change: step, epoch, losses, norm. Times may.
std::vector<std::string> course(const std::filesystem::path& run) {
  std::vector<std::string> lines;
  for (const json& l : log_of(run, "step"))
    lines.push_back(
        json{l["step"], l["epoch"], l["loss"], l["losses"], l["grad_norm"], l["lr"], l["padding"]}.dump());
  return lines;
}

struct Killed {};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    job_.config.dataset_path = made_.folder();
    job_.config.batch_size = 4;
    job_.config.shapes = 2;
    job_.config.num_workers = 2;
    job_.config.val_fraction = 0.2;
    job_.config.train.steps = 12;
    job_.config.train.save_every = 5;
    job_.config.train.val_every = 0;
    job_.config.train.warmup_steps = 3;
    job_.config.train.compute_threads = 1;
    job_.run = folder_ / "run";
    job_.config_text = "batch_size: 4\n";
    job_.make_model = [this](const Config& c, const Dataset&) {
      auto model = std::make_shared<SmallModel>(c.mel.n_mels);
      model->looked_at = looked_at_;
      model->not_finite = not_finite_;
      return model;
    };
    job_.view.note = [this](const std::string& text) { notes_.push_back(text); };
  }

  /// Dies behind update `step`, as by SIGKILL: nothing is saved any more.
  void run_killed_at(std::int64_t step) {
    TrainJob job = job_;
    job.view.progress = [step](std::int64_t at, std::int64_t, double) {
      if (at == step) throw Killed();
    };
    EXPECT_THROW(train(job), Killed);
  }

  MadeDataset made_{60, 3};
  TempFolder folder_;
  TrainJob job_;
  std::vector<std::string> notes_;
  std::function<void(const ModelBatch&, bool)> looked_at_;
  std::function<bool()> not_finite_;
};

TEST_F(TrainerTest, ARunLeavesConfigSymbolsLogAndCheckpoints) {
  job_.config.train.log_every = 4;
  std::vector<StepLine> lines;
  job_.view.line = [&](const StepLine& line) { lines.push_back(line); };
  const TrainResult result = train(job_);
  EXPECT_EQ(result.summary.step, 12);
  EXPECT_EQ(result.summary.retraces, 0);
  EXPECT_EQ(read_text(job_.run / "config.yaml"), job_.config_text);
  EXPECT_GT(SymbolTable::load(job_.run / "symbols.txt").size(), SymbolTable::first_character);
  EXPECT_EQ(load_state(*latest_checkpoint(job_.run)).update, 12);

  const std::vector<json> steps = log_of(job_.run, "step");
  ASSERT_EQ(steps.size(), 12u);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i]["step"], i + 1);
    for (const char* key : {"t", "epoch", "loss", "lr", "grad_norm", "step_ms", "data_ms", "au",
                            "frames_per_s", "padding", "retraces", "ring"})
      EXPECT_TRUE(steps[i].contains(key) && steps[i][key].is_number()) << key;
    EXPECT_GT(steps[i]["au"], 0.0);
    EXPECT_LE(steps[i]["au"], 1.0);
    ASSERT_EQ(steps[i]["shape"].size(), 3u);
    EXPECT_EQ(steps[i]["shape"][0], 4);
  }
  EXPECT_LT(steps[11]["loss"], steps[0]["loss"]);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1].step, 8);
  double mean = 0;
  for (std::size_t i = 4; i < 8; ++i) mean += steps[i]["loss"].get<double>() / 4;
  EXPECT_NEAR(lines[1].loss, mean, 1e-9);
}

TEST_F(TrainerTest, TheLogSaysWhatTheFeedDidAndWhenEpochsAndCheckpointsCame) {
  job_.config.train.steps = 30;
  train(job_);
  std::int64_t samples = 0;
  std::vector<json> ends;
  for (const json& line : log_of(job_.run, "feed")) {
    if (line.contains("updates")) continue;  // the sums
    samples += line["samples"].get<std::int64_t>();
    if (line.contains("skipped_samples")) ends.push_back(line);
  }
  EXPECT_EQ(samples, 30 * 4);
  EXPECT_EQ(ends.size(), 1u);
  std::vector<std::int64_t> checkpoints, epochs;
  for (const json& e : events(job_.run, "checkpoint")) {
    checkpoints.push_back(e["step"]);
    EXPECT_GT(e["seconds"], 0.0);
  }
  EXPECT_THAT(checkpoints, testing::ElementsAre(5, 10, 15, 20, 25, 30));
  const std::vector<json> steps = log_of(job_.run, "step");
  for (const json& e : events(job_.run, "epoch")) {
    epochs.push_back(e["epoch"]);
    const auto first = e["step"].get<std::size_t>();
    EXPECT_EQ(steps.at(first - 1)["epoch"], e["epoch"]);
    EXPECT_LT(steps.at(first - 2)["epoch"], e["epoch"]);
  }
  EXPECT_THAT(epochs, testing::ElementsAre(1, 2));
}

TEST_F(TrainerTest, KilledAtAnyStepAndResumedItGivesTheSameLosses) {
  train(job_);
  const std::vector<std::string> whole = course(job_.run);
  std::mt19937 random(7);
  for (int i = 0; i < cases(5, 50); ++i) {
    job_.run = folder_ / ("killed" + std::to_string(i));
    job_.config.num_workers = 1 + i % 3;
    job_.config.prefetch_buffer_size = 2 + i;
    job_.config.preprocessing_mode = i % 2 == 1 ? PreprocessingMode::precompute : PreprocessingMode::runtime;
    std::int64_t at = 0;
    while ((at += std::uniform_int_distribution<std::int64_t>(1, 6)(random)) < 12) run_killed_at(at);
    train(job_);
    EXPECT_EQ(course(job_.run), whole) << i;
  }
}

TEST_F(TrainerTest, ASignalFinishesTheStepAndSaves) {
  train(job_);
  const std::vector<std::string> whole = course(job_.run);
  job_.run = folder_ / "stopped";
  int asked = 0;
  job_.signal = [&] { return ++asked == 7 ? SIGTERM : 0; };
  EXPECT_EQ(train(job_).signal, SIGTERM);
  EXPECT_EQ(load_state(*latest_checkpoint(job_.run)).update, 7);
  EXPECT_EQ(train(job_).signal, 0);
  EXPECT_EQ(course(job_.run), whole);
}

TEST_F(TrainerTest, AFinishedRunHasNothingLeftToDoAndMoreStepsGoOn) {
  train(job_);
  notes_.clear();
  EXPECT_FALSE(train(job_).last.has_value());
  EXPECT_THAT(notes_, Contains(HasSubstr("nothing left to do: 12 of 12")));
  EXPECT_THAT(notes_, Not(Contains(HasSubstr("planned")))) << "that would take its time for nothing";
  job_.config.train.steps = 14;
  EXPECT_EQ(train(job_).summary.updates, 2);
  EXPECT_EQ(log_of(job_.run, "step").size(), 14u);
}

TEST_F(TrainerTest, WhatIsTooLongIsCountedInANote) {
  std::int32_t longest = 0;
  for (const Lengths& each : open_dataset(job_.config).lengths) longest = std::max(longest, each.frames);
  job_.config.max_mel_frames = longest - 8;  // a shape is rounded up to multiples of 8
  job_.config.train.steps = 1;
  train(job_);
  EXPECT_THAT(notes_, Contains(HasSubstr("utterances are too long or empty and are left out")));
}

TEST_F(TrainerTest, AnotherMelModelOrSymbolTableIsRefusedByName) {
  train(job_);
  const TrainJob first = job_;
  job_.config.mel.fmax = 7000;
  job_.config.mel.hop_length = 200;
  EXPECT_THAT([&] { train(job_); },
              ThrowsMessage<Error>(testing::AllOf(HasSubstr("mel: hop_length: 256 in the run, 200 now"),
                                                  HasSubstr("mel: mel_fmax: 8000 in the run, 7000 now"))));
  job_ = first;
  job_.config.mel.n_mels = 40;
  EXPECT_THAT([&] { train(job_); }, ThrowsMessage<Error>(HasSubstr("model: bins: 80 in the run, 40 now")));
  job_ = first;
  job_.config.add_blank = true;
  EXPECT_THAT([&] { train(job_); },
              ThrowsMessage<Error>(HasSubstr("symbols: add_blank: false in the run, true now")));
  EXPECT_EQ(log_of(job_.run, "step").size(), 12u) << "refused, and nothing was touched";
}

TEST_F(TrainerTest, AnotherBatchSizeOrSeedStartsANewEpochAndSaysSo) {
  train(job_);
  const std::int64_t epoch = load_state(*latest_checkpoint(job_.run)).feed.epoch;
  notes_.clear();
  job_.config.batch_size = 3;
  job_.config.train.steps = 13;
  train(job_);
  EXPECT_THAT(notes_, Contains(HasSubstr("batch_size: 4 in the run, 3 now: the feed starts epoch")));
  EXPECT_EQ(log_of(job_.run, "step").back()["epoch"], epoch + 1);
  notes_.clear();
  job_.config.num_workers = 1;
  job_.config.train.steps = 14;
  train(job_);
  EXPECT_THAT(notes_, Not(Contains(HasSubstr("the feed starts epoch"))));
  EXPECT_EQ(log_of(job_.run, "step").back()["epoch"], epoch + 1);
}

TEST_F(TrainerTest, AWindowsLossIsItsSumsOverItsCounts) {
  job_.config.train.gradient_accumulation_steps = 3;
  job_.config.train.steps = 8;
  job_.config.train.learning_rate = 1e-12;  // `length` stays 0, and its loss is known without the model
  std::vector<std::pair<double, double>> batches;
  looked_at_ = [&](const ModelBatch& batch, bool) {
    const torch::Tensor n = batch.token_lengths.to(torch::kFloat64);
    if (const double tokens = n.sum().item<double>(); tokens > 0)
      batches.emplace_back((0.1 * n).square().sum().item<double>(), tokens);
  };
  train(job_);
  const std::vector<json> steps = log_of(job_.run, "step");
  ASSERT_EQ(batches.size(), 24u);
  ASSERT_EQ(steps.size(), 8u);
  EXPECT_GT(steps.back()["epoch"], 0) << "a window has to lie across two epochs";
  for (std::size_t i = 0; i < 8; ++i) {
    double squares = 0, tokens = 0;
    for (std::size_t k = 3 * i; k < 3 * i + 3; ++k) squares += batches[k].first, tokens += batches[k].second;
    EXPECT_NEAR(steps[i]["losses"]["length"], squares / tokens, 1e-4) << i;
  }
}

TEST_F(TrainerTest, ValidationSeesEachUtteranceOnceWhateverTheBatches) {
  job_.config.train.steps = 1;
  job_.config.train.val_every = 1;
  job_.config.train.learning_rate = 1e-12;  // the same weights each time
  Config held = job_.config;
  held.split = Split::val;
  std::multiset<std::pair<int, int>> held_out;
  for (const Lengths& l : open_dataset(held).lengths) held_out.emplace(l.frames, l.tokens);
  ASSERT_GT(held_out.size(), 4u);
  std::vector<double> losses;
  for (const int batch_size : {1, 3, 16}) {
    job_.config.batch_size = batch_size;
    job_.run = folder_ / std::to_string(batch_size);
    std::multiset<std::pair<int, int>> seen;
    looked_at_ = [&](const ModelBatch& batch, bool training) {
      for (int r = 0; r < batch.shape.rows; ++r)
        if (const int frames = batch.mel_lengths[r].item<int>(); !training && frames > 0)
          seen.emplace(frames, batch.token_lengths[r].item<int>());
    };
    const TrainResult result = train(job_);
    ASSERT_TRUE(result.validation);
    EXPECT_EQ(seen, held_out);
    EXPECT_EQ(result.validation->utterances, held_out.size());
    EXPECT_EQ(events(job_.run, "validation").size(), 1u);
    losses.push_back(result.validation->loss);
  }
  EXPECT_THAT(losses, Each(testing::DoubleNear(losses[0], 1e-3 * losses[0])));
}

TEST_F(TrainerTest, WithoutHeldOutUtterancesThereIsNoValidationAndItSaysSo) {
  job_.config.val_fraction = 0;
  job_.config.train.val_every = 2;
  EXPECT_FALSE(train(job_).validation);
  EXPECT_THAT(notes_, Contains(HasSubstr("no utterance is held out")));
}

TEST_F(TrainerTest, OneUpdateThatIsNotFiniteIsSkippedAndNamed) {
  int forwards = 0;
  not_finite_ = [&] { return ++forwards == 6; };
  EXPECT_THAT(train(job_).not_finite, IsEmpty());
  const std::vector<json> bad = events(job_.run, "not_finite");
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0]["utterances"].size(), 4u);
  const std::vector<json> steps = log_of(job_.run, "step");
  ASSERT_EQ(steps.size(), 12u);
  EXPECT_TRUE(steps[bad[0]["step"].get<std::size_t>() - 1].value("skipped", false));
  EXPECT_EQ(std::ranges::count_if(steps, [](const json& s) { return s.contains("skipped"); }), 1);
}

TEST_F(TrainerTest, ThreeInARowStopTheRunWithACheckpointAndTheirUtterances) {
  int forwards = 0;
  not_finite_ = [&] { return ++forwards >= 6; };
  const TrainResult result = train(job_);
  EXPECT_THAT(result.not_finite, HasSubstr("3 updates in a row were not finite"));
  const std::vector<json> bad = events(job_.run, "not_finite");
  ASSERT_EQ(bad.size(), 3u);
  for (const json& event : bad)
    for (const json& id : event["utterances"])
      EXPECT_THAT(result.not_finite, HasSubstr(id.get<std::string>()));
  EXPECT_EQ(load_state(*latest_checkpoint(job_.run)).update, bad.back()["step"]);
  EXPECT_LT(bad.back()["step"], 12);
}

TEST_F(TrainerTest, WhatTheTrainerCannotDoIsRefusedBeforeAnythingIsMade) {
  job_.config.world = 2;
  EXPECT_THAT([&] { train(job_); }, ThrowsMessage<Error>(HasSubstr("world must be 1")));
  job_.config.world = 1;
  job_.config.device = "simulated";
  EXPECT_THAT([&] { train(job_); }, ThrowsMessage<Error>(HasSubstr("device must be cpu or cuda")));
  EXPECT_FALSE(std::filesystem::exists(job_.run));
}

TEST_F(TrainerTest, RetraceFindsNoneWithFixedShapesAndSomeWithDynamicOnes) {
  RetraceJob job{.config = job_.config, .make_model = job_.make_model};
  job.config.train.steps = 8;
  const RetraceFindings fixed = retrace(job);
  EXPECT_EQ(fixed.retraces(), 0);
  EXPECT_EQ(fixed.steps.size(), 8u);
  EXPECT_GT(fixed.mean_ms, 0);
  for (const RetraceStep& step : fixed.steps) EXPECT_THAT(fixed.planned, Contains(step.shape));
  job.config.shapes = 0;
  const RetraceFindings dynamic = retrace(job);
  ASSERT_GT(dynamic.retraces(), 0);
  const RetraceStep& first =
      *std::ranges::find_if(dynamic.steps, [](const auto& s) { return s.retrace.has_value(); });
  EXPECT_EQ(first.retrace->retrace.shape, first.shape);
  EXPECT_EQ(first.retrace->ids.size(), 4u);
  EXPECT_THAT(first.retrace->retrace.cause, HasSubstr("planned"));
}

TEST_F(TrainerTest, RetracesOfARunAreLoggedWithShapeBucketAndUtterances) {
  job_.config.shapes = 0;
  std::int64_t reported = 0;
  job_.view.retrace = [&](const RetraceReport&) { ++reported; };
  const TrainResult result = train(job_);
  EXPECT_GT(result.summary.retraces, 0);
  EXPECT_EQ(reported, result.summary.retraces);
  const std::vector<json> logged = events(job_.run, "retrace");
  ASSERT_EQ(logged.size(), static_cast<std::size_t>(reported));
  EXPECT_EQ(logged[0]["utterances"].size(), 4u);
  EXPECT_EQ(logged[0]["shape"].size(), 3u);
  EXPECT_EQ(log_of(job_.run, "step").back()["retraces"], reported);
}

TEST_F(TrainerTest, CapturedStepsGiveTheSameRunAlsoWhenItIsResumed) {
  job_.config.train.gradient_accumulation_steps = 2;
  job_.config.train.val_every = 4;
  train(job_);
  const std::vector<std::string> eager = course(job_.run);
  std::vector<std::shared_ptr<FakeGraphs>> made;
  job_.make_graphs = [&](torch::Device) { return made.emplace_back(std::make_shared<FakeGraphs>()); };
  job_.run = folder_ / "captured";
  run_killed_at(7);
  train(job_);
  EXPECT_EQ(course(job_.run), eager);
  ASSERT_EQ(made.size(), 2u);
  // Behind the checkpoint of step 5: seven updates of two batches each.
  EXPECT_EQ(made[1]->captured, 3u);
  EXPECT_EQ(made[1]->calls.size(), 3u + 7 * 3);

  job_.config.train.plan_steps = false;
  job_.run = folder_ / "not-planned";
  train(job_);
  EXPECT_EQ(course(job_.run), eager);
  EXPECT_EQ(made.size(), 2u) << "plan_steps: false captures nothing";
}

TEST_F(TrainerTest, EveryKeyOfTheTrainerDoesSomething) {
  const std::map<std::string, std::string> values = {
      {"steps", "7"},           {"epochs", "2"},
      {"learning_rate", "0.5"}, {"schedule", "constant"},
      {"warmup_steps", "1"},    {"weight_decay", "1"},
      {"clip_norm", "0.1"},     {"ema_decay", "0.5"},
      {"precision", "bf16"},    {"gradient_accumulation_steps", "2"},
      {"compute_threads", "2"}, {"log_every", "3"},
      {"val_every", "2"},       {"save_every", "3"},
      {"keep_checkpoints", "1"}};
  // The first two belong to whoever makes the model and the settings (test_train_cli.py); the last has a test
  // above, as it changes no result.
  const std::set<std::string> elsewhere = {"model_size", "optimization_level", "plan_steps"};
  int runs = 0;
  const auto outcome = [&](const std::string& name, const std::string& value) {
    TrainJob job = job_;
    job.run = folder_ / ("key" + std::to_string(runs++));
    if (name == "epochs") job.config.train.steps = 0, job.config.train.epochs = 1;
    if (!value.empty()) std::ranges::find(config_keys(), name, &ConfigKey::name)->set(job.config, value);
    std::string seen;
    job.view.line = [&](const StepLine& line) { seen += std::to_string(line.step) + " "; };
    job.view.validation = [&](const Validation& v) { seen += std::to_string(v.loss) + " "; };
    train(job);
    for (const std::string& line : course(job.run)) seen += line;
    std::set<std::string> checkpoints;
    for (const auto& entry : std::filesystem::directory_iterator(job.run / "checkpoints"))
      checkpoints.insert(entry.path().filename());
    for (const std::string& checkpoint : checkpoints) seen += checkpoint;
    const std::filesystem::path last = *latest_checkpoint(job.run);
    return seen + read_text(last / "optimizer.safetensors") + std::to_string(load_state(last).threads);
  };
  for (const ConfigKey& key : config_keys()) {
    if (!key.trainer || elsewhere.contains(key.name)) continue;
    ASSERT_TRUE(values.contains(key.name)) << key.name << ": say in this test what it changes";
    EXPECT_TRUE(outcome(key.name, values.at(key.name)) != outcome(key.name, "")) << key.name;
    EXPECT_TRUE(outcome(key.name, "") == outcome(key.name, ""))
        << key.name << ": the comparison means nothing";
  }
}

}  // namespace
}  // namespace penstock::train
