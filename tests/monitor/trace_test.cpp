#include "penstock/monitor/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/monitor/probe.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

using std::chrono::microseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string written(const Trace& trace) {
  const TempFolder folder;
  trace.write(folder / "trace.json");
  return read_text(folder / "trace.json");
}

TEST(Trace, SpansAreWrittenByTheirBeginningWithWhatHoldsOthersFirst) {
  Trace trace;
  TraceTrack& track = trace.track("worker \"0\"");
  const auto now = std::chrono::steady_clock::now();
  track.set_place({.epoch = 1, .step = 2, .row = 3});
  track.add("mel", now + microseconds(5), now + microseconds(9));
  track.add("read", now, now + microseconds(4));
  track.add("row", now, now + microseconds(10));
  const std::string text = written(trace);
  EXPECT_THAT(text, HasSubstr(R"("thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"worker \"0\""})"));
  EXPECT_THAT(text, AllOf(HasSubstr(R"("dur":10.000,"args":{"epoch":1,"step":2,"row":3})"),
                          HasSubstr(R"("spans_lost":0)")));
  EXPECT_LT(text.find("\"row\",\"ph\""), text.find("\"read\",\"ph\""));
  EXPECT_LT(text.find("\"read\",\"ph\""), text.find("\"mel\",\"ph\""));
}

TEST(Trace, ATrackKeepsTheLastSpansAndCountsTheOthers) {
  Trace trace(4);
  const auto now = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i)
    trace.track("steps").add("step", now + microseconds(i), now + microseconds(i + 1), {.step = i});
  EXPECT_THAT(written(trace), AllOf(HasSubstr(R"("spans_lost":6)"), HasSubstr(R"({"step":9})"),
                                    HasSubstr(R"({"step":6})"), Not(HasSubstr(R"({"step":5})"))));
}

TEST(Trace, ATrackWithoutSpansIsNotWritten) {
  Trace trace;
  trace.track("worker 7");
  EXPECT_THAT(written(trace), Not(HasSubstr("worker 7")));
  EXPECT_EQ(&trace.track("worker 7"), &trace.track("worker 7"));
}

TEST(Trace, AProbeWritesItsStageWhereThereIsATrack) {
  Trace trace;
  StageClock clock;
  probe(clock, Stage::read, [] {});
  clock.set_track(&trace.track("worker 0"));
  probe(clock, Stage::mel, [] {});
  EXPECT_THAT(written(trace), AllOf(HasSubstr("\"mel\""), Not(HasSubstr("\"read\""))));
}

TEST(Trace, AFileThatCannotBeWrittenIsNamed) {
  try {
    Trace().write("/nowhere/trace.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("/nowhere/trace.json"));
  }
}

}  // namespace
}  // namespace penstock
