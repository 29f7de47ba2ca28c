#include "penstock/monitor/system.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <sched.h>

#include "penstock/core/threads.h"

namespace penstock {
namespace {

constexpr double sector = 512;

std::vector<int> allowed_cpus() {
  // Machines with more CPUs than a cpu_set_t has bits are asked in vain; then every CPU that there is counts.
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

/// What was added since `before`, which becomes `now`. Counters that went back (a disk that was changed for
/// another) have added nothing.
double added(std::uint64_t& before, std::uint64_t now) {
  const std::uint64_t last = std::exchange(before, now);
  return now > last ? static_cast<double>(now - last) : 0;
}

}  // namespace

SystemSampler::SystemSampler(SystemRoots roots)
    : roots_(std::move(roots)),
      stat_(roots_.proc / "stat"),
      memory_(roots_.proc / "meminfo"),
      disks_(roots_.proc / "diskstats"),
      faults_(roots_.proc / "vmstat"),
      available_(penstock::available_cpus()) {
  for (const int cpu : allowed_cpus()) cores_[cpu] = {};
}

SystemSample SystemSampler::sample(SampleClock::time_point now) {
  SystemSample sample;
  if (last_) sample.seconds = std::chrono::duration<double>(now - *last_).count();
  last_ = now;
  read_cores(sample);
  read_memory(sample);
  read_disks(sample);
  read_faults(sample);
  return sample;
}

void SystemSampler::read_cores(SystemSample& sample) {
  const bool any = cores_.empty();
  auto text = stat_.read(buffer_).value_or("");
  double all = 0, waited = 0, stolen = 0;
  for (std::string_view line = next_line(text); line.starts_with("cpu"); line = next_line(text)) {
    if (line.starts_with("cpu ")) continue;  // all of the machine
    const auto number = static_cast<int>(next_number(line));
    if (any) cores_[number] = {};
    const auto found = cores_.find(number);
    if (found == cores_.end()) continue;
    Core& core = found->second;
    std::uint64_t ticks[8];  // user, nice, system, idle, io wait, irq, soft irq, steal; guests are in user
    for (std::uint64_t& count : ticks) count = next_number(line);
    const double busy = added(core.busy, ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]);
    const double io_wait = added(core.io_wait, ticks[4]), steal = added(core.steal, ticks[7]);
    const double total = busy + added(core.idle, ticks[3]) + io_wait + steal;
    const bool rates = sample.seconds > 0 && total > 0;
    sample.cores.push_back(rates ? busy / total : 0);
    all += total;
    waited += io_wait;
    stolen += steal;
  }
  for (const double core : sample.cores) sample.busy += core / static_cast<double>(sample.cores.size());
  if (sample.seconds > 0 && all > 0) {
    sample.io_wait = waited / all;
    sample.steal = stolen / all;
  }
  sample.available_cpus = std::min(available_, static_cast<double>(sample.cores.size()));
}

void SystemSampler::read_memory(SystemSample& sample) {
  const auto text = memory_.read(buffer_).value_or("");
  const auto bytes = [&](std::string_view name) { return number_of(text, name) * 1024; };
  MemorySample& memory = sample.memory;
  memory.total = bytes("MemTotal");
  memory.available = bytes("MemAvailable");
  memory.used = memory.total - std::min(memory.total, memory.available);
  const std::uint64_t files = bytes("Cached") + bytes("Buffers"), shared = bytes("Shmem");
  memory.page_cache = files - std::min(files, shared);  // shared memory is counted as cached, but is no file
}

void SystemSampler::read_disks(SystemSample& sample) {
  auto text = disks_.read(buffer_).value_or("");
  double read = 0, written = 0, busy_ms = 0;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    next_number(line);
    next_number(line);
    const std::string_view name = next_word(line);
    auto found = disk_.find(name);
    if (found == disk_.end()) {
      // Partitions, and volumes that lie on other disks, would count twice. A disk alone has a device.
      std::error_code none;
      found = disk_.emplace(name, Disk{}).first;
      found->second.physical = std::filesystem::exists(roots_.sys / "block" / name / "device", none);
    }
    Disk& disk = found->second;
    if (!disk.physical) continue;
    std::uint64_t counts[10];
    for (std::uint64_t& count : counts) count = next_number(line);
    read += added(disk.read, counts[2]);
    written += added(disk.written, counts[6]);
    busy_ms = std::max(busy_ms, added(disk.busy_ms, counts[9]));
  }
  if (sample.seconds <= 0) return;
  sample.disk = {.read = read * sector / sample.seconds,
                 .write = written * sector / sample.seconds,
                 .busy = std::min(1.0, busy_ms * 1e-3 / sample.seconds)};
}

void SystemSampler::read_faults(SystemSample& sample) {
  const auto text = faults_.read(buffer_).value_or("");
  const double major = added(major_, number_of(text, "pgmajfault"));
  const double all = added(minor_, number_of(text, "pgfault"));
  if (sample.seconds <= 0) return;
  sample.faults_major = major / sample.seconds;
  sample.faults_minor = std::max(0.0, all - major) / sample.seconds;
}

double cpus_of_others(const SystemSample& machine, const TreeSample& own) {
  return std::max(0.0, machine.busy * static_cast<double>(machine.cores.size()) - own.cpu);
}

}  // namespace penstock
