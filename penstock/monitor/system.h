// What the machine and a tree of processes are doing, from /proc: cheap enough to ask ten times a second.
//
//   SystemSampler machine;
//   ProcessTree training(pid);
//   for (;; sleep()) { auto now = machine.sample(); auto its = training.sample(); cpus_of_others(now, its); }
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/monitor/proc_file.h"

namespace penstock {

using SampleClock = std::chrono::steady_clock;

/// Where the kernel's files lie; tests have trees of their own.
struct SystemRoots {
  std::filesystem::path proc = "/proc", sys = "/sys";
};

struct MemorySample {  ///< bytes
  std::uint64_t total = 0, available = 0, used = 0;
  std::uint64_t page_cache = 0;  ///< files that are held in memory, and given up when it is needed
};

struct DiskSample {
  double read = 0, write = 0;  ///< bytes/s of all physical disks
  double busy = 0;             ///< 0..1: share of the time in which the busiest disk had something to do
};

/// Rates are of the time since the sample before; the first has none, and all of them are 0.
struct SystemSample {
  double seconds = 0;         ///< since the sample before
  double busy = 0;            ///< 0..1, the mean of `cores`
  std::vector<double> cores;  ///< 0..1 of each CPU that this process may run on, in their order
  double steal = 0;           ///< 0..1: share of their time that the hypervisor gave to other machines
  double io_wait = 0;         ///< 0..1: share in which they were idle while somebody waited for a disk
  double available_cpus = 0;  ///< how many CPUs this process may use: fewer than `cores` under a quota
  MemorySample memory;
  DiskSample disk;
  double faults_major = 0, faults_minor = 0;  ///< page faults/s: from storage, and of memory alone
};

/// One thread.
class SystemSampler {
 public:
  explicit SystemSampler(SystemRoots roots = {});
  SystemSample sample(SampleClock::time_point now = SampleClock::now());

 private:
  struct Core {
    std::uint64_t busy = 0, idle = 0, io_wait = 0, steal = 0;  // ticks
  };
  struct Disk {
    bool physical = false;
    std::uint64_t read = 0, written = 0, busy_ms = 0;  // sectors of 512 bytes
  };
  void read_cores(SystemSample& sample);
  void read_memory(SystemSample& sample);
  void read_disks(SystemSample& sample);
  void read_faults(SystemSample& sample);

  SystemRoots roots_;
  std::string buffer_;
  ProcFile stat_, memory_, disks_, faults_;
  std::map<int, Core> cores_;  // those that we may run on
  std::map<std::string, Disk, std::less<>> disk_;
  std::uint64_t major_ = 0, minor_ = 0;
  std::optional<SampleClock::time_point> last_;
  double available_ = 0;
};

struct ThreadSample {
  int id = 0;
  std::string name;
  double cpu = 0;      ///< 0..1: share of the time on a CPU
  double waiting = 0;  ///< 0..1: share of the time ready to run, but without a CPU
};

struct ProcessSample {
  int id = 0, parent = 0;
  std::string name;
  char state = '?';            ///< of its main thread: R runs, S sleeps, D waits for storage, Z has ended
  double cpu = 0;              ///< CPUs, children that have ended included
  std::uint64_t resident = 0;  ///< bytes
  double faults_major = 0;     ///< per second
  std::optional<double> read,
      read_cached;  ///< bytes/s from storage, and by read() at all; not when we may not know
  std::vector<ThreadSample> threads;  ///< the main thread first
};

struct TreeSample {
  double seconds = 0;                       ///< since the sample before
  double cpu = 0;                           ///< CPUs that all of them used
  double cpu_seconds = 0;                   ///< since the first sample
  double waiting = 0;                       ///< threads, on average, that were ready to run but had no CPU
  double faults_major = 0;                  ///< per second
  std::optional<double> read, read_cached;  ///< bytes/s
  std::uint64_t resident = 0;               ///< bytes; what they share counts for each
  std::vector<ProcessSample> processes;     ///< the root first; none when it has gone
};

/// A process and all that it started. One thread.
///
/// Children are looked for once a second: what lives for less is in the times of who waited for it.
class ProcessTree {
 public:
  explicit ProcessTree(int root, SystemRoots roots = {});
  ~ProcessTree();
  TreeSample sample(SampleClock::time_point now = SampleClock::now());

 private:
  struct Thread;
  struct Process;
  [[nodiscard]] std::filesystem::path task_folder(int process, int thread = 0) const;
  void find_children();
  void find_threads(Process& process);
  bool read(Process& process, TreeSample& tree);
  void read_threads(Process& process, ProcessSample& sample, double seconds);

  int root_;
  SystemRoots roots_;
  std::string buffer_;
  std::vector<Process> processes_;
  std::size_t kept_open_ = 0;  // threads whose file is
  std::optional<SampleClock::time_point> last_, searched_;
  double last_cpu_ = 0, cpu_seconds_ = 0;
};

/// CPUs that were busy with none of `own`: with processes beside it, or the kernel's own work. Of the CPUs
/// that this process may run on.
double cpus_of_others(const SystemSample& machine, const TreeSample& own);

}  // namespace penstock
