#include "train/run_folder.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "tests/temp_folder.h"
#include "train/levels.h"

namespace penstock::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

std::string cut(const std::string& text, std::int64_t step) {
  const TempFolder run;
  std::ofstream(run / "log.jsonl") << text;
  cut_log(run.path(), step);
  return read_text(run / "log.jsonl");
}

const std::string start = "{\"kind\":\"event\",\"step\":0}\n", one = "{\"kind\":\"step\",\"step\":1}\n",
                  two = "{\"kind\":\"step\",\"step\":2}\n", tune = "{\"kind\":\"tune\",\"step\":1}\n";

TEST(CutLog, KeepsLinesUpToTheCheckpointAndNothingBehindIt) {
  EXPECT_EQ(cut(start + one + two, 2), start + one + two);
  EXPECT_EQ(cut(start + one + two, 1), start + one);
  EXPECT_EQ(cut(start + one + two, 0), start);
  EXPECT_EQ(cut(one + two, 0), "");
  EXPECT_EQ(cut("", 3), "");
}

TEST(CutLog, ATornLastLineGoes) {
  EXPECT_EQ(cut(start + one + "{\"kind\":\"step\",\"st", 5), start + one);
  EXPECT_EQ(cut("{\"kind\"", 5), "");
  EXPECT_EQ(cut(one + "{\"kind\":\"step\",\"step\":2}", 5), one)
      << "no end of line: more may have been to come";
}

TEST(CutLog, TheFeedsOwnStepsAreNoUpdates) {
  EXPECT_EQ(cut(one + tune + two, 2), one + tune + two);
  EXPECT_EQ(cut(one + two + tune, 1), one) << "logged behind the checkpoint, whatever number it has";
}

TEST(CutLog, WithoutALogThereIsNothingToDo) {
  const TempFolder run;
  cut_log(run.path(), 3);
  EXPECT_FALSE(std::filesystem::exists(run / "log.jsonl"));
}

TEST(RunLock, OneProcessAtATime) {
  const TempFolder folder;
  {
    const RunLock lock(folder / "a/b");
    EXPECT_THAT([&] { RunLock(folder / "a/b"); }, ThrowsMessage<Error>(HasSubstr("another process trains")));
  }
  const RunLock again(folder / "a/b");
}

TEST(DefaultRun, IsNamedAfterTheDatasetAndTheSize) {
  Config config;
  config.train.model_size = "tiny";
  for (const char* path : {"/data/tones", "/data/tones/", "/data/x/../tones"}) {
    config.dataset_path = path;
    EXPECT_EQ(default_run(config), "runs/tones-tiny") << path;
  }
  config.dataset_path.clear();
  config.train_data = "/data/mine";
  EXPECT_EQ(default_run(config), "runs/mine-tiny");
}

TEST(Differences, NameKeysAndBothValues) {
  EXPECT_THAT(differences(R"({"a": 1, "b": "x"})", R"({"b": "x", "a": 1})"), IsEmpty());
  EXPECT_THAT(differences(R"({"a": 1, "b": "x"})", R"({"a": 2, "c": true})"),
              ElementsAre("a: 1 in the run, 2 now", "b: x in the run, nothing now",
                          "c: nothing in the run, true now"));
}

TEST(Differences, EveryMelKeyAndNothingElseMakesAnotherMel) {
  const Config plain;
  for (const ConfigKey& key : config_keys()) {
    Config changed;
    for (const char* value :
         {"htk", "none", "centered", "constant", "log10", "2", "512", "0.01", "true", "x"}) {
      try {
        key.set(changed, value);
      } catch (const Error&) {
        continue;
      }
      if (key.get(changed) != key.get(plain)) break;
    }
    const bool of_mel = !(mel_keys(changed) == mel_keys(plain));
    const bool expected =
        !(changed.mel == plain.mel) && key.name != "mel_layout" && key.name != "mel_precision";
    EXPECT_EQ(of_mel, expected) << key.name;
  }
}

TEST(Differences, WhatIsPaddedOtherwiseIsAnotherBatchAndWhoFillsItIsNot) {
  Config padded, filled;
  padded.mel_pad_value = -4;
  filled.num_workers = 3;
  EXPECT_THAT(differences(order_keys({}), order_keys(padded)),
              ElementsAre(testing::StartsWith("mel_pad_value: ")));
  EXPECT_THAT(differences(order_keys({}), order_keys(filled)), IsEmpty());
}

TEST(Levels, EnhancedIsWhatTheDefaultsAre) {
  const Config defaults;
  Config config;
  for (const auto& [name, value] : level_settings(OptimizationLevel::enhanced))
    std::ranges::find(config_keys(), name, &ConfigKey::name)->set(config, value);
  for (const ConfigKey& key : config_keys()) EXPECT_EQ(key.get(config), key.get(defaults)) << key.name;
}

TEST(Levels, TheOthersChangeSomething) {
  for (const OptimizationLevel level : {OptimizationLevel::basic, OptimizationLevel::experimental}) {
    Config config;
    for (const auto& [name, value] : level_settings(level))
      std::ranges::find(config_keys(), name, &ConfigKey::name)->set(config, value);
    EXPECT_NE(config.train.schedule, Config().train.schedule) << level_name(level);
  }
}

}  // namespace
}  // namespace penstock::train
