// What the probes cost: the live feed at full speed with and without them, in turns.
//   feed_probes DIR [ROUNDS]: JSON, the rows a second of every round, and CPU seconds for 1,000 rows.
#include <chrono>
#include <cstdlib>
#include <ctime>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/feed/feed.h"

namespace penstock {
namespace {

struct Speed {
  double rows_per_second = 0, cpu_per_1000 = 0;
};

Speed measure(const Config& config, bool probes) {
  constexpr int warm_up = 20, batches = 250;
  Feed feed(config, {.probes = probes});
  for (int i = 0; i < warm_up; ++i) feed.next();
  std::int64_t rows = 0;
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  for (int i = 0; i < batches; ++i) rows += feed.next().shape.rows;
  const double used = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const auto n = static_cast<double>(rows);
  return {.rows_per_second = n / seconds.count(), .cpu_per_1000 = used / n * 1000};
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  using namespace penstock;
  if (argc < 2) return fmt::print(stderr, "usage: feed_probes DIR [ROUNDS]\n"), 2;
  Config config;
  config.dataset_path = argv[1];
  config.preprocessing_mode = PreprocessingMode::runtime;
  config.num_workers = available_cpus();
  config.split = Split::all;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  nlohmann::json out;
  for (int i = 0; i < rounds; ++i)
    for (const bool on : {i % 2 == 0, i % 2 != 0}) {
      const Speed speed = measure(config, on);
      out[on ? "on" : "off"]["rows_per_second"].push_back(speed.rows_per_second);
      out[on ? "on" : "off"]["cpu_per_1000"].push_back(speed.cpu_per_1000);
    }
  fmt::print("{}\n", out.dump(1));
}
