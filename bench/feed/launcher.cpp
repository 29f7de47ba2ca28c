// How late a thread wakes up that launches a device's work every 2 ms: alone, beside the live feed at full
// speed, beside as many spinning threads of nice 19 as the feed has workers, and beside as many that copy
// memory, so that what cold caches cost can be told from what else the feed does.
// Only tenths of a second count in which the hypervisor took no CPU time from this machine.
//   feed_launcher DIR [PAIRS] [SECONDS]: JSON with the p99 of each, pair by pair, and the share that counted.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <time.h>

#include "bench/feed/stolen.h"
#include "penstock/core/threads.h"
#include "penstock/feed/feed.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

struct Delays {
  double p99_us = 0;
  double counted = 0;  ///< share of the wake-ups
};

Delays launch(double seconds) {
  constexpr std::size_t window = 50;  // wake-ups, a tenth of a second
  std::vector<double> delays;
  std::size_t all = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::int64_t before = MachineTime::now().stolen;
  for (auto wake = Clock::now(); wake < end;) {
    wake += std::chrono::milliseconds(2);
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(wake.time_since_epoch()).count();
    const timespec at{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
    delays.push_back(std::chrono::duration<double, std::micro>(Clock::now() - wake).count());
    if (++all % window == 0) {
      const std::int64_t now = MachineTime::now().stolen;
      if (now != before) delays.resize(delays.size() - window);
      before = now;
    }
    wake = std::max(wake, Clock::now() - std::chrono::milliseconds(2));
  }
  delays.resize(delays.size() - all % window);
  if (delays.empty()) return {};
  const auto p99 = delays.begin() + static_cast<std::ptrdiff_t>(delays.size() * 99 / 100);
  std::nth_element(delays.begin(), p99, delays.end());
  return {.p99_us = *p99, .counted = static_cast<double>(delays.size()) / static_cast<double>(all)};
}

Delays beside_feed(const Config& config, double seconds) {
  Feed feed(config);
  std::atomic<bool> stop{false};
  std::jthread consumer([&] {
    give_way();  // in a training loop the launcher is the consumer; this one is only here to keep the feed
                 // busy
    while (!stop) feed.next();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const Delays delays = launch(seconds);
  stop = true;
  return delays;
}

/// `turn` is what each of these threads does all the time.
template <typename Turn>
Delays beside(int threads, double seconds, const Turn& turn) {
  std::atomic<bool> stop{false};
  std::vector<std::jthread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&] {
      setpriority(PRIO_PROCESS, 0, 19);
      for (Turn mine = turn; !stop.load(std::memory_order_relaxed);) mine();
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const Delays delays = launch(seconds);
  stop = true;
  return delays;
}

struct Spin {
  void operator()() const {}
};

/// Through memory that no cache holds, a clip's bytes at a time.
struct Copy {
  void operator()() {
    std::copy_n(from.begin() + at, clip, to.begin() + at);
    at = (at + clip) % size;
  }
  static constexpr std::ptrdiff_t size = 32 << 20, clip = 256 << 10;
  std::vector<char> from = std::vector<char>(size, 1), to = std::vector<char>(size, 2);
  std::ptrdiff_t at = 0;
};

int main_of(const std::string& folder, int pairs, double seconds) {
  Config config;
  config.dataset_path = folder;
  config.split = Split::all;
  config.preprocessing_mode = PreprocessingMode::runtime;
  const int workers = available_cpus();
  json out = json::array();
  for (int i = 0; i < pairs; ++i) {
    json pair;
    const auto add = [&](const std::string& name, const Delays& delays) {
      pair[name + "_us"] = delays.p99_us;
      pair[name + "_counted"] = delays.counted;
    };
    add("alone", launch(seconds));
    add("feed", beside_feed(config, seconds));
    add("spinners", beside(workers, seconds, Spin()));
    add("copiers", beside(workers, seconds, Copy()));
    out.push_back(pair);
    fmt::print(stderr, "{}\n", out.back().dump());
  }
  fmt::print("{}\n", out.dump(1));
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print(stderr, "feed_launcher DIR [PAIRS] [SECONDS]\n"), 2;
  return penstock::main_of(argv[1], argc > 2 ? std::atoi(argv[2]) : 5, argc > 3 ? std::atof(argv[3]) : 10);
}
