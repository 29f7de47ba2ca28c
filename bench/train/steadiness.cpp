// How steady a step's time is: every batch of the feed is trained on, and right behind it a batch that never
// changes, of the same shape. What they differ by is the data's doing; the rest is the machine's.
//
//   train_steadiness DIR auto|runtime BATCHES      one JSON line; the mode is preprocessing_mode
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "penstock/core/config.h"
#include "penstock/core/threads.h"
#include "penstock/feed/device_feed.h"
#include "train/setup.h"
#include "train/tts.h"

namespace {

using namespace penstock;
using Times = std::vector<double>;

struct OfShape {
  DeviceBatch constant;
  Times fed, repeated;  // ms
};

double mean(const Times& times) {
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

/// Standard deviation as a share of the mean.
double variation(const Times& times) {
  const double middle = mean(times);
  double squares = 0;
  for (const double t : times) squares += (t - middle) * (t - middle);
  return std::sqrt(squares / static_cast<double>(times.size())) / middle;
}

double timed_step(train::Step& step, const DeviceBatch& batch) {
  const auto start = std::chrono::steady_clock::now();
  step.add(batch, train::counts_of(batch.host()));
  step.update(1e-4);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  step.figures();
  return took.count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: train_steadiness DIR auto|runtime BATCHES\n"), 2;
  Config config;
  config.dataset_path = argv[1];
  config.batch_size = 16;
  if (std::string(argv[2]) == "runtime") config.preprocessing_mode = PreprocessingMode::runtime;
  torch::set_num_threads(available_cpus());
  DeviceFeed feed(config);
  train::Step step(train::make_tts({.n_symbols = feed.feed().dataset().symbols.size()}),
                   train::step_options(config, train::make_graphs));
  step.warm_up(feed.feed().plan().shapes(), config.mel.n_mels);

  std::map<Shape, OfShape> shapes;
  for (int i = 0; i < std::stoi(argv[3]); ++i) {
    const DeviceBatch batch = feed.next();
    const auto [at, first] = shapes.try_emplace(batch.host().shape, OfShape{.constant = batch});
    const double fed = timed_step(step, batch), repeated = timed_step(step, at->second.constant);
    if (first) continue;  // it may still have to find its caches and memory
    at->second.fed.push_back(fed);
    at->second.repeated.push_back(repeated);
  }
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [shape, times] : shapes)
    if (times.fed.size() > 1)
      out.push_back({{"frames", shape.frames},
                     {"batches", times.fed.size()},
                     {"ms", mean(times.fed)},
                     {"cv", variation(times.fed)},
                     {"constant_ms", mean(times.repeated)},
                     {"constant_cv", variation(times.repeated)}});
  std::printf("%s\n", out.dump().c_str());
}
