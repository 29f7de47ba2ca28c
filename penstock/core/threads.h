// How many CPUs there are for us, and a loop over all of them.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <istream>
#include <mutex>

#include "penstock/core/file.h"

namespace penstock {

/// CPUs this process may really use: the affinity mask, cut by the cgroup's quota. At least 1.
int available_cpus();

/// The CPUs that cgroup quotas leave to a process: the least of its own groups' and their parents'. `root` is
/// where cgroups are mounted, `memberships` what /proc/PID/cgroup says. A large number without any quota.
double cgroup_cpus(const std::filesystem::path& root, std::istream& memberships);

/// What give_way() makes of a thread; no process can have less.
inline constexpr int lowest_nice = 19;
/// From here on this thread gives way to others as soon as they wake up, and takes no CPU from one that
/// runs when it wakes up itself (SCHED_BATCH). For work that has time, beside a thread that has none.
/// Does nothing where the system refuses. docs/decisions/0005 has the measurements.
void give_way();

/// What a thread has spent so far, in seconds.
struct CpuTime {
  double running = 0;  ///< on a CPU
  double ready = 0;    ///< waiting for one; 0 where the kernel does not say
};

/// How often the calling thread has slept, waiting for something, so far.
long times_slept();

/// One thread's CPU time, read by another.
class CpuMeter {
 public:
  /// From here on it is the calling thread's.
  void attach();
  /// One reading thread. Zeros before attach(), and where the kernel keeps no such figures.
  CpuTime read();

 private:
  std::atomic<int> thread_{0};
  int opened_ = 0;  // the thread that figures_ is of
  File figures_;
};

/// Called now and then on a thread that waits for long; may throw, which ends the wait and nothing else.
using Poll = std::function<void()>;

/// `changed` wakes it to look whether it is `done`; meanwhile it calls `poll` (where there is one) without
/// the lock.
template <typename Done>
void wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const Poll& poll,
                const Done& done) {
  if (!poll) return changed.wait(lock, done);
  while (!changed.wait_for(lock, std::chrono::milliseconds(50), done)) {
    lock.unlock();
    poll();
    lock.lock();
  }
}

/// Calls body(i) for every i in [0, n) from up to `threads` threads, in no particular order, and returns when
/// all are done. The first exception ends the loop and is thrown again here.
void parallel_for(std::size_t n, int threads, const std::function<void(std::size_t)>& body);

}  // namespace penstock
