#include "cli/diagnose_command.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/child.h"
#include "cli/diagnose_page.h"
#include "cli/py_spy.h"
#include "cli/sampler_text.h"
#include "cli/terminal.h"
#include "penstock/core/clock.h"
#include "penstock/core/error.h"
#include "penstock/monitor/command_diagnosis.h"
#include "penstock/monitor/gpu.h"
#include "penstock/monitor/proc_file.h"
#include "penstock/monitor/run_log.h"
#include "penstock/monitor/system.h"

namespace penstock::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// A folder for the sampler and what it writes; gone in the end.
class SamplerFolder {
 public:
  SamplerFolder() {
    std::string name = (fs::temp_directory_path() / "penstock-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw Error(fmt::format("{}: cannot be made", name));
    path_ = name;
    for (const auto& [stem, text] : sampler_texts) std::ofstream(path_ / (std::string(stem) + ".py")) << text;
  }
  ~SamplerFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  SamplerFolder(const SamplerFolder&) = delete;
  SamplerFolder& operator=(const SamplerFolder&) = delete;

  /// First on PYTHONPATH: every Python process of the command starts the sampler by itself.
  [[nodiscard]] std::string python_path() const {
    const char* before = std::getenv("PYTHONPATH");
    return before && *before ? fmt::format("{}:{}", path_.string(), before) : path_.string();
  }
  [[nodiscard]] const fs::path& path() const { return path_; }
  /// In one process at least.
  [[nodiscard]] bool is_used() const {
    return std::ranges::any_of(fs::directory_iterator(path_),
                               [](const auto& entry) { return entry.path().extension() == ".samples"; });
  }
  [[nodiscard]] std::vector<StackLog> logs() const {
    std::vector<StackLog> logs;
    for (const auto& entry : fs::directory_iterator(path_))
      if (entry.path().extension() == ".samples") logs.push_back(read_stack_log(entry.path()));
    std::ranges::sort(logs, {}, &StackLog::start);
    return logs;
  }

 private:
  fs::path path_;
};

/// What can be seen from outside.
class CommandWatch {
 public:
  explicit CommandWatch(int process) : tree_(process) { sample(); }

  CommandSample sample() {
    const SystemSample machine = machine_.sample();
    const TreeSample tree = tree_.sample();
    CommandSample s{.t = RunLog::now(), .seconds = machine.seconds};
    s.cpus = tree.cpu, s.machine_cpu = machine.busy, s.faults_major = tree.faults_major;
    s.disk_read = tree.read.value_or(machine.disk.read);
    s.processes = tree.processes.size();
    ids_.clear();
    std::map<std::string, ThreadGroup> groups;
    for (const ProcessSample& p : tree.processes) {
      ids_.insert(p.id);
      s.threads += p.threads.size();
      for (const ThreadSample& t : p.threads) {
        ThreadGroup& group = groups[t.id == p.id ? t.name + " (main)" : t.name];
        ++group.threads;
        group.cpus += t.cpu;
        if (t.name.starts_with("tf_XLA"))
          s.device_threads =
              std::min(1.0, (std::isnan(s.device_threads) ? 0 : s.device_threads) + t.cpu + t.waiting);
      }
    }
    for (auto& [name, group] : groups) s.groups.push_back({name, group.threads, group.cpus});
    s.gpu = utilisation();
    return s;
  }

  /// The command's own and those that it started, when it was last looked at.
  [[nodiscard]] const std::set<int>& processes() const { return ids_; }
  /// A process that runs Python; 0: none.
  [[nodiscard]] int python() const {
    std::error_code none;
    const auto runs_python = [&](int id) {
      return fs::read_symlink(fmt::format("/proc/{}/exe", id), none)
          .filename()
          .string()
          .starts_with("python");
    };
    const auto found = std::ranges::find_if(ids_, runs_python);
    return found == ids_.end() ? 0 : *found;
  }

 private:
  /// Of the GPUs that the command uses; of all, where it is not known who uses them.
  double utilisation() {
    double sum = 0;
    int count = 0;
    for (const GpuSample& gpu : gpus_.sample()) {
      const bool its =
          !gpu.processes || gpu.processes->empty() ||
          std::ranges::any_of(*gpu.processes, [&](const GpuProcess& p) { return ids_.contains(p.id); });
      if (its && gpu.utilisation) sum += *gpu.utilisation, ++count;
    }
    return count > 0 ? sum / count : not_logged;
  }

  SystemSampler machine_;
  ProcessTree tree_;
  Gpus gpus_;
  std::set<int> ids_;
};

/// Waits until then, or until the command's end (true), and gives it the signals that come for us.
bool ends_until(Clock::time_point until, Child& child, Signals& signals) {
  while (!child.ended() && Clock::now() < until) {
    const auto signal = signals.wait(until);
    if (!signal) continue;
    child.pass(*signal);
    if (signal->number == SIGTSTP) ::raise(SIGSTOP);
  }
  return child.ended().has_value();
}

bool runs(int process) {
  std::string buffer;
  const auto stat = process_stat(ProcFile(fmt::format("/proc/{}/stat", process)).read(buffer).value_or(""));
  return stat && stat->state != 'Z' && stat->state != 'X';
}

/// Ends the command and the processes that it started as a person at a terminal would, then less kindly.
void end(Child& child, Signals& signals, const std::set<int>& processes) {
  for (const int number : {SIGINT, SIGTERM, SIGKILL}) {
    for (const int process : processes)
      if (process != child.id() && runs(process)) ::kill(process, number);
    child.pass({.number = number});
    const auto until = Clock::now() + std::chrono::seconds(5);
    ends_until(until, child, signals);
    while (std::ranges::any_of(processes, runs) && Clock::now() < until)
      if (const auto signal = signals.wait(Clock::now() + std::chrono::milliseconds(20))) child.pass(*signal);
    if (child.ended() && std::ranges::none_of(processes, runs)) return;
  }
}

/// What was seen of the command until it ended, or `duration` was over and it was ended (true). py-spy looks
/// at what the sampler is not in after more than the time that a start of Python takes.
bool watch(Child& child, Signals& signals, double duration, const SamplerFolder& folder,
           std::vector<CommandSample>& samples, std::optional<PySpy>& spy) {
  CommandWatch watch(child.id());
  const auto begun = Clock::now();
  while (!ends_until(Clock::now() + std::chrono::milliseconds(250), child, signals)) {
    samples.push_back(watch.sample());
    const std::chrono::duration<double> passed = Clock::now() - begun;
    if (!spy && passed.count() > 1.5 && !folder.is_used() && watch.python() != 0)
      spy.emplace(watch.python(), folder.path(), signals);
    if (duration <= 0 || passed.count() < duration) continue;
    end(child, signals, watch.processes());
    return true;
  }
  return false;
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// What `penstock scan` finds in the sources; null with a reason where it cannot be asked.
json scanned(const std::string& source, std::string& reason) {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  FILE* pipe = ::popen(
      fmt::format("{} scan {} --json 2>/dev/null", quoted(program.string()), quoted(source)).c_str(), "r");
  std::string text;
  char buffer[4096];
  for (std::size_t n = 0; pipe && (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    text.append(buffer, n);
  if (pipe) ::pclose(pipe);
  json result = json::parse(text, nullptr, false);
  if (result.is_object()) return result;
  reason = fmt::format("penstock scan {} did not answer; run it to see why", source);
  return {};
}

}  // namespace

int diagnose_command(const CommandArguments& a) {
  if (!a.source.empty() && !fs::exists(a.source)) throw Error(a.source + ": there is no such file or folder");
  const SamplerFolder folder;
  std::vector<CommandSample> samples;
  std::optional<Signals> signals(std::in_place);
  ::setenv("PYTHONPATH", folder.python_path().c_str(), 1);
  Child child(a.command, *signals, a.json);
  std::optional<PySpy> spy;
  const bool cut_short = watch(child, *signals, a.duration, folder, samples, spy);
  std::vector<StackLog> logs = folder.logs();
  if (spy && logs.empty()) logs.push_back(spy->finish());
  CommandDiagnosis d = diagnose(logs, samples);
  if (spy && !spy->why().empty()) d.why += "; " + spy->why();
  const int code = cut_short ? 0 : child.ended().value_or(0);
  signals.reset();  // from here on they are for us
  std::string no_scan;
  const json scan = a.source.empty() ? json() : scanned(a.source, no_scan);
  if (a.json) {
    json out = command_json(d);
    out["exit_code"] = code;
    if (!scan.is_null()) out["scan"] = scan;
    print_json(out);
  } else {
    print_command_page(d, code);
    print_scan(scan, no_scan);
  }
  return code != 0 ? code : d.found_a_problem() ? 1 : 0;
}

}  // namespace penstock::cli
