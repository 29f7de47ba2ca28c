#include "train/retrace.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "penstock/core/clock.h"
#include "penstock/core/threads.h"
#include "train/setup.h"

namespace penstock::train {
namespace {

double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

RetraceStep one_step(Step& step, DeviceFeed& feed, std::int64_t number, double learning_rate) {
  const DeviceBatch batch = feed.next();
  const auto start = Clock::now();
  const std::optional<Retrace> retrace = step.add(batch, counts_of(batch.host()));
  step.update(learning_rate);
  const Figures figures = step.figures(true).back();
  RetraceStep result{.number = number,
                     .shape = batch.host().shape,
                     .loss = figures.loss,
                     .ms = milliseconds(Clock::now() - start),
                     .skipped = figures.skipped};
  if (retrace) result.retrace = report_of(*retrace, feed.feed(), number);
  return result;
}

}  // namespace

std::int64_t RetraceFindings::retraces() const {
  return std::ranges::count_if(steps, [](const RetraceStep& s) { return s.retrace.has_value(); });
}

RetraceFindings retrace(const RetraceJob& job) {
  const TrainSettings& settings = job.config.train;
  const StepOptions options = step_options(job.config, job.make_graphs);
  torch::set_num_threads(settings.compute_threads > 0 ? settings.compute_threads : available_cpus());
  torch::manual_seed(job.config.seed);
  DeviceFeed feed(job.config, {.open = job.open});
  Step step(job.make_model(job.config, feed.feed().dataset()), options);

  RetraceFindings found;
  const std::span<const Shape> shapes = feed.feed().plan().shapes();
  found.planned.assign(shapes.begin(), shapes.end());
  const auto start = Clock::now();
  step.warm_up(shapes, job.config.mel.n_mels);
  found.warm_up_s = milliseconds(Clock::now() - start) * 1e-3;
  if (job.warmed_up) job.warmed_up(found.planned, found.warm_up_s);

  const std::int64_t steps = settings.steps > 0 ? settings.steps : 10;
  const Schedule schedule{.kind = Schedule::Kind::constant, .peak = settings.learning_rate, .total = steps};
  for (std::int64_t i = 0; i < steps && found.signal == 0; ++i) {
    found.steps.push_back(one_step(step, feed, i + 1, schedule.at(i)));
    if (job.step) job.step(found.steps.back());
    found.signal = job.signal ? job.signal() : 0;
  }
  const auto n = static_cast<double>(found.steps.size());
  for (const RetraceStep& s : found.steps) found.mean_ms += s.ms / n;
  for (const RetraceStep& s : found.steps)
    found.std_ms += (s.ms - found.mean_ms) * (s.ms - found.mean_ms) / n;
  found.std_ms = std::sqrt(found.std_ms);
  return found;
}

}  // namespace penstock::train
