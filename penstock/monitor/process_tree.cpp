#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>
#include <utility>

#include <dirent.h>
#include <unistd.h>

#include "penstock/monitor/system.h"

namespace penstock {
namespace {

constexpr std::size_t most_open = 256;  // files of threads: a process has 1,024 descriptors, and not for us
constexpr std::chrono::seconds between_searches{1};

double ticks_per_second() {
  static const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return ticks;
}

double cpus() {
  static const auto count = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  return count;
}

/// The numbers that name entries of a folder, in their order.
std::vector<int> numbers_in(const std::filesystem::path& folder) {
  std::vector<int> numbers;
  DIR* open = ::opendir(folder.c_str());
  if (open == nullptr) return numbers;
  while (const dirent* entry = ::readdir(open)) {  // NOLINT(concurrency-mt-unsafe): a stream of our own
    const std::string_view name = entry->d_name;
    int number = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), number).ec == std::errc{})
      numbers.push_back(number);
  }
  ::closedir(open);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string name_in(const std::filesystem::path& folder, std::string& buffer) {
  auto text = ProcFile(folder / "comm", false).read(buffer).value_or("");
  return std::string(next_line(text));
}

double rate(double now, double& before, double seconds) {
  const double last = std::exchange(before, now);
  return seconds > 0 && now > last ? (now - last) / seconds : 0;
}

}  // namespace

struct ProcessTree::Thread {
  int id = 0;
  std::string name;
  int named = 0;  // times; a new thread is often given its name a little later
  ProcFile schedule;
  bool kept = false, seen = false;
  double ran = 0, waited = 0;  // seconds
};

struct ProcessTree::Process {
  int id = 0;
  ProcFile stat, io;
  std::vector<Thread> threads;
  std::int64_t thread_count = 0;  // that the kernel said when they were listed
  bool seen = false;
  double cpu = 0, faults = 0, read = 0, read_cached = 0;
};

ProcessTree::ProcessTree(int root, SystemRoots roots) : root_(root), roots_(std::move(roots)) {}
ProcessTree::~ProcessTree() = default;

std::filesystem::path ProcessTree::task_folder(int process, int thread) const {
  auto folder = roots_.proc / std::to_string(process) / "task";
  return thread > 0 ? folder / std::to_string(thread) : folder;
}

/// Keeps who is known, so that its rates go on.
void ProcessTree::find_children() {
  std::vector<int> ids = {root_};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (const int thread : numbers_in(task_folder(ids[i]))) {
      auto text = ProcFile(task_folder(ids[i], thread) / "children", false).read(buffer_).value_or("");
      while (const auto child = static_cast<int>(next_number(text)))
        if (std::find(ids.begin(), ids.end(), child) == ids.end()) ids.push_back(child);
    }
  }
  std::vector<Process> found;
  for (const int id : ids) {
    const auto known =
        std::find_if(processes_.begin(), processes_.end(), [&](const Process& p) { return p.id == id; });
    if (known != processes_.end()) {
      found.push_back(std::move(*known));
      known->id = 0;
      continue;
    }
    const auto folder = roots_.proc / std::to_string(id);
    Process process;
    process.id = id;
    process.stat = ProcFile(folder / "stat");
    process.io = ProcFile(folder / "io");
    found.push_back(std::move(process));
  }
  processes_ = std::move(found);
  kept_open_ = 0;
  for (Process& process : processes_)
    for (Thread& thread : process.threads) {
      kept_open_ += thread.kept ? 1 : 0;
      if (++thread.named <= 3) thread.name = name_in(task_folder(process.id, thread.id), buffer_);
    }
}

void ProcessTree::find_threads(Process& process) {
  std::vector<Thread> found;
  for (const int id : numbers_in(task_folder(process.id))) {
    const auto known = std::find_if(process.threads.begin(), process.threads.end(),
                                    [&](const Thread& t) { return t.id == id; });
    if (known != process.threads.end()) {
      found.push_back(std::move(*known));
      continue;
    }
    const auto folder = task_folder(process.id, id);
    const bool keep = kept_open_ < most_open;
    kept_open_ += keep ? 1 : 0;
    found.push_back({.id = id,
                     .name = name_in(folder, buffer_),
                     .schedule = ProcFile(folder / "schedstat", keep),
                     .kept = keep});
  }
  process.threads = std::move(found);
}

void ProcessTree::read_threads(Process& process, ProcessSample& sample, double seconds) {
  bool gone = false;
  for (Thread& thread : process.threads) {
    auto text = thread.schedule.read(buffer_);
    if (!text) {
      gone = true;
      continue;
    }
    ThreadSample& out = sample.threads.emplace_back(ThreadSample{.id = thread.id, .name = thread.name});
    const double ran = static_cast<double>(next_number(*text)) * 1e-9;
    const double waited = static_cast<double>(next_number(*text)) * 1e-9;
    out.cpu = std::min(1.0, rate(ran, thread.ran, thread.seen ? seconds : 0));
    out.waiting = std::min(1.0, rate(waited, thread.waited, thread.seen ? seconds : 0));
    thread.seen = true;
  }
  if (gone) process.thread_count = 0;  // listed anew next time
}

/// False when it has gone.
bool ProcessTree::read(Process& process, TreeSample& tree) {
  const auto stat = process_stat(process.stat.read(buffer_).value_or(""));
  if (!stat) return false;
  ProcessSample sample{
      .id = process.id, .parent = stat->parent, .name = std::string(stat->name), .state = stat->state};
  // Who has ended and was waited for is in the times of who waited, so that the tree's sum never jumps.
  const double cpu = static_cast<double>(stat->ticks + stat->ticks_of_children) / ticks_per_second();
  const double seconds = process.seen ? tree.seconds : 0;
  sample.cpu = rate(cpu, process.cpu, seconds);
  sample.faults_major = rate(static_cast<double>(stat->faults_major), process.faults, seconds);
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  sample.resident = static_cast<std::uint64_t>(stat->resident_pages) * page;
  if (const auto io = process.io.read(buffer_)) {
    sample.read = rate(static_cast<double>(number_of(*io, "read_bytes")), process.read, seconds);
    sample.read_cached = rate(static_cast<double>(number_of(*io, "rchar")), process.read_cached, seconds);
  }
  if (stat->threads != process.thread_count) {
    find_threads(process);
    process.thread_count = stat->threads;
  }
  read_threads(process, sample, tree.seconds);
  process.seen = true;
  tree.processes.push_back(std::move(sample));
  return true;
}

TreeSample ProcessTree::sample(SampleClock::time_point now) {
  TreeSample tree;
  const bool first = !last_;
  if (last_) tree.seconds = std::chrono::duration<double>(now - *last_).count();
  last_ = now;
  if (!searched_ || now - *searched_ >= between_searches) {
    find_children();
    searched_ = now;
  }
  double newcomers = 0;  // what those had used before we knew them
  for (auto process = processes_.begin(); process != processes_.end();) {
    const bool known = process->seen;
    if (read(*process, tree)) {
      if (!known) newcomers += process->cpu;
      ++process;
      continue;
    }
    if (process->id == root_) {
      processes_.clear();
      return {.seconds = tree.seconds, .cpu_seconds = cpu_seconds_};
    }
    process = processes_.erase(process);
    searched_.reset();  // it may have left children behind with us
  }
  double cpu = 0;
  for (const Process& p : processes_) cpu += p.cpu;
  if (!first) cpu_seconds_ += std::max(0.0, cpu - last_cpu_);
  last_cpu_ += newcomers;
  // What a short life has used shows at its end, all at once.
  tree.cpu = std::min(rate(cpu, last_cpu_, tree.seconds), cpus());
  tree.cpu_seconds = cpu_seconds_;
  for (const ProcessSample& p : tree.processes) {
    tree.faults_major += p.faults_major;
    tree.resident += p.resident;
    if (p.read) tree.read = tree.read.value_or(0) + *p.read;
    if (p.read_cached) tree.read_cached = tree.read_cached.value_or(0) + *p.read_cached;
    for (const ThreadSample& t : p.threads) tree.waiting += t.waiting;
  }
  return tree;
}

}  // namespace penstock
