// penstock monitor: GPUs, CPU, memory and disk, live; alone, beside a run, or around a command.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/child.h"
#include "cli/commands.h"
#include "cli/monitor_log.h"
#include "cli/monitor_view.h"
#include "cli/screen.h"
#include "cli/terminal.h"
#include "penstock/core/clock.h"
#include "penstock/core/error.h"
#include "penstock/monitor/system_log.h"
#include "penstock/monitor/utilisation.h"

namespace penstock::cli {
namespace {

using nlohmann::json;

struct MonitorArguments {
  std::string log_file, run;
  double duration = 0, interval = 0.1;
  bool json = false;
  std::vector<std::string> command;
};

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// As a shell would read it.
std::string shell_words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    std::string text = word;
    if (text.empty() || text.find_first_of(" \t\n'\"\\$`&|;<>()*?[]#~!{}") != std::string::npos) {
      for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4)
        text.replace(at, 1, "'\\''");
      text = fmt::format("'{}'", text);
    }
    out += (out.empty() ? "" : " ") + text;
  }
  return out;
}

/// Every so often, from the first time on.
class Every {
 public:
  explicit Every(double period) : period_(duration_of(period)) {}
  bool due(Clock::time_point now) {
    if (now < next_) return false;
    next_ = now + period_ - std::chrono::milliseconds(5);  // ticks come a little late
    return true;
  }

 private:
  Clock::duration period_;
  Clock::time_point next_{};
};

/// A run whose log is followed, and given samples of the machine where nobody else writes them.
class FollowedRun {
 public:
  explicit FollowedRun(std::filesystem::path run) : run_(std::move(run)) {}

  /// Null while there is no log yet.
  const RunRecords* read() {
    if (!reader_ && std::filesystem::exists(run_ / "log.jsonl")) reader_.emplace(run_);
    if (!reader_) return nullptr;
    reader_->read_on();
    const std::size_t others =
        reader_->records().system.size() - std::min(reader_->records().system.size(), own_);
    if (others != others_) seen_others_ = Clock::now();
    others_ = others;
    return &reader_->records();
  }
  void write(const Moment& moment) {
    if (!reader_ || (others_ > 0 && seconds(Clock::now() - seen_others_) < 5)) return;
    if (!log_) log_.emplace(run_);
    log_->add("gpu", system_json(moment.system, moment.gpus));
    ++own_;
  }

 private:
  std::filesystem::path run_;
  std::optional<RunReader> reader_;
  std::optional<RunLog> log_;
  std::size_t own_ = 0, others_ = 0;  // samples of the machine
  Clock::time_point seen_others_;
};

/// Utilisation of everything that has one, for the judgement at the end.
class History {
 public:
  void add(const Moment& m) {
    for (const GpuSample& gpu : m.gpus)
      if (gpu.utilisation) put(gpus_[gpu.index], *gpu.utilisation), names_[gpu.index] = gpu.name;
    put(machine_, m.system.busy);
    if (m.command) put(command_, std::min(1.0, m.command->cpu / std::max(1.0, m.system.available_cpus)));
  }

  struct Subject {
    std::string what;  // "GPU 0"
    std::string name;  // "NVIDIA A100"
    UtilisationJudgement judgement;
    bool judged = false;  // its verdict is the command's
  };
  [[nodiscard]] std::vector<Subject> judge(double interval) const {
    std::vector<Subject> out;
    for (const auto& [index, values] : gpus_)
      out.push_back(
          {fmt::format("GPU {}", index), names_.at(index), judge_utilisation(values, interval), true});
    const bool no_gpu = out.empty();
    if (!command_.empty())
      out.push_back({"the command's CPU", "", judge_utilisation(command_, interval), no_gpu});
    out.push_back(
        {"the machine's CPU", "", judge_utilisation(machine_, interval), no_gpu && command_.empty()});
    return out;
  }

 private:
  static constexpr std::size_t most = 36'000;  // an hour at ten a second; then the older half is left out
  static void put(std::vector<double>& values, double value) {
    if (values.size() == most) values.erase(values.begin(), values.begin() + most / 2);
    values.push_back(value);
  }
  std::map<int, std::vector<double>> gpus_;
  std::map<int, std::string> names_;
  std::vector<double> command_, machine_;
};

/// All of one watch.
class Watch {
 public:
  explicit Watch(const MonitorArguments& a)
      : a_(a),
        view_(a.command.empty() ? (a.run.empty() ? "this machine" : a.run)
                                : fmt::format("{}", fmt::join(a.command, " "))),
        out_(a.command.empty() ? STDOUT_FILENO : STDERR_FILENO),
        lines_(a.command.empty() ? std::max(1.0, a.interval) : 10.0) {
    if (!a.run.empty()) run_.emplace(a.run);
    const Moment first = sample(Clock::now());
    if (!a.log_file.empty()) log_.emplace(a.log_file, first);
    if (!a.command.empty()) {
      child_.emplace(a.command, signals_, a.json);
      tree_.emplace(child_->id());
      tree_->sample();
    }
    if (!a.json && Screen::can_show(out_))
      screen_.emplace(out_, a.command.empty() ? Screen::Part::all : Screen::Part::foot);
  }

  /// Returns the exit code.
  int go_on() {
    const auto start = Clock::now();
    auto next = start + duration_of(a_.interval);
    while (going_on(start)) {
      if (const auto signal = signals_.wait(next)) {
        take(*signal);
        continue;
      }
      tick(start);
      next = std::max(next + duration_of(a_.interval), Clock::now());
    }
    seconds_ = seconds(Clock::now() - start);
    screen_.reset();
    finish();
    if (!child_) return ended_by_ > 0 && ended_by_ != SIGINT ? 128 + ended_by_ : 0;
    while (!child_->ended())  // --duration ends the watch, not what is watched
      if (const auto signal = signals_.wait(Clock::now() + std::chrono::seconds(1))) take(*signal);
    return *child_->ended();
  }

 private:
  bool going_on(Clock::time_point start) {
    if (child_ && child_->ended()) return false;
    if (a_.duration > 0 && seconds(Clock::now() - start) >= a_.duration) return false;
    return ended_by_ == 0;
  }

  void take(const Signal& signal) {
    if (signal.number == SIGCHLD) return;  // going_on() looks
    if (signal.number == SIGWINCH) return show();
    if (child_) child_->pass(signal);
    if (signal.number == SIGTSTP) {
      if (screen_) screen_->leave();
      ::raise(SIGSTOP);
    } else if (!child_) {
      ended_by_ = signal.number;
    }
  }

  Moment sample(Clock::time_point start) {
    Moment moment;
    moment.seconds = seconds(Clock::now() - start);
    moment.system = machine_.sample();
    moment.gpus = gpus_.sample();
    if (tree_) moment.command = tree_->sample();
    for (std::string& news : gpus_.news()) say(std::move(news));
    return moment;
  }

  void tick(Clock::time_point start) {
    const Moment moment = sample(start);
    const auto now = Clock::now();
    ++samples_;
    history_.add(moment);
    view_.add(moment);
    if (moment.command) cpu_seconds_ = moment.command->cpu_seconds;
    try {
      if (log_) log_->add(moment, RunLog::now());
    } catch (const Error& e) {  // a full disk must not end what is watched
      say(e.what());
      log_.reset();
    }
    if (run_ && once_a_second_.due(now)) follow(moment);
    if (screen_ && frames_.due(now)) show();
    if (!screen_ && !a_.json && lines_.due(now)) print(view_.line());
  }

  void follow(const Moment& moment) {
    try {
      if (const RunRecords* records = run_->read()) view_.set_run(*records);
      run_->write(moment);
    } catch (const std::exception& e) {  // nor must a folder that cannot be read
      say(e.what());
      run_.reset();
    }
  }

  void show() {
    if (screen_)
      screen_->draw([&](int columns, int rows, bool styled) { return view_.frame(columns, rows, styled); });
  }

  void say(std::string news) {
    view_.say(news);
    if (!screen_ && !a_.json && samples_ > 0) print("note: " + news);
    news_.push_back(std::move(news));
  }

  void print(const std::string& text) const {
    std::FILE* file = out_ == STDOUT_FILENO ? stdout : stderr;
    fmt::print(file, "{}\n", text);
    std::fflush(file);
  }

  [[nodiscard]] std::string next_command() const {
    if (!a_.run.empty()) return "penstock diagnose --run " + a_.run;
    if (!a_.command.empty()) return "penstock diagnose -- " + shell_words(a_.command);
    return "penstock diagnose -- COMMAND";
  }

  void finish() const {
    const auto subjects =
        history_.judge(samples_ > 0 ? seconds_ / static_cast<double>(samples_) : a_.interval);
    if (a_.json)
      print_json(result(subjects));
    else
      print_text(subjects);
  }

  static bool is_well(const std::vector<History::Subject>& subjects) {
    return std::all_of(subjects.begin(), subjects.end(), [](const History::Subject& s) {
      const Pressure p = s.judgement.pressure;
      return !s.judged || p == Pressure::steady || p == Pressure::unknown;
    });
  }

  void print_text(const std::vector<History::Subject>& subjects) const {
    const bool behind_output = child_.has_value() && isatty(out_);
    print(fmt::format("{}watched for {:.1f} s, {} samples", behind_output ? "\n" : "", seconds_, samples_));
    print(fmt::format("\n{:<18} {:>6} {:>6} {:>6} {:>11} {:>8}", "utilisation", "mean", "std", "CV",
                      "under 20 %", "period"));
    for (const auto& s : subjects) {
      const UtilisationJudgement& j = s.judgement;
      print(fmt::format("{:<18} {:>4.0f} % {:>4.0f} % {:>6.2f} {:>9.0f} % {:>8}{}", s.what,
                        j.values.mean * 100, j.values.deviation * 100, j.values.cv, j.low_share * 100,
                        j.period_s > 0 ? fmt::format("{:.1f} s", j.period_s) : "none",
                        s.name.empty() ? "" : "  " + s.name));
    }
    print("");
    const auto tell = [&](const std::string& text) {
      std::string lines = wrapped(text, 80);
      lines.pop_back();
      print(lines);
    };
    for (const std::string& news : news_) tell("note: " + news);
    for (const auto& s : subjects)
      if (s.judged) tell(verdict(s.judgement, s.what));
    if (!is_well(subjects)) print(fmt::format("next: {}", next_command()));
  }

  [[nodiscard]] json result(const std::vector<History::Subject>& subjects) const {
    json rows = json::array();
    for (const auto& s : subjects) {
      const UtilisationJudgement& j = s.judgement;
      rows.push_back({{"what", s.what},
                      {"name", s.name},
                      {"mean", j.values.mean},
                      {"std", j.values.deviation},
                      {"cv", j.values.cv},
                      {"p50", j.values.p50},
                      {"p95", j.values.p95},
                      {"low", j.low},
                      {"high", j.high},
                      {"under_20_percent", j.low_share},
                      {"period_s", j.period_s},
                      {"strength", j.strength},
                      {"pressure", pressure_name(j.pressure)},
                      {"judged", s.judged},
                      {"verdict", verdict(j, s.what)}});
    }
    json out = {{"seconds", seconds_},
                {"samples", samples_},
                {"interval", a_.interval},
                {"utilisation", rows},
                {"news", news_}};
    if (!is_well(subjects)) out["next"] = next_command();
    if (child_) out["command"] = {{"words", a_.command}, {"cpu_seconds", cpu_seconds_}};
    return out;
  }

  const MonitorArguments& a_;
  Signals signals_;  // before anything that may start a thread
  MonitorView view_;
  SystemSampler machine_;
  Gpus gpus_;
  std::optional<FollowedRun> run_;
  std::optional<MonitorLog> log_;
  std::optional<Child> child_;
  std::optional<ProcessTree> tree_;
  int out_;
  std::optional<Screen> screen_;
  Every once_a_second_{1}, frames_{0.25}, lines_;
  History history_;
  std::vector<std::string> news_;
  double seconds_ = 0, cpu_seconds_ = 0;
  std::int64_t samples_ = 0;
  int ended_by_ = 0;
};

}  // namespace

void add_monitor(const Command& app, Action& action, const std::vector<std::string>& command) {
  auto a = std::make_shared<MonitorArguments>();
  a->command = command;
  const Command c = app.add_command("monitor", "GPUs, CPU, memory and disk, live; alone or around a command");
  c.add_option("--log-file", a->log_file, "every sample into a file, .csv or .jsonl, behind what is there")
      .type_name("FILE");
  c.add_option("--duration", a->duration, "seconds (default: until Ctrl-C, or the command's end)")
      .range(0.1, 1e9)
      .type_name("S");
  c.add_option("--interval", a->interval, "seconds between samples")
      .range(0.05, 3600.0)
      .show_default()
      .type_name("S");
  c.add_option("--run", a->run,
               "show a run's AU, ring and retraces too, and add samples of the machine to its log")
      .type_name("RUN");
  c.add_flag("--json", a->json, "only the analysis at the end, for programs");
  c.footer(
      "At its end it says how busy the GPUs were (without any: the CPU), whether they swung, and what to run "
      "next.\n"
      "Around a command it passes signals on and returns the command's exit code.\n\n"
      "Examples:\n  penstock monitor\n  penstock monitor --run runs/first\n"
      "  penstock monitor --duration 60 --log-file gpu.csv\n"
      "  penstock monitor --log-file gpu.jsonl -- python train.py --epochs 3");
  c.runs(action, [a] { return Watch(*a).go_on(); });
}

}  // namespace penstock::cli
