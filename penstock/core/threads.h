// How many CPUs there are for us, and a loop over all of them.
#pragma once
#include <cstddef>
#include <functional>

namespace penstock {

/// CPUs this process may really use: the affinity mask, cut by the cgroup's quota. At least 1.
int available_cpus();

/// From here on this thread gives way to others as soon as they wake up, and preempts none when it does:
/// batch scheduling, nice 15, short time slices. For work that has time, beside a thread that has none. Does
/// nothing where the system refuses.
void give_way();

/// Calls body(i) for every i in [0, n) from up to `threads` threads, in no particular order, and returns when
/// all are done. The first exception ends the loop and is thrown again here.
void parallel_for(std::size_t n, int threads, const std::function<void(std::size_t)>& body);

}  // namespace penstock
