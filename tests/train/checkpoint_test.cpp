#include "train/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../temp_folder.h"
#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "toy.h"
#include "train/step.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using toy::make_toy;

RunState state_at(std::int64_t update) {
  RunState s;
  s.update = update;
  s.feed = {.seed = 0xffffffffffffffffu, .epoch = 3, .step = 17, .shapes = {{16, 24, 100}, {16, 48, 200}}};
  s.random = random_state();
  s.device_random = "AQIDBAUGBwgJCgsMDQ4PEA==";
  s.threads = 2;
  s.model = R"({"kind":"toy","width":16})";
  s.mel = "no JSON \"text\"";
  s.symbols = R"({"b":1,"a":[1,2]})";
  s.order = R"({"seed":7,  "spaced":true})";
  s.best_validation = 0.1 + static_cast<double>(update);
  s.skipped_in_a_row = 2;
  return s;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(folder)) names.push_back(e.path().filename().string());
  std::ranges::sort(names);
  return names;
}

/// A model and its optimizer whose every number is `value`.
struct Trained {
  explicit Trained(float value, double ema = 0.9) : step(make_toy(), {.ema_decay = ema}) { set(value); }
  void set(float value) {
    const torch::NoGradGuard no_grad;
    for (auto& p : step.model().parameters()) p.fill_(value);
    for (auto& b : step.model().buffers()) b.fill_(value);
    for (auto& [name, t] : step.optimizer().state()) torch::Tensor(t).fill_(value);
  }
  void save(const fs::path& run, std::int64_t update, int keep = 3, bool best = false) {
    save_checkpoint(run, step.model(), step.optimizer(), state_at(update), keep, best);
  }
  void expect(float value) const {
    for (const auto& p : step.model().parameters()) EXPECT_TRUE(p.eq(value).all().item<bool>());
    for (const auto& b : step.model().buffers()) EXPECT_TRUE(b.eq(value).all().item<bool>());
    for (const auto& [name, t] : step.optimizer().state())
      EXPECT_TRUE(t.eq(value).all().item<bool>()) << name;
  }
  Step step;
};

TEST(Checkpoint, WhatIsSavedIsLoaded) {
  const TempFolder run;
  EXPECT_FALSE(latest_checkpoint(run.path()));
  Trained(2).save(run.path(), 1200);
  EXPECT_THAT(names_in(run / "checkpoints"), ElementsAre("step-00001200"));
  EXPECT_THAT(names_in(run / "checkpoints/step-00001200"),
              ElementsAre("model.safetensors", "optimizer.safetensors", "state.json"));
  const auto checkpoint = latest_checkpoint(run.path());
  ASSERT_EQ(checkpoint, run / "checkpoints/step-00001200");

  const RunState a = state_at(1200), b = load_state(*checkpoint);
  EXPECT_EQ(a.update, b.update);
  EXPECT_EQ(a.feed, b.feed);
  EXPECT_EQ(std::tie(a.random, a.device_random, a.threads, a.model, a.mel, a.symbols, a.order,
                     a.best_validation, a.skipped_in_a_row),
            std::tie(b.random, b.device_random, b.threads, b.model, b.mel, b.symbols, b.order,
                     b.best_validation, b.skipped_in_a_row));
  Trained other(0);
  load_tensors(*checkpoint, other.step.model(), nullptr);
  EXPECT_TRUE(other.step.model().parameters()[0].eq(2).all().item<bool>());
  EXPECT_EQ(other.step.optimizer().state()[0].second.sum().item<float>(), 0) << "was not asked for";
  load_tensors(*checkpoint, other.step.model(), &other.step.optimizer());
  other.expect(2);
  EXPECT_THAT(read_text(*checkpoint / "state.json"), HasSubstr("\"kind\": \"toy\"")) << "for people";
}

TEST(Checkpoint, NoValidationYetIsNotANumber) {
  const TempFolder run;
  Trained trained(1);
  RunState state = state_at(1);
  state.best_validation = RunState().best_validation;
  save_checkpoint(run.path(), trained.step.model(), trained.step.optimizer(), state, 1, false);
  EXPECT_TRUE(std::isnan(load_state(run / "checkpoints/step-00000001").best_validation));
}

TEST(Checkpoint, TheLastOnesAndTheBestAreKept) {
  const TempFolder run;
  Trained trained(1);
  trained.save(run.path(), 10, 2, true);
  for (const int update : {20, 30, 40}) trained.save(run.path(), update, 2);
  EXPECT_THAT(names_in(run / "checkpoints"),
              ElementsAre("best", "step-00000010", "step-00000030", "step-00000040"));
  EXPECT_EQ(read_text(run / "checkpoints/best"), "step-00000010\n");
  trained.save(run.path(), 50, 1, true);
  EXPECT_THAT(names_in(run / "checkpoints"), ElementsAre("best", "step-00000050"));
  EXPECT_EQ(read_text(run / "checkpoints/best"), "step-00000050\n");
}

TEST(Checkpoint, OneOfTheSameUpdateIsReplaced) {
  const TempFolder run;
  Trained trained(1);
  trained.save(run.path(), 10);
  trained.set(5);
  trained.save(run.path(), 10);
  EXPECT_THAT(names_in(run / "checkpoints"), ElementsAre("step-00000010"));
  trained.set(0);
  load_tensors(*latest_checkpoint(run.path()), trained.step.model(), &trained.step.optimizer());
  trained.expect(5);
}

TEST(Checkpoint, HalfWrittenOnesArePassedOverAndCleared) {
  const TempFolder run;
  Trained trained(1);
  trained.save(run.path(), 10);
  for (const int update : {20, 30, 40, 50}) trained.save(run.path(), update, 9);
  const fs::path all = run / "checkpoints";
  fs::remove(all / "step-00000050/state.json");
  fs::resize_file(all / "step-00000040/optimizer.safetensors", 100);
  fs::remove(all / "step-00000030/model.safetensors");
  fs::copy(all / "step-00000020", all / ".tmp-step-00000060");
  fs::create_directory(all / "step-later");
  EXPECT_EQ(latest_checkpoint(run.path()), all / "step-00000020");
  trained.save(run.path(), 70, 9);
  EXPECT_FALSE(fs::exists(all / ".tmp-step-00000060"));
  EXPECT_TRUE(fs::exists(all / "step-later")) << "is not ours";
  EXPECT_EQ(latest_checkpoint(run.path()), all / "step-00000070");
}

// A writer that is killed at any moment leaves a whole checkpoint of the numbers that belong to it.
TEST(Checkpoint, AKilledWriterLeavesAWholeOne) {
  const TempFolder run;
  Trained trained(1);
  trained.save(run.path(), 1, 2, true);
  std::mt19937 random(4);
  std::int64_t last = 1;
  for (int round = 0; round < 25; ++round) {
    const pid_t writer = ::fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      for (std::int64_t update = last + 1;; ++update) {
        trained.set(static_cast<float>(update));
        trained.save(run.path(), update, 2, update % 3 == 0);
        trained.save(run.path(), update, 2);  // again, as at the end of a run
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 20'000));
    ::kill(writer, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the writer failed by itself";

    const auto checkpoint = latest_checkpoint(run.path());
    ASSERT_TRUE(checkpoint);
    const std::int64_t update = load_state(*checkpoint).update;
    EXPECT_GE(update, last);
    load_tensors(*checkpoint, trained.step.model(), &trained.step.optimizer());
    trained.expect(static_cast<float>(update));
    std::string best = read_text(run / "checkpoints/best");
    best.pop_back();
    EXPECT_NO_THROW(load_state(run / "checkpoints" / best));
    last = update;
  }
  EXPECT_GT(last, 1) << "no writer came to anything";
}

/// Files cannot grow beyond this: a full disk that needs no disk.
class LargestFile {
 public:
  explicit LargestFile(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~LargestFile() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  LargestFile(const LargestFile&) = delete;
  LargestFile& operator=(const LargestFile&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(Checkpoint, AFullDiskLeavesWhatWasThere) {
  const TempFolder run;
  Trained trained(1);
  trained.save(run.path(), 10);
  trained.set(2);
  const auto size = [&](const char* name) { return fs::file_size(run / "checkpoints/step-00000010" / name); };
  const std::uintmax_t largest = std::max(size("optimizer.safetensors"), size("state.json"));
  int failed = 0;
  for (std::uintmax_t bytes = 0; bytes < largest; bytes += 1 + largest / 23) {
    for (const int update : {10, 20}) {
      std::string message;
      try {
        const LargestFile limit(bytes);
        trained.save(run.path(), update);
      } catch (const Error& e) {
        message = e.what();
        ++failed;
      }
      EXPECT_THAT(message, AllOf(HasSubstr(run.path().string()), HasSubstr("File too large")));
      EXPECT_THAT(names_in(run / "checkpoints"), ElementsAre("step-00000010"));
    }
  }
  EXPECT_GT(failed, 20);
  load_tensors(*latest_checkpoint(run.path()), trained.step.model(), &trained.step.optimizer());
  trained.expect(1);
  trained.save(run.path(), 20);
  EXPECT_EQ(latest_checkpoint(run.path()), run / "checkpoints/step-00000020");
}

TEST(Checkpoint, AveragesMayComeAndGo) {
  const TempFolder run;
  Trained with(3), without(4, 0);
  with.save(run.path(), 1);
  without.save(run.path(), 2);
  load_tensors(run / "checkpoints/step-00000001", without.step.model(), &without.step.optimizer());
  without.expect(3);
  load_tensors(run / "checkpoints/step-00000002", with.step.model(), &with.step.optimizer());
  with.expect(4);
}

TEST(Checkpoint, WhatIsWrongIsNamed) {
  const TempFolder run;
  Trained trained(1);
  trained.save(run.path(), 10);
  const fs::path one = run / "checkpoints/step-00000010";
  write_file(one / "state.json", "{\"update\": 3}");
  EXPECT_THAT([&] { load_state(one); }, ThrowsMessage<Error>(AllOf(HasSubstr("state.json: is not the state"),
                                                                   HasSubstr("best_validation"))));
  write_file(one / "state.json", "{");
  EXPECT_THAT([&] { load_state(one); }, ThrowsMessage<Error>(HasSubstr("state.json: must be JSON")));
  fs::remove(one / "optimizer.safetensors");
  EXPECT_THAT([&] { load_tensors(one, trained.step.model(), &trained.step.optimizer()); },
              ThrowsMessage<Error>(HasSubstr("optimizer.safetensors: cannot be read")));
}

TEST(RandomState, GoesOnWhereItWas) {
  torch::manual_seed(11);
  torch::randn({7});
  const std::string state = random_state();
  const torch::Tensor first = torch::randn({100});
  set_random_state(state);
  EXPECT_TRUE(torch::equal(first, torch::randn({100})));
  EXPECT_THAT([] { set_random_state("A*"); }, ThrowsMessage<Error>(HasSubstr("must be base64")));
  EXPECT_THAT([] { set_random_state("QUJD"); }, ThrowsMessage<Error>(HasSubstr("but has 3")));
}

}  // namespace
}  // namespace penstock::train
