#include "penstock/monitor/command_diagnosis.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

namespace penstock {
namespace {

constexpr std::size_t columns = 58;      // of the timeline
constexpr std::size_t few_samples = 25;  // too few to judge
// Less than this of the training's time is nobody's bottleneck.
constexpr double much_input = 0.2, much_sync = 0.25, much_compile = 0.2, much_python = 0.5;
constexpr double busy_device = 0.85, idle_gpu = 0.6;

std::size_t index(Doing doing) { return static_cast<std::size_t>(doing); }

bool trains(const StackSample& s) { return s.doing == Doing::compute || s.doing == Doing::sync; }

/// The process that trains: the one that was seen most often in a step.
const StackLog* trainer_of(const std::vector<StackLog>& logs, std::size_t& trainers) {
  const StackLog* best = nullptr;
  std::int64_t most = -1;
  for (const StackLog& log : logs) {
    if (log.is_worker() || log.samples.empty()) continue;
    const std::int64_t steps = std::ranges::count_if(log.samples, trains);
    if (steps > 0) ++trainers;
    if (steps > most || (steps == most && log.samples.size() > best->samples.size()))
      best = &log, most = steps;
  }
  return best;
}

/// From the first step that was seen to the last. Where steps are rare since input takes all the time,
/// fetching the batches before and behind them counts too.
std::vector<StackSample> training_of(const StackLog& log) {
  const auto span = [&](auto belongs) {
    const auto first = std::ranges::find_if(log.samples, belongs);
    const auto last =
        std::ranges::find_if(log.samples.rbegin(), log.samples.rend(),
                             [&](const StackSample& s) { return belongs(s) || s.doing == Doing::compile; });
    return first < last.base() ? std::vector<StackSample>(first, last.base()) : std::vector<StackSample>();
  };
  std::vector<StackSample> training = span(trains);
  if (!training.empty() && training.size() < few_samples)
    training = span([](const StackSample& s) { return trains(s) || s.doing == Doing::input; });
  return training;
}

/// The mean over the samples from `from` on until `to`, weighted by their length; what is not known is left
/// out.
double mean_of(const std::vector<CommandSample>& samples, double from, double to,
               double CommandSample::*field) {
  double sum = 0, seconds = 0;
  for (const CommandSample& s : samples)
    if (s.t > from && s.t <= to && !std::isnan(s.*field)) sum += s.*field * s.seconds, seconds += s.seconds;
  return seconds > 0 ? sum / seconds : not_logged;
}

/// The busiest threads between `from` and `to`.
std::vector<ThreadGroup> busiest(const std::vector<CommandSample>& samples, double from, double to) {
  std::map<std::string, ThreadGroup> groups;
  double seconds = 0;
  for (const CommandSample& s : samples) {
    if (s.t <= from || s.t > to) continue;
    seconds += s.seconds;
    for (const ThreadGroup& group : s.groups) {
      ThreadGroup& sum = groups[group.name];
      sum.threads = std::max(sum.threads, group.threads);
      sum.cpus += group.cpus * s.seconds;
    }
  }
  std::vector<ThreadGroup> out;
  for (auto& [name, group] : groups)
    if (group.cpus / seconds >= 0.01) out.push_back({name, group.threads, group.cpus / seconds});
  std::ranges::stable_sort(out, std::greater(), &ThreadGroup::cpus);
  if (out.size() > 6) out.resize(6);
  return out;
}

void add_timeline(CommandDiagnosis& d, const StackLog& log, double end) {
  const double begin = log.start, length = std::max(1e-3, end - begin);
  d.timeline.assign(columns, {});
  std::vector<double> counts(columns, 0);
  for (const StackSample& s : log.samples) {
    const auto column = static_cast<std::size_t>(
        std::clamp((s.t - begin) / length * columns, 0.0, static_cast<double>(columns - 1)));
    d.timeline[column][index(s.doing)] += 1;
    counts[column] += 1;
  }
  for (std::size_t c = 0; c < columns; ++c)
    for (double& share : d.timeline[c])
      if (counts[c] > 0) share /= counts[c];
}

void add_lines(CommandDiagnosis& d, const StackLog& log, const std::vector<StackSample>& training) {
  std::map<std::tuple<std::string, int, Doing>, HotLine> lines;
  for (const StackSample& s : training) {
    const StackFrame* frame = log.users_frame(s.stack);
    if (!frame) continue;
    HotLine& line = lines[{frame->file, frame->line, s.doing}];
    line.file = frame->file, line.line = frame->line, line.text = frame->text, line.doing = s.doing;
    line.share += 1 / static_cast<double>(training.size());
  }
  for (auto& [key, line] : lines) d.lines.push_back(std::move(line));
  std::ranges::stable_sort(d.lines, std::greater(), &HotLine::share);
  if (d.lines.size() > 8) d.lines.resize(8);
}

/// Time that the samples stand for: up to the next one, but no longer than a few of their intervals.
void add_shares(CommandDiagnosis& d, const StackLog& log, const std::vector<StackSample>& training) {
  const double begin = training.front().t, half = begin + d.training_s / 2;
  double late = 0, late_compile = 0, asked = 0, beside = 0;
  const double each = 1 / static_cast<double>(training.size());
  for (const StackSample& s : training) {
    d.shares[index(s.doing)] += each;
    late += s.t >= half;
    late_compile += s.t >= half && s.doing == Doing::compile;
    asked += s.doing == Doing::compute;
    beside += s.doing == Doing::compute && s.input_beside;
  }
  d.late_compile = late > 0 ? late_compile / late : 0;
  bool stepped = true;  // since it last compiled
  for (const StackSample& s : log.samples) {
    d.compiles += stepped && s.doing == Doing::compile;
    stepped = s.doing == Doing::compile ? false : stepped || trains(s);
  }
  d.input_beside = asked > 0 ? std::min(1.0, 5 * beside / asked) : 0;  // every fifth sample looks
  for (std::size_t i = 1; i < log.samples.size(); ++i)
    if (log.samples[i].doing == Doing::compile && log.samples[i].t < half)
      d.first_compile_s += log.samples[i].t - log.samples[i - 1].t;
}

Bound judged(const CommandDiagnosis& d) {
  const auto share = [&](Doing doing) { return d.shares[index(doing)]; };
  if (d.late_compile >= much_compile) return d.compiles >= 3 ? Bound::compile : Bound::unknown;
  // Whatever the main thread does beside it, a device that never idles is all that one can want.
  if (d.device_busy >= busy_device) return Bound::healthy;
  const std::pair<Bound, double> excess[] = {{Bound::input, share(Doing::input) / much_input},
                                             {Bound::sync, share(Doing::sync) / much_sync},
                                             {Bound::python, share(Doing::python) / much_python}};
  const auto most = std::ranges::max_element(excess, {}, &std::pair<Bound, double>::second);
  if (most->second >= 1) return most->first;
  if (d.input_beside >= 0.8) return Bound::input;
  if (d.gpu_busy < idle_gpu) return Bound::launch;
  return Bound::healthy;
}

}  // namespace

CommandDiagnosis diagnose(const std::vector<StackLog>& logs, const std::vector<CommandSample>& samples) {
  CommandDiagnosis d;
  for (const CommandSample& s : samples) {
    d.seconds += s.seconds;
    d.processes = std::max(d.processes, s.processes);
    d.threads = std::max(d.threads, s.threads);
  }
  double from = samples.empty() ? 0 : samples.front().t - 1, to = samples.empty() ? 0 : samples.back().t;
  const StackLog* log = trainer_of(logs, d.trainers);
  std::vector<StackSample> training;
  if (!log) {
    d.why = "no Python process of it could be looked into";
  } else {
    d.process = log->process;
    training = training_of(*log);
    if (training.size() < few_samples)
      d.why = "it trained for too short a time, or with no framework that is known";
    if (!training.empty()) {
      from = training.front().t, to = training.back().t;
      d.training_s = to - from;
      d.start_s = from - log->start;
      d.samples = training.size();
      d.main_cpu = (training.back().cpu - training.front().cpu) / std::max(1e-3, d.training_s);
      add_shares(d, *log, training);
      add_lines(d, *log, training);
    }
    add_timeline(d, *log, std::max(to, log->samples.back().t));
  }
  const auto mean = [&](double CommandSample::*field) {
    const double value = mean_of(samples, from, to, field);
    return std::isnan(value) ? 0 : value;
  };
  d.cpus = mean(&CommandSample::cpus), d.machine_cpu = mean(&CommandSample::machine_cpu);
  d.disk_read = mean(&CommandSample::disk_read), d.faults_major = mean(&CommandSample::faults_major);
  d.groups = busiest(samples, from, to);
  // In the second half: what was compiled in the first does not count as idle.
  d.gpu_busy = mean_of(samples, (from + to) / 2, to, &CommandSample::gpu);
  d.device_busy = std::isnan(d.gpu_busy)
                      ? mean_of(samples, (from + to) / 2, to, &CommandSample::device_threads)
                      : d.gpu_busy;
  if (d.why.empty()) d.bound = judged(d);
  if (d.bound == Bound::unknown && d.why.empty())
    d.why = "it mostly compiled, for the first time; let it run longer";
  return d;
}

}  // namespace penstock
