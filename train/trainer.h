// Training: batches from the feed through the step, with validation, checkpoints and a log, until the last
// update or a signal.
//
//   TrainResult result = train({.config = config, .run = "runs/tones-nano", .make_model = ..., .view =
//   {...}});
//
// Resumes by itself where the run's folder has a checkpoint, and then gives what it would have given without
// the stop: on the CPU the same losses bit for bit, whatever the feed's workers and caches.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/core/config.h"
#include "penstock/feed/device_feed.h"
#include "train/graph.h"
#include "train/retraced.h"

namespace penstock::train {

class Model;  // its header is torch's, which who only starts and shows a run need not read

using NamedValues = std::vector<std::pair<std::string, double>>;

/// One update, or the mean over several: a line of the log, or of the console.
struct StepLine {
  std::int64_t step = 0;   ///< updates done, this one included
  std::int64_t epoch = 0;  ///< of its last batch
  double loss = 0;
  NamedValues losses;  ///< by name, without weights
  double learning_rate = 0, grad_norm = 0;
  double step_ms = 0;  ///< in forward, backward and update; on an accelerator by its own clock
  double data_ms = 0;  ///< waited for the feed; on an accelerator no more than it had nothing to do
  /// Accelerator utilisation: the time in steps, as a share of all time since the end of the update before
  /// (validations and checkpoints left out). The first update of a process counts from its first batch on.
  double au = 0;
  double frames_per_s = 0;    ///< valid ones, of all time
  double padding = 0;         ///< share of the batches' frames
  Shape shape;                ///< of its last batch
  int ring = 0;               ///< batches that were ready when this one was asked for
  std::int64_t retraces = 0;  ///< so far in this process
  bool skipped = false;       ///< not finite: nothing was changed
};

/// A retrace with what the plan and the index know of it.
struct RetraceReport {
  Retrace retrace;
  std::int64_t update = 0;
  std::int32_t bucket = 0;  ///< which of the plan's shapes the utterances are of
  std::vector<std::string> ids;
};

struct Validation {
  std::int64_t step = 0, utterances = 0;
  double loss = 0;    ///< as in training: the same terms, weights and counts
  bool best = false;  ///< the least of the run so far
};

/// Where the time went since the process began.
struct Summary {
  std::int64_t step = 0, total = 0, updates = 0, retraces = 0, planned = 0;
  double compute_s = 0, data_s = 0, elapsed_s = 0, au = 0, frames_per_s = 0, padding = 0;
  std::array<double, stage_count> stages{};  ///< shares of the feed's work
  std::string limit;                         ///< "the step", or "the feed (mel)" when it waits for data
  int workers = 0;
};

/// What somebody may want to see while it runs; any may be empty. Called by train()'s thread.
struct TrainView {
  std::function<void(const std::string&)> note;
  std::function<void(const StepLine&)> line;  ///< every log_every updates: their mean
  std::function<void(std::int64_t step, std::int64_t total, double seconds)>
      progress;  ///< after every update; seconds of this process
  std::function<void(const RetraceReport&)> retrace;
  std::function<void(const Validation&)> validation;
  std::function<void(const Summary&)> summary;  ///< at every validation and at the end
};

/// Makes what is trained, for the symbols and the mel of this dataset.
using ModelMaker = std::function<std::shared_ptr<Model>(const Config&, const Dataset&)>;

struct TrainJob {
  Config config;
  std::filesystem::path run;
  std::string config_text;  ///< for RUN/config.yaml
  ModelMaker make_model;
  OpenOptions open;
  std::shared_ptr<Trace> trace;  ///< of the feed, steps, validations and checkpoints; may be null
  TrainView view;
  GraphsMaker make_graphs = train::make_graphs;
  std::function<int()> signal;  ///< the signal that asks for the end, or 0; asked after every update
};

struct TrainResult {
  Summary summary;
  std::optional<StepLine> last;  ///< none when there was nothing left to do
  std::optional<Validation> validation;
  int signal = 0;          ///< that ended it; the checkpoint is written
  std::string not_finite;  ///< why it stopped early: three updates in a row were not finite, and of what
};

/// Throws Error (misuse, a checkpoint of something else, a full disk) and SampleError. One process for a run.
TrainResult train(const TrainJob& job);

}  // namespace penstock::train
