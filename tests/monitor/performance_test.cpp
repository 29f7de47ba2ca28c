#include "penstock/monitor/performance.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::SizeIs;

void spend(milliseconds time) {
  for (const auto end = PerformanceMonitor::Clock::now() + time; PerformanceMonitor::Clock::now() < end;) {
  }
}

TEST(Performance, TimeInsideAnInnerScopeIsNotTheOuterOnesOwn) {
  PerformanceMonitor monitor(milliseconds(0));
  {
    const auto outer = monitor.time("batch");
    spend(milliseconds(2));
    for (int i = 0; i < 3; ++i) {
      const auto inner = monitor.time("decode");
      spend(milliseconds(5));
    }
  }
  const PerformanceReport report = monitor.report();
  ASSERT_THAT(report.scopes, SizeIs(2));
  const auto named = [&](const std::string& name) {
    return *std::ranges::find(report.scopes, name, &ScopeReport::name);
  };
  const ScopeReport decode = named("decode"), batch = named("batch");
  EXPECT_EQ(decode.calls, 3);
  EXPECT_GE(decode.own_seconds, 0.015);
  EXPECT_DOUBLE_EQ(decode.own_seconds, decode.seconds);
  EXPECT_GE(batch.seconds, decode.seconds + 0.002);
  EXPECT_NEAR(batch.own_seconds, batch.seconds - decode.seconds, 1e-8);
  EXPECT_NEAR(batch.share + decode.share, 1, 1e-9);
}

TEST(Performance, ThreadsAddUpAlsoWhenTheyHaveEnded) {
  PerformanceMonitor monitor(milliseconds(1));
  constexpr int threads = 4, calls = 2000;
  std::atomic<bool> done = false;
  std::jthread reader([&] {
    while (!done) (void)monitor.report();
  });
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&] {
        for (int i = 0; i < calls; ++i) {
          const auto scope = monitor.time(i % 2 == 0 ? "even" : std::string("odd"));
          if (i % 500 == 0) monitor.cache("mel", {.hits = static_cast<std::uint64_t>(i)});
        }
      });
  }
  done = true;
  reader.join();
  const PerformanceReport report = monitor.report();
  ASSERT_THAT(report.scopes, SizeIs(2));
  for (const ScopeReport& scope : report.scopes) {
    EXPECT_EQ(scope.calls, threads * calls / 2);
    EXPECT_EQ(scope.threads, threads);
  }
}

TEST(Performance, MonitorsOnOneThreadKeepApart) {
  PerformanceMonitor first(milliseconds(0));
  { const auto scope = first.time("a"); }
  for (int i = 0; i < 3; ++i) {
    PerformanceMonitor other(milliseconds(0));
    { const auto scope = other.time("b"); }
    ASSERT_THAT(other.report().scopes, SizeIs(1));
    EXPECT_EQ(other.report().scopes[0].name, "b");
    EXPECT_EQ(other.report().scopes[0].calls, 1);
  }
  EXPECT_EQ(first.report().scopes.at(0).name, "a");
}

TEST(Performance, TheSystemIsSampledAndSomethingIsNamed) {
  PerformanceMonitor monitor(milliseconds(5));
  {
    const auto scope = monitor.time("spin");
    while (monitor.report().samples < 3) {
    }
  }
  const PerformanceReport report = monitor.report();
  EXPECT_GE(report.available_cpus, 1);
  EXPECT_THAT(report.bottleneck, testing::AnyOf("cpu", "others", "disk", "one thread", "waiting", "device"));
  EXPECT_THAT(text(report), HasSubstr("spin"));
  EXPECT_THAT(text(report), HasSubstr("CPUs"));
}

std::string bottleneck_of(PerformanceReport report) {
  name_bottleneck(report);
  EXPECT_THAT(report.reason, testing::EndsWith("."));
  return report.bottleneck;
}

// Each report is full in more than one way, but for what comes before it in the order of the rules.
TEST(Performance, WhatIsFullHidesWhatLiesBehindIt) {
  PerformanceReport r{.seconds = 10,
                      .scopes = {{.name = "mel", .calls = 1, .threads = 1, .own_seconds = 9, .share = 0.9}},
                      .samples = 100,
                      .cpu = 0.95,
                      .disk_busy = 0.9,
                      .own_cpus = 1.9,
                      .others_cpus = 0.6,
                      .available_cpus = 2,
                      .gpu = UtilisationJudgement{.pressure = Pressure::steady}};
  EXPECT_EQ(bottleneck_of(r), "device");
  r.gpu->pressure = Pressure::swings;
  EXPECT_EQ(bottleneck_of(r), "others");
  r.others_cpus = 0.4;
  EXPECT_EQ(bottleneck_of(r), "cpu");
  r.steal = 0.06;  // 0.4 and twice 0.06 of two CPUs: over a quarter of them
  EXPECT_EQ(bottleneck_of(r), "others");
  r.steal = 0;
  r.own_cpus = 1;
  EXPECT_EQ(bottleneck_of(r), "disk");
  r.disk_busy = 0.7;
  EXPECT_EQ(bottleneck_of(r), "one thread");
  r.scopes[0].threads = 2;
  EXPECT_EQ(bottleneck_of(r), "waiting");
  r.scopes.clear();
  EXPECT_EQ(bottleneck_of(r), "waiting");
  r.samples = 0;
  EXPECT_EQ(bottleneck_of(r), "unknown");
}

TEST(Performance, CachesAreReportedByTheirHits) {
  PerformanceMonitor monitor(milliseconds(0));
  monitor.cache("mel", {.hits = 1});
  monitor.cache("mel", {.hits = 990, .misses = 10, .recomputed = 2, .bytes = 4'000'000});
  EXPECT_THAT(text(monitor.report()),
              HasSubstr("cache mel: 99.0 % of 1000 found, 2 recomputed, 4.0 MB read"));
  EXPECT_THAT(to_json(monitor.report()), HasSubstr(R"("hit_rate":0.99)"));
  EXPECT_THAT(to_json(monitor.report()), HasSubstr(R"("bottleneck":"unknown")"));
}

TEST(Performance, TooManyNamesAreAnError) {
  PerformanceMonitor monitor(milliseconds(0));
  for (int i = 0; i < 64; ++i) {
    const auto scope = monitor.time(std::to_string(i));
  }
  EXPECT_THROW((void)monitor.time("one more"), Error);
  { const auto scope = monitor.time("63"); }
}

}  // namespace
}  // namespace penstock
