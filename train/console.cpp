#include "train/console.h"

#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/terminal.h"

namespace penstock::train {

using nlohmann::json;

TrainView Console::view() {
  return {.note = [this](const std::string& text) { note(text); },
          .line = [this](const StepLine& l) { line(l); },
          .progress = [this](std::int64_t step, std::int64_t total,
                             double seconds) { progress(step, total, seconds); },
          .retrace = [this](const RetraceReport& r) { retrace(r); },
          .validation = [this](const Validation& v) { validation(v); },
          .summary = [this](const Summary& s) { summary(s); }};
}

void Console::clear() {
  if (drawn_ >= 0 && isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\x1b[K");
  std::fflush(stdout);
}

void Console::note(const std::string& text) {
  clear();
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Console::line(const StepLine& l) {
  clear();
  if (lines_++ % 20 == 0)
    fmt::print("{:>8} {:>5} {:>10} {:>9} {:>9} {:>9} {:>8} {:>6} {:>9} {:>8} {:>8}\n", "step", "epoch",
               "loss", "lr", "norm", "step_ms", "data_ms", "AU", "frames/s", "padding", "retraces");
  fmt::print("{:>8} {:>5} {:>10.5f} {:>9.3g} {:>9.3f} {:>9.1f} {:>8.2f} {:>6.3f} {:>9.0f} {:>7.1f}% {:>8}\n",
             l.step, l.epoch, l.loss, l.learning_rate, l.grad_norm, l.step_ms, l.data_ms, l.au,
             l.frames_per_s, l.padding * 100, l.retraces);
  std::fflush(stdout);
}

void Console::progress(std::int64_t step, std::int64_t total, double seconds) {
  if (first_ < 0) first_ = step - 1;
  if (isatty(STDERR_FILENO) == 0 || (drawn_ >= 0 && seconds - drawn_ < 0.1 && step < total)) return;
  drawn_ = seconds;
  const double left = seconds / static_cast<double>(step - first_) * static_cast<double>(total - step);
  fmt::print(stderr, "\rtraining {} {}/{}  {} left\x1b[K",
             cli::bar(static_cast<double>(step) / static_cast<double>(total), 24), step, total,
             cli::age_text(left));
  std::fflush(stderr);
}

void Console::retrace(const RetraceReport& report) {
  note(fmt::format("retrace at step {}: {}", report.update, retrace_text(report)));
}

void Console::validation(const Validation& v) {
  note(fmt::format("validation at step {}: loss {:.5f} over {}{}", v.step, v.loss,
                   cli::count_text(v.utterances, "utterance"), v.best ? ", the best so far" : ""));
}

void Console::summary(const Summary& s) {
  std::string stages;
  for (std::size_t i = 0; i < stage_count; ++i)
    if (s.stages[i] >= 0.005) stages += fmt::format(" {} {:.0f}%", stage_names[i], s.stages[i] * 100);
  const double all = s.compute_s + s.data_s;
  const auto n = static_cast<double>(s.updates > 0 ? s.updates : 1);
  note(
      fmt::format("performance over {}: compute {:.1f} ms, data {:.2f} ms a step ({:.2f}% of both); AU "
                  "{:.3f}; limited by {}; "
                  "{:.0f} frames/s, padding {:.1f}%; {} with {} planned; feed of {}:{}",
                  cli::count_text(s.updates, "step"), s.compute_s / n * 1e3, s.data_s / n * 1e3,
                  all > 0 ? s.data_s / all * 100 : 0.0, s.au, s.limit, s.frames_per_s, s.padding * 100,
                  cli::count_text(s.retraces, "retrace"), cli::count_text(s.planned - s.retraces, "shape"),
                  cli::count_text(s.workers, "worker"), stages));
}

std::string shape_text(const Shape& shape) {
  return fmt::format("({}, {}, {})", shape.rows, shape.tokens, shape.frames);
}

std::string retrace_text(const RetraceReport& r) {
  return fmt::format("batch {} of epoch {}, bucket {}: {}; utterances {}", r.retrace.step, r.retrace.epoch,
                     r.bucket, r.retrace.cause, fmt::join(r.ids, " "));
}

json result_json(const TrainResult& result, const std::string& run) {
  const Summary& s = result.summary;
  return {{"run", run},
          {"step", s.step},
          {"steps", s.total},
          {"loss", result.last ? json(result.last->loss) : json()},
          {"validation", result.validation ? json(result.validation->loss) : json()},
          {"au", s.au},
          {"compute_s", s.compute_s},
          {"data_s", s.data_s},
          {"frames_per_s", s.frames_per_s},
          {"padding", s.padding},
          {"limit", s.limit},
          {"retraces", s.retraces},
          {"signal", result.signal},
          {"not_finite", result.not_finite}};
}

json findings_json(const RetraceFindings& found) {
  const auto shape_json = [](const Shape& s) {
    return json{{"rows", s.rows}, {"tokens", s.tokens}, {"frames", s.frames}};
  };
  json planned = json::array(), steps = json::array();
  for (const Shape& shape : found.planned) planned.push_back(shape_json(shape));
  for (const RetraceStep& s : found.steps) {
    json step = {{"step", s.number}, {"shape", shape_json(s.shape)}, {"loss", s.loss}, {"ms", s.ms}};
    if (s.retrace)
      step["retrace"] = {{"cause", s.retrace->retrace.cause},
                         {"bucket", s.retrace->bucket},
                         {"epoch", s.retrace->retrace.epoch},
                         {"batch", s.retrace->retrace.step},
                         {"utterances", s.retrace->ids}};
    steps.push_back(step);
  }
  return {{"planned", planned},       {"warm_up_s", found.warm_up_s}, {"steps", steps},
          {"mean_ms", found.mean_ms}, {"std_ms", found.std_ms},       {"retraces", found.retraces()}};
}

}  // namespace penstock::train
