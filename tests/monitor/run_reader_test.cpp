#include "penstock/monitor/run_reader.h"

#include <cmath>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "penstock/monitor/run_log.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class RunReaderTest : public testing::Test {
 protected:
  void write(const std::string& text) const {
    std::ofstream(temp_ / "log.jsonl", std::ios::app | std::ios::binary) << text;
  }
  void add(const std::string& kind, const std::string& object) const { RunLog(run).add(kind, object); }
  void cut(std::uintmax_t bytes) const { std::filesystem::resize_file(temp_ / "log.jsonl", bytes); }
  static std::string step_line(int step) {
    return R"({"t":1.5,"kind":"step","step":)" + std::to_string(step) + "}\n";
  }
  static std::vector<std::int64_t> steps(const RunRecords& run) {
    std::vector<std::int64_t> numbers;
    for (const StepRecord& s : run.steps) numbers.push_back(s.step);
    return numbers;
  }

  TempFolder temp_;
  std::filesystem::path run = temp_.path();
};

TEST_F(RunReaderTest, EveryKindOfLineBecomesItsRecord) {
  add("event", R"({"event":"start","step":0,"steps":9})");
  add("step", R"({"step":1,"epoch":2,"loss":0.5,"lr":1e-3,"grad_norm":2,"step_ms":10,"data_ms":1,"au":0.9,)"
              R"("frames_per_s":1000,"padding":0.25,"retraces":3,"shape":[8,64,320],"ring":4})");
  add("feed", R"({"samples":80,"samples_per_second":40.5,"stages":{"mel":9.5,"read":2,"other":1},)"
              R"("workers":2,"depth":8,"ring_level":3.5,"hits":5,"misses":6,"recomputed":7,)"
              R"("bytes_read":5000000000,"skipped":1,)"
              R"("skipped_samples":[{"id":"a-1","reason":"decode: a-1.wav: is empty","times":3}]})");
  add("feed", R"({"step":1,"updates":1,"au":0.8,"limit":"the feed","stages":{"mel":0.75,"read":0.25}})");
  add("tune", R"({"epoch":0,"step":7,"workers":3,"depth":4,"reason":"waited"})");
  add("gpu", R"({"gpus":[{"index":1,"name":"G","utilisation":0.5,"memory_used":10,"pcie_rx":null}],)"
             R"("cpu":{"busy":0.4,"cores":[0.3,0.5]},)"
             R"("memory":{"total":100,"available":60,"used":40,"page_cache":20},)"
             R"("disk":{"read":7,"write":8},"faults_major":9})");
  add("event", R"({"event":"retrace","step":1,"shape":[8,63,320],"utterances":["a","b"],"cause":"c"})");
  add("event", R"({"event":"validation","step":1,"loss":0.75,"utterances":10})");

  const RunRecords r = read_run(run);
  EXPECT_EQ(r.damaged_lines, 0U);
  ASSERT_EQ(r.steps.size(), 1U);
  const StepRecord& s = r.steps[0];
  EXPECT_GT(s.t, 1e9);
  EXPECT_EQ(s.step, 1);
  EXPECT_EQ(s.epoch, 2);
  EXPECT_EQ(s.loss, 0.5);
  EXPECT_EQ(s.learning_rate, 1e-3);
  EXPECT_EQ(s.grad_norm, 2);
  EXPECT_EQ(s.step_ms, 10);
  EXPECT_EQ(s.data_ms, 1);
  EXPECT_EQ(s.au, 0.9);
  EXPECT_EQ(s.frames_per_s, 1000);
  EXPECT_EQ(s.padding, 0.25);
  EXPECT_EQ(s.retraces, 3);
  EXPECT_EQ(s.shape, (Shape{8, 64, 320}));
  EXPECT_EQ(s.ring, 4);
  EXPECT_FALSE(s.skipped);
  ASSERT_EQ(r.feed.size(), 1U);
  const FeedRecord& f = r.feed[0];
  EXPECT_EQ(f.samples, 80);
  EXPECT_EQ(f.samples_per_second, 40.5);
  EXPECT_THAT(f.stages, ElementsAre(Pair("read", 2), Pair("mel", 9.5), Pair("other", 1)));
  EXPECT_EQ(f.workers, 2);
  EXPECT_EQ(f.depth, 8);
  EXPECT_EQ(f.ring_level, 3.5);
  EXPECT_EQ(f.hits, 5);
  EXPECT_EQ(f.misses, 6);
  EXPECT_EQ(f.recomputed, 7);
  EXPECT_EQ(f.bytes_read, 5000000000U);
  EXPECT_EQ(f.skipped, 1);
  ASSERT_EQ(f.skipped_samples.size(), 1U);
  EXPECT_EQ(f.skipped_samples[0].id, "a-1");
  EXPECT_EQ(f.skipped_samples[0].times, 3);
  ASSERT_EQ(r.summaries.size(), 1U);
  EXPECT_EQ(r.summaries[0].limit, "the feed");
  EXPECT_EQ(r.summaries[0].au, 0.8);
  EXPECT_THAT(r.summaries[0].stages, ElementsAre(Pair("read", 0.25), Pair("mel", 0.75)));
  ASSERT_EQ(r.tune.size(), 1U);
  EXPECT_EQ(r.tune[0].step, 7);
  EXPECT_EQ(r.tune[0].workers, 3);
  EXPECT_EQ(r.tune[0].depth, 4);
  EXPECT_EQ(r.tune[0].reason, "waited");
  ASSERT_EQ(r.system.size(), 1U);
  ASSERT_EQ(r.system[0].gpus.size(), 1U);
  EXPECT_EQ(r.system[0].gpus[0].index, 1);
  EXPECT_EQ(r.system[0].gpus[0].utilisation, 0.5);
  EXPECT_TRUE(std::isnan(r.system[0].gpus[0].pcie_rx));
  EXPECT_TRUE(std::isnan(r.system[0].gpus[0].power_w));
  EXPECT_EQ(r.system[0].cpu_busy, 0.4);
  EXPECT_THAT(r.system[0].cores, ElementsAre(0.3, 0.5));
  EXPECT_EQ(r.system[0].memory_available, 60);
  EXPECT_EQ(r.system[0].page_cache, 20);
  EXPECT_EQ(r.system[0].disk_write, 8);
  EXPECT_EQ(r.system[0].major_faults, 9);
  ASSERT_EQ(r.events.size(), 3U);
  EXPECT_EQ(r.events[0].event, "start");
  EXPECT_THAT(r.events[0].text, HasSubstr(R"("steps":9)"));
  EXPECT_EQ(r.events[1].shape, (Shape{8, 63, 320}));
  EXPECT_EQ(r.events[1].cause, "c");
  EXPECT_THAT(r.events[1].utterances, ElementsAre("a", "b"));
  EXPECT_EQ(r.events[2].loss, 0.75);
}

TEST_F(RunReaderTest, WhatALineDoesNotHaveIsNotLogged) {
  write("{\"t\":1,\"kind\":\"step\",\"step\":5,\"loss\":null}\n{\"t\":2,\"kind\":\"feed\",\"hits\":3}\n");
  const RunRecords r = read_run(run);
  EXPECT_EQ(r.damaged_lines, 0U);
  ASSERT_EQ(r.steps.size(), 1U);
  for (const double x : {r.steps[0].loss, r.steps[0].data_ms, r.steps[0].au, r.steps[0].ring})
    EXPECT_TRUE(std::isnan(x));
  EXPECT_EQ(r.steps[0].shape.rows, 0);
  ASSERT_EQ(r.feed.size(), 1U);
  EXPECT_EQ(r.feed[0].hits, 3);
  EXPECT_TRUE(r.feed[0].stages.empty());
}

TEST_F(RunReaderTest, ADamagedLineIsNamedAndTheOthersAreRead) {
  write(step_line(1) + "{\"t\":1,\"kind\":\"st\n" + step_line(2) + "\n" +
        "{\"t\":1,\"kind\":\"step\",\"step\":\"three\"}\n[1]\n{\"kind\":\"later\"}\n" + "\xff\xfe\n" +
        step_line(4));
  const RunRecords r = read_run(run);
  EXPECT_THAT(steps(r), ElementsAre(1, 2, 4));
  EXPECT_EQ(r.lines, 9U);
  EXPECT_EQ(r.damaged_lines, 5U);
  std::vector<std::size_t> numbers;
  for (const DamagedLine& line : r.first_damaged) numbers.push_back(line.number);
  EXPECT_THAT(numbers, ElementsAre(2, 4, 5, 6, 8));
  for (const DamagedLine& line : r.first_damaged) EXPECT_FALSE(line.reason.empty());
}

TEST_F(RunReaderTest, NotMoreThanTenDamagedLinesAreNamed) {
  for (int i = 0; i < 1000; ++i) write("x\n");
  const RunRecords r = read_run(run);
  EXPECT_EQ(r.damaged_lines, 1000U);
  EXPECT_EQ(r.first_damaged.size(), 10U);
}

TEST_F(RunReaderTest, AnUnfinishedLineIsReadOnceTheRestIsThere) {
  write(step_line(1));
  RunReader reader(run);
  EXPECT_TRUE(reader.read_on());
  EXPECT_FALSE(reader.read_on());
  const std::string next = step_line(2);
  write(next.substr(0, 20));
  EXPECT_FALSE(reader.read_on());
  write(next.substr(20) + step_line(3).substr(0, 5));
  EXPECT_TRUE(reader.read_on());
  EXPECT_THAT(steps(reader.records()), ElementsAre(1, 2));
  write(step_line(3).substr(5));
  EXPECT_TRUE(reader.read_on());
  EXPECT_THAT(steps(reader.records()), ElementsAre(1, 2, 3));
  EXPECT_EQ(reader.records().damaged_lines, 0U);
}

TEST_F(RunReaderTest, ALogThatWasCutIsReadAgain) {
  write(step_line(1) + step_line(2) + step_line(3));
  RunReader reader(run);
  reader.read_on();
  cut(step_line(1).size());
  EXPECT_TRUE(reader.read_on());
  EXPECT_THAT(steps(reader.records()), ElementsAre(1));
  write(step_line(2) + step_line(3));
  reader.read_on();
  // Cut, and grown beyond where it was before anybody looked.
  cut(step_line(1).size());
  write(step_line(7) + step_line(8) + step_line(9));
  EXPECT_TRUE(reader.read_on());
  EXPECT_THAT(steps(reader.records()), ElementsAre(1, 7, 8, 9));
}

TEST_F(RunReaderTest, LongLogsAreReadWholeWhereverTheirPiecesEnd) {
  std::string text;
  for (int i = 0; i < 30000; ++i)
    text +=
        step_line(i).insert(1, R"("text":")" + std::string(static_cast<std::size_t>(i % 97), 'x') + "\",");
  write(text);
  const RunRecords r = read_run(run);
  ASSERT_EQ(r.steps.size(), 30000U);
  for (std::size_t i = 0; i < r.steps.size(); ++i) ASSERT_EQ(r.steps[i].step, static_cast<std::int64_t>(i));
  EXPECT_EQ(r.damaged_lines, 0U);
}

TEST_F(RunReaderTest, AMissingFolderAndAMissingLogAreErrorsThatNameThem) {
  const auto message = [](const std::filesystem::path& path) {
    try {
      read_run(path);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message(run / "nowhere"), HasSubstr("nowhere: is no folder"));
  EXPECT_THAT(message(run), HasSubstr("log.jsonl: is not there"));
  write("");
  EXPECT_EQ(message(run), "no error");
}

}  // namespace
}  // namespace penstock
