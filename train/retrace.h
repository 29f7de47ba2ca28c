// Does every batch find its step planned? A few real steps, and what each of them met.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "train/trainer.h"

namespace penstock::train {

struct RetraceStep {
  std::int64_t number = 0;  ///< from 1
  Shape shape;
  double loss = 0, ms = 0;
  bool skipped = false;  ///< loss or gradient not finite
  std::optional<RetraceReport> retrace;
};

struct RetraceJob {
  Config config;  ///< config.train.steps: how many; auto: 10
  ModelMaker make_model;
  OpenOptions open;
  GraphsMaker make_graphs = train::make_graphs;
  std::function<void(const std::vector<Shape>& planned, double seconds)> warmed_up;
  std::function<void(const RetraceStep&)> step;
  std::function<int()> signal;  ///< as in TrainJob; ends it early
};

struct RetraceFindings {
  std::vector<Shape> planned;
  double warm_up_s = 0;
  std::vector<RetraceStep> steps;
  double mean_ms = 0, std_ms = 0;
  int signal = 0;
  [[nodiscard]] std::int64_t retraces() const;
};

/// One batch an update. Leaves nothing behind but the dataset's index. Throws as train().
RetraceFindings retrace(const RetraceJob& job);

}  // namespace penstock::train
