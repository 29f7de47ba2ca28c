#include "penstock/monitor/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr double worth_a_word = 0.05;  // what takes less of the time is not named

/// One judged step, with what happened around it.
struct Step {
  const StepRecord* record = nullptr;
  double step = 0, data = 0, outside = 0;  // ms
  bool retraced = false, new_epoch = false;
  [[nodiscard]] double batch() const { return step + data; }
  [[nodiscard]] double whole() const { return step + data + outside; }
};

double known(double value) { return std::isnan(value) ? 0 : value; }

double mean_known(const std::vector<double>& values) {
  double sum = 0;
  std::size_t count = 0;
  for (const double v : values)
    if (!std::isnan(v)) sum += v, ++count;
  return count > 0 ? sum / static_cast<double>(count) : not_logged;
}

double sum_of(const std::vector<Step>& steps, const std::function<double(const Step&)>& of) {
  return std::accumulate(steps.begin(), steps.end(), 0.0,
                         [&](double sum, const Step& step) { return sum + of(step); });
}

/// A process began at one of these times.
std::vector<double> starts(const RunRecords& run) {
  std::vector<double> times;
  for (const EventRecord& event : run.events)
    if (event.event == "start" || event.event == "resume") times.push_back(event.t);
  return times;
}

/// All steps but the first of every process, which is cold.
std::vector<Step> warm_steps(const RunRecords& run) {
  const std::vector<double> begun = starts(run);
  std::vector<Step> steps;
  for (std::size_t i = 1; i < run.steps.size(); ++i) {
    const StepRecord &before = run.steps[i - 1], &now = run.steps[i];
    const bool restarted = std::ranges::any_of(begun, [&](double t) { return t > before.t && t <= now.t; });
    if (restarted || now.step <= before.step || (std::isnan(now.step_ms) && std::isnan(now.data_ms)))
      continue;
    Step step{.record = &now, .step = known(now.step_ms), .data = known(now.data_ms)};
    // A line's time has milliseconds; what is shorter than a tenth of a step is no pause.
    const double between = (now.t - before.t) * 1e3 - step.batch();
    if (between > 2 && between > 0.1 * step.batch()) step.outside = between;
    step.retraced = now.retraces > before.retraces;
    step.new_epoch = now.epoch != before.epoch;
    steps.push_back(step);
  }
  return steps;
}

/// What took its time between two steps: by the step that it came after, ms.
using Pauses = std::map<std::int64_t, double>;

/// How long each event of that name took: as it says, or since the line before it.
Pauses pauses_of(const RunRecords& run, std::string_view name) {
  std::vector<double> lines;
  for (const StepRecord& s : run.steps) lines.push_back(s.t);
  for (const EventRecord& e : run.events) lines.push_back(e.t);
  std::ranges::sort(lines);
  Pauses pauses;
  for (const EventRecord& e : run.events) {
    if (e.event != name || e.step < 0) continue;
    const auto here = std::ranges::lower_bound(lines, e.t);
    const double since = here == lines.begin() ? 0 : e.t - *(here - 1);
    pauses[e.step] += 1e3 * (std::isnan(e.seconds) ? since : e.seconds);
  }
  return pauses;
}

/// The pause at a step: its event stands at this step, or at the one before, when it came after that one.
double pause_at(const Pauses& pauses, std::int64_t step) {
  double ms = 0;
  for (const std::int64_t at : {step - 1, step})
    if (const auto found = pauses.find(at); found != pauses.end()) ms = std::max(ms, found->second);
  return ms;
}

/// How much of the spread of the step times the batches' shapes explain, 0..1.
double explained_by_shapes(const std::vector<Step>& steps) {
  std::map<Shape, std::vector<double>> by_shape;
  std::vector<double> all;
  for (const Step& s : steps) {
    by_shape[s.record->shape].push_back(s.step);
    all.push_back(s.step);
  }
  const double deviation = summarise(all).deviation;
  if (by_shape.size() < 2 || deviation == 0) return 0;
  double within = 0;
  for (auto& [shape, times] : by_shape) {
    const auto n = static_cast<double>(times.size());
    within += n * std::pow(summarise(std::move(times)).deviation, 2);
  }
  return 1 - within / (static_cast<double>(all.size()) * deviation * deviation);
}

/// Steps over one and a half of the median, and what stands beside them more often than beside the others.
SlowSteps slow_steps(const RunRecords& run, const std::vector<Step>& steps) {
  SlowSteps out;
  std::vector<double> whole;
  for (const Step& s : steps) whole.push_back(s.whole());
  out.oscillation = find_oscillation(whole);
  const double median = summarise(whole).p50;
  std::vector<const Step*> slow;
  for (const Step& s : steps)
    if (s.whole() > 1.5 * median) slow.push_back(&s);
  if (slow.empty()) return out;
  out.count = slow.size();
  double lost = 0;
  for (const Step* s : slow) {
    out.ms += s->whole() / static_cast<double>(slow.size());
    lost += s->whole() - median;
  }
  const Pauses checkpoints = pauses_of(run, "checkpoint"), validations = pauses_of(run, "validation");
  const auto most_of_it = [&](double ms, const Step& s) {
    return s.whole() > 1.5 * median && ms > 0.5 * (s.whole() - median);
  };
  const std::pair<const char*, std::function<bool(const Step&)>> causes[] = {
      {"retrace", [](const Step& s) { return s.retraced; }},
      {"checkpoint", [&](const Step& s) { return most_of_it(pause_at(checkpoints, s.record->step), s); }},
      {"validation", [&](const Step& s) { return most_of_it(pause_at(validations, s.record->step), s); }},
      {"epoch", [](const Step& s) { return s.new_epoch; }},
      {"data", [&](const Step& s) { return most_of_it(s.data, s); }}};
  for (const auto& [name, holds] : causes) {
    double here = 0;
    for (const Step* s : slow) here += holds(*s) ? s->whole() - median : 0;
    const auto everywhere = static_cast<double>(std::ranges::count_if(steps, holds));
    const double base = everywhere / static_cast<double>(steps.size());
    // What stands beside most steps anyway explains nothing.
    if (here / lost > std::max(0.6, 1.5 * base)) {
      out.cause = name;
      out.explained = here / lost;
      return out;
    }
  }
  out.explained = explained_by_shapes(steps);
  out.cause = out.explained > 0.6 ? "shapes" : "step";
  return out;
}

void add_stages(RunDiagnosis& d, const RunRecords& run) {
  d.has_feed = !run.feed.empty();
  std::map<std::string, double> us;
  double samples = 0;
  std::int64_t hits = 0, misses = 0;
  for (const FeedRecord& f : run.feed) {
    const auto n = static_cast<double>(f.samples);
    for (const auto& [name, cost] : f.stages) us[name] += cost * n;
    if (!f.stages.empty()) samples += n;
    if (f.workers > 0) d.workers = f.workers;
    hits += f.hits, misses += f.misses;
    d.skipped = std::max(d.skipped, f.skipped);
  }
  if (hits + misses > 0) d.cache_hits = static_cast<double>(hits) / static_cast<double>(hits + misses);
  double total = 0;
  for (const auto& [name, cost] : us) total += cost;
  if (samples > 0 && total > 0)
    for (const auto& [name, cost] : us)
      d.stages.push_back({.name = name, .us_per_sample = cost / samples, .share = cost / total});
  std::ranges::sort(d.stages, std::greater(), &StageDemand::us_per_sample);
}

void add_machine(RunDiagnosis& d, const RunRecords& run) {
  std::vector<double> gpu, cpu;
  for (const SystemRecord& s : run.system) {
    cpu.push_back(s.cpu_busy);
    d.cores = std::max(d.cores, static_cast<int>(s.cores.size()));
    for (const GpuRecord& g : s.gpus) gpu.push_back(g.utilisation);
  }
  d.gpu_busy = mean_known(gpu);
  d.cpu_busy = mean_known(cpu);
}

/// What the workers can do, from their demand per sample, and what the step asks for.
void add_rates(RunDiagnosis& d, const std::vector<Step>& steps) {
  double rows = 0, ms = 0, us = 0;
  for (const Step& s : steps)
    if (s.record->shape.rows > 0) rows += s.record->shape.rows, ms += s.step;
  if (ms > 0) d.samples_per_second_needed = rows / ms * 1e3;
  for (const StageDemand& s : d.stages) us += s.us_per_sample;
  const int hands = d.cores > 0 ? std::min(d.workers, d.cores) : d.workers;
  if (us > 0 && hands > 0) d.samples_per_second_possible = hands / us * 1e6;
}

/// AU of a feed that is `factor` times as fast: the batch's time is the feed's while that is the longer.
double au_with_feed(const RunDiagnosis& d, double factor) { return std::min(1.0, d.au * factor); }

double cost_of(const RunDiagnosis& d, std::string_view stage) {
  const auto found = std::ranges::find(d.stages, stage, &StageDemand::name);
  return found == d.stages.end() ? 0 : found->us_per_sample;
}

/// The wait for data: which of its remedies fits follows from what the stages cost.
RunFinding data_finding(const RunDiagnosis& d) {
  RunFinding f{.cause = "data", .share = 1 - d.au};
  f.what = fmt::format("The device waits for data {:.0f} % of the time.", f.share * 100);
  const double live = cost_of(d, "read") + cost_of(d, "decode") + cost_of(d, "mel");
  double all = 0;
  for (const StageDemand& s : d.stages) all += s.us_per_sample;
  if (!d.has_feed) {
    f.advice = "See where the loop waits, and what in its sources makes it wait:";
    f.lines = "penstock diagnose -- python train.py\npenstock scan train.py";
    return f;
  }
  if (d.stages.empty()) {
    f.advice = "Find the stage that limits it: penstock diagnose DIR measures each one.";
    return f;
  }
  const StageDemand& first = d.stages.front();
  f.what += fmt::format(" Most of the feed's work is {}: {:.0f} us of {:.0f} a sample.", first.name,
                        first.us_per_sample, all);
  const bool enough =
      d.samples_per_second_needed > 0 && d.samples_per_second_possible > 1.2 * d.samples_per_second_needed;
  if (enough) {
    f.advice = "The workers are fast enough on average but not at all times: let them run further ahead.";
    f.lines = "prefetch_buffer_size: 16";
    return f;
  }
  // A row from the cache costs its copy, which the other stages already pay for: what is left bounds it.
  if (live > 0.5 * all) {
    f.advice = "Compute mels once and keep them: penstock cache build DIR, then";
    f.lines = "preprocessing_mode: precompute";
    f.au_after = au_with_feed(d, all / std::max(all - live, 0.05 * all));
    return f;
  }
  if (d.workers > 0 && (d.cores == 0 || d.workers < d.cores)) {
    const int more = d.cores > 0 ? std::min(d.cores, 2 * d.workers) : 2 * d.workers;
    f.advice = fmt::format("More workers: {} instead of {}.", more, d.workers);
    f.lines = fmt::format("num_workers: {}", more);
    f.au_after = au_with_feed(d, static_cast<double>(more) / d.workers);
    return f;
  }
  if (first.name == "cache" || first.name == "read") {
    f.advice = "The storage is the limit: keep the cache on a local disk, and half as large.";
    f.lines = "cache_type: float16";
    return f;
  }
  f.advice = "All cores are busy: a larger step or more cores; fewer other programs beside it.";
  return f;
}

/// Time lost between steps to what happens there.
RunFinding pause_finding(const std::string& event, const Pauses& pauses, double share) {
  RunFinding f{.cause = event, .share = share};
  f.what = fmt::format("{:.0f} % of the time goes by between steps, at each {}.", share * 100, event);
  f.advice = event == "checkpoint" ? "Save less often:" : "Validate less often:";
  const std::int64_t first = pauses.begin()->first, last = pauses.rbegin()->first;
  const std::int64_t every = pauses.size() > 1 ? (last - first) / (std::ssize(pauses) - 1) : first;
  if (every > 0)
    f.lines = fmt::format("{}: {}", event == "checkpoint" ? "save_every" : "val_every", 4 * every);
  return f;
}

RunFinding retrace_finding(const RunDiagnosis& d, double share) {
  RunFinding f{.cause = "retraces", .share = share};
  f.what = fmt::format("{} steps were planned anew ({:.0f} % of the time){}.", d.retraces, share * 100,
                       d.retrace_causes.empty() ? "" : ": " + d.retrace_causes.front().first);
  f.advice = "Give every batch one of a few shapes that are known before the first step:";
  f.lines = d.has_feed ? "shapes: 4" : "step = penstock.guard(step)  # names the argument that changed";
  return f;
}

void add_findings(RunDiagnosis& d, const RunRecords& run, const std::vector<Step>& steps) {
  const double whole = sum_of(steps, [](const Step& s) { return s.whole(); });
  if (d.step.mean > 0 && 1 - d.au > worth_a_word) d.findings.push_back(data_finding(d));
  std::map<std::int64_t, double> outside;
  for (const Step& s : steps) outside[s.record->step] += s.outside;
  for (const char* event : {"checkpoint", "validation"}) {
    Pauses pauses = pauses_of(run, event);
    // What comes behind a process's last step, or before its first, keeps no step waiting.
    std::erase_if(pauses, [&](const auto& pause) {
      const auto [step, took] = pause;
      return std::max(outside[step], outside[step + 1]) < 0.5 * took;
    });
    double ms = 0;
    for (const auto& [step, pause] : pauses) ms += pause;
    if (ms / whole > worth_a_word) d.findings.push_back(pause_finding(event, pauses, ms / whole));
  }
  if (d.retraces > 0) {
    const double lost =
        sum_of(steps, [&](const Step& s) { return s.retraced ? std::max(0.0, s.step - d.step.p50) : 0; });
    if (lost / whole > worth_a_word || d.retraces * 20 > static_cast<std::int64_t>(d.steps))
      d.findings.push_back(retrace_finding(d, lost / whole));
  }
  if (known(d.padding) > 0.3) {
    RunFinding f{.cause = "padding", .share = d.padding};
    f.what =
        fmt::format("{:.0f} % of all frames are padding, and are computed like the others.", d.padding * 100);
    f.advice = "More shapes, so that each batch fits its clips better:";
    if (d.has_feed) f.lines = "shapes: 8";
    d.findings.push_back(std::move(f));
  }
  if (d.gpu_busy < 0.7 && d.au > 0.9) {
    RunFinding f{.cause = "device", .share = 1 - d.gpu_busy};
    f.what =
        fmt::format("The GPU computes {:.0f} % of the time although its data is there.", d.gpu_busy * 100);
    f.advice = "The step is too small for it, or waits for the host: larger batches, planned steps.";
    f.lines = d.has_feed ? "plan_steps: true\nbatch_size: auto"
                         : "step = torch.compile(step, mode=\"reduce-overhead\")";
    d.findings.push_back(std::move(f));
  }
  std::ranges::stable_sort(d.findings, std::greater(), &RunFinding::share);
}

}  // namespace

std::string_view band_name(Band band) {
  return band == Band::good ? "good" : band == Band::moderate ? "moderate" : "slow";
}

Band band_of(double batch_ms, double step_ms) {
  if (step_ms <= 0) return batch_ms < 100 ? Band::good : batch_ms <= 500 ? Band::moderate : Band::slow;
  const double wait = (batch_ms - step_ms) / step_ms;
  return wait <= 0.05 ? Band::good : wait <= 0.5 ? Band::moderate : Band::slow;
}

RunDiagnosis diagnose(const RunRecords& run) {
  RunDiagnosis d;
  if (!run.steps.empty()) d.cold_ms = known(run.steps.front().step_ms) + known(run.steps.front().data_ms);
  for (const StepRecord& s : run.steps) d.retraces = std::max(d.retraces, s.retraces);
  std::map<std::string, std::int64_t> causes;
  for (const EventRecord& e : run.events)
    if (e.event == "retrace" && !e.cause.empty()) ++causes[e.cause];
  d.retrace_causes.assign(causes.begin(), causes.end());
  std::ranges::stable_sort(d.retrace_causes, std::greater(), &std::pair<std::string, std::int64_t>::second);
  add_stages(d, run);
  add_machine(d, run);
  const std::vector<Step> steps = warm_steps(run);
  d.steps = steps.size();
  if (steps.empty()) return d;

  std::vector<double> batch, step, data, padding;
  for (const Step& s : steps) {
    batch.push_back(s.batch());
    step.push_back(s.step);
    data.push_back(s.data);
    padding.push_back(s.record->padding);
  }
  d.batch = summarise(batch);
  d.step = summarise(step);
  d.data = summarise(data);
  d.padding = mean_known(padding);
  if (d.step.mean > 0) d.au = d.step.mean / d.batch.mean;
  const double whole = sum_of(steps, [](const Step& s) { return s.whole(); });
  d.outside = whole > 0 ? sum_of(steps, [](const Step& s) { return s.outside; }) / whole : 0;
  d.band = band_of(d.batch.mean, d.step.mean);
  d.slow = slow_steps(run, steps);
  d.swings = d.batch.cv > 0.5 || d.slow.oscillation;
  add_rates(d, steps);
  add_findings(d, run, steps);
  return d;
}

}  // namespace penstock
