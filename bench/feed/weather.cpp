// The autotuner on a real feed whose consumer and storage get faster and slower, beside every fixed setting.
//   feed_weather DIR [BATCHES]: JSON, one object for each change of the weather.
// AU over 200 batches from the 50th after the change on; workers; changes in the BATCHES (1,000) from there
// on; and what share of the CPUs the hypervisor took meanwhile.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bench/feed/stolen.h"
#include "penstock/feed/feed.h"
#include "penstock/monitor/step_clock.h"

namespace {
std::atomic<int> read_delay_us{0};
}

// In place of the C library's: audio files are read through this one, the first part of each with a delay.
// Small reads are not audio.
extern "C" ssize_t pread(int fd, void* into, std::size_t bytes, off_t at) {
  if (const int delay = read_delay_us.load(std::memory_order_relaxed); delay > 0 && bytes > 4096 && at == 0) {
    const timespec wait{.tv_sec = 0, .tv_nsec = delay * 1000L};
    nanosleep(&wait, nullptr);
  }
  return syscall(SYS_pread64, fd, into, bytes, at);
}

namespace penstock {
namespace {

using nlohmann::json;

constexpr int settle = 50, measured = 200;

struct Weather {
  double step_ms;
  int read_delay_us;
  std::vector<int> fixed_workers;  // to compare with
};

double run(Feed& feed, int batches, double step_ms) {
  const auto step = std::chrono::duration_cast<StepClock::Clock::duration>(
      std::chrono::duration<double, std::milli>(step_ms));
  StepClock clock;
  for (int i = 0; i < batches; ++i) {
    const Batch batch = feed.next();
    clock.step(step);
  }
  return clock.au();
}

/// Of a run during which the hypervisor took next to nothing, if one of three is.
double fixed(Config config, int workers, const Weather& weather) {
  config.num_workers = workers;
  double best = 0, least = 1;
  for (int i = 0; i < 3 && least > 0.01; ++i) {
    Feed feed(config);
    run(feed, settle, weather.step_ms);
    const MachineTime start = MachineTime::now();
    const double au = run(feed, measured, weather.step_ms), stolen = start.stolen_until_now();
    if (stolen < least) best = au, least = stolen;
  }
  return best;
}

int main_of(const std::string& folder, int batches) {
  Config config;
  config.dataset_path = folder;
  config.split = Split::all;
  config.preprocessing_mode = PreprocessingMode::runtime;
  const std::vector<Weather> weathers = {{50, 0, {1, 2}},
                                         {10, 0, {1, 2}},
                                         {100, 0, {1, 2}},
                                         {10, 2000, {1, 2, 3, 4, 5, 6, 7, 8}},
                                         {10, 0, {1, 2}}};
  FeedOptions options;
  options.tuned = [](const TuneChange& c) {
    fmt::print(stderr, "batch {}.{}: {} workers, depth {}: {}\n", c.epoch, c.step, c.workers, c.depth,
               c.reason);
  };
  Feed feed(config, options);
  json out = json::array();
  for (const Weather& weather : weathers) {
    read_delay_us = weather.read_delay_us;
    run(feed, settle, weather.step_ms);
    const std::int64_t changes = feed.stats().tune_changes;
    const MachineTime start = MachineTime::now();
    const double au = run(feed, measured, weather.step_ms);
    const int workers = feed.workers(), depth = feed.stats().depth;
    if (batches > measured) run(feed, batches - measured, weather.step_ms);
    json line = {{"step_ms", weather.step_ms},
                 {"read_delay_us", weather.read_delay_us},
                 {"au", au},
                 {"workers", workers},
                 {"depth", depth},
                 {"changes", feed.stats().tune_changes - changes},
                 {"stolen", start.stolen_until_now()},
                 {"fixed", json::array()}};
    for (const int w : weather.fixed_workers)
      line["fixed"].push_back({{"workers", w}, {"au", fixed(config, w, weather)}});
    out.push_back(line);
    fmt::print(stderr, "{}\n", line.dump());
  }
  fmt::print("{}\n", out.dump(1));
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print(stderr, "feed_weather DIR [BATCHES]\n"), 2;
  return penstock::main_of(argv[1], argc > 2 ? std::atoi(argv[2]) : 1000);
}
