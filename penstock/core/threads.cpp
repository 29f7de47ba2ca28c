#include "penstock/core/threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock {
namespace {

/// CPUs that the cgroup's quota amounts to; a large number where there is none.
double cgroup_cpus() {
  std::string quota;
  double period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> quota >> period && quota != "max" && period > 0)
    return std::stod(quota) / period;
  double quota_us = 0;
  if (std::ifstream v1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); v1 >> quota_us && quota_us > 0)
    if (std::ifstream p("/sys/fs/cgroup/cpu/cpu.cfs_period_us"); p >> period && period > 0)
      return quota_us / period;
  return 1e9;
}

}  // namespace

int available_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int allowed = sched_getaffinity(0, sizeof mask, &mask) == 0
                          ? CPU_COUNT(&mask)
                          : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(allowed, static_cast<int>(std::ceil(std::min(cgroup_cpus(), 4096.0)))));
}

void give_way() {
  constexpr int wanted = 15;
  const int nice = std::max(wanted, getpriority(PRIO_PROCESS, 0));
  // docs/decisions/0005-workers-give-way.md has the measurements. The kernel's own structure is not in every
  // libc; kernels before 6.12 ignore the slice.
  struct Attributes {
    std::uint32_t size = sizeof(Attributes), policy = SCHED_BATCH;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t slice_ns = 100'000, deadline = 0, period = 0;
  } attributes{.nice = nice};
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) setpriority(PRIO_PROCESS, 0, nice);
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
