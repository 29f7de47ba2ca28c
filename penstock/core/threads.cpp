#include "penstock/core/threads.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock {
namespace {

constexpr double no_limit = 1e9;

/// CPUs that the quota of one cgroup amounts to, given its folder (v2, or v1's cpu controller).
double quota_of(const std::filesystem::path& group) {
  std::string quota;
  double period = 0;
  if (std::ifstream v2(group / "cpu.max"); v2 >> quota >> period)
    return quota == "max" || period <= 0 ? no_limit : std::stod(quota) / period;
  double quota_us = 0;
  if (std::ifstream v1(group / "cpu.cfs_quota_us"); v1 >> quota_us && quota_us > 0)
    if (std::ifstream p(group / "cpu.cfs_period_us"); p >> period && period > 0) return quota_us / period;
  return no_limit;
}

}  // namespace

double cgroup_cpus(const std::filesystem::path& root, std::istream& memberships) {
  double least = no_limit;
  for (std::string line; std::getline(memberships, line);) {
    // "0::/a/b" in v2, "4:cpu,cpuacct:/a/b" in v1. Every group on the way up may have a quota.
    const std::size_t names = line.find(':') + 1, path = line.find(':', names) + 1;
    if (names == 0 || path == 0) continue;
    const std::string controllers = "," + line.substr(names, path - names - 1) + ",";
    if (controllers != ",," && controllers.find(",cpu,") == std::string::npos) continue;
    const std::filesystem::path mount = controllers == ",," ? root : root / "cpu";
    for (std::filesystem::path group = line.substr(path);; group = group.parent_path()) {
      least = std::min(least, quota_of(mount / group.relative_path()));
      if (!group.has_relative_path()) break;
    }
  }
  return least;
}

namespace {

double own_cgroup_cpus() {
  std::ifstream memberships("/proc/self/cgroup");
  return cgroup_cpus("/sys/fs/cgroup", memberships);
}

}  // namespace

int available_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int allowed = sched_getaffinity(0, sizeof mask, &mask) == 0
                          ? CPU_COUNT(&mask)
                          : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(allowed, static_cast<int>(std::ceil(std::min(own_cgroup_cpus(), 4096.0)))));
}

void give_way() {
  // A thread of this policy never preempts another by waking up: workers that a consumer wakes did, inside
  // next().
  const sched_param none{};
  sched_setscheduler(0, SCHED_BATCH, &none);
  setpriority(PRIO_PROCESS, 0, lowest_nice);  // of this thread: 0 is the caller, not its process
}

long times_slept() {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}

void CpuMeter::attach() { thread_.store(static_cast<int>(syscall(SYS_gettid)), std::memory_order_release); }

CpuTime CpuMeter::read() {
  const int thread = thread_.load(std::memory_order_acquire);
  if (thread == 0) return {};
  try {
    if (std::exchange(opened_, thread) != thread)
      figures_ = File::open(("/proc/self/task/" + std::to_string(thread) + "/schedstat").c_str());
    std::array<char, 96> text{};
    figures_.read_at(0, std::as_writable_bytes(std::span(text).first(text.size() - 1)));
    unsigned long long running = 0, ready = 0;
    if (std::sscanf(text.data(), "%llu %llu", &running, &ready) != 2) return {};
    return {.running = static_cast<double>(running) * 1e-9, .ready = static_cast<double>(ready) * 1e-9};
  } catch (const std::system_error&) {
    return {};
  }
}

void parallel_for(std::size_t n, int threads, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    // relaxed: the index is all that the threads share here; join() orders everything that body wrote.
    for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next.store(n, std::memory_order_relaxed);
      }
    }
  };
  {
    std::vector<std::jthread> others;
    const auto wanted = std::min<std::size_t>(n, static_cast<std::size_t>(std::max(1, threads)));
    for (std::size_t t = 1; t < wanted; ++t) others.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace penstock
