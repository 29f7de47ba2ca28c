// A feed and an emulated device, watched batch by batch: what a diagnosis looks at.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/core/config.h"
#include "penstock/core/threads.h"
#include "penstock/core/types.h"
#include "penstock/feed/feed.h"

namespace penstock {

struct ObserveOptions {
  /// Of the largest shape; another takes as much less as it has fewer padded frames. 0: no device, batches
  /// are taken as fast as they come.
  double step_seconds = 0;
  double compile_seconds = 0;   ///< that the device takes for a shape which it has not seen; a closed set of
                                ///< shapes is compiled once and for all, and not counted
  std::int64_t batches = 50;    ///< that count, at least
  double least_seconds = 2;     ///< goes on that long, so that what comes now and then is seen
  double most_seconds = 20;     ///< ends then, unless it has fewer than 8 batches
  std::function<void()> check;  ///< between batches; may throw
  std::int64_t skip = 0;        ///< batches of the plan to pass over: files of earlier runs are in memory now
  FeedOptions feed;
};

/// One batch, in seconds.
struct ObservedBatch {
  double data = 0;     ///< the consumer waited until it was full
  double copy = 0;     ///< and until it had arrived on the device
  double compile = 0;  ///< the device had not seen its shape
  double step = 0;
  double elapsed = 0;                        ///< from the end of the last step to the end of this one
  std::array<double, stage_count> stages{};  ///< workers' time in the meantime
  std::int64_t rows = 0, valid_frames = 0, frames = 0;
  Shape shape;
  bool first_of_epoch = false;
};

/// A process that took CPUs meanwhile.
struct OtherProcess {
  int id = 0, nice = 0;
  std::string name;
  double cpus = 0;
};

struct Observation {
  double first_batch = 0;              ///< seconds from opening to the first batch: the cold one
  std::vector<ObservedBatch> batches;  ///< those that count: the ring has gone round before
  double seconds = 0;                  ///< of these
  std::int64_t taken = 0;              ///< batches in all
  std::int64_t epoch = 0;              ///< batches of an epoch
  double au = 0;                       ///< as StepClock has it; 0 without a device
  int workers = 0, depth = 0;          ///< at the end
  int cpus = 1;                        ///< that this process may use
  double ring_level = 0;               ///< batches that were ready when one was asked for
  CpuTime worker_cpu;                  ///< of all workers, while batches counted
  double worker_sleeps = 0;            ///< how often they slept meanwhile
  double own_cpus = 0;                 ///< that this process used, the device's emulation included
  double other_cpus = 0;               ///< that others used and the workers could have used
  double stolen_cpus = 0;              ///< that the hypervisor gave to somebody else
  OtherProcess busiest;                ///< of the others
  double disk_bytes = 0;               ///< read from storage, not from memory
  double copy_seconds = 0;             ///< that the device spent on a batch's copy
  double read_again =
      0;  ///< seconds that reading one of the last files a second time takes; 0: none was read
  CacheStats cache;
  std::int64_t skipped = 0, rejected = 0;
  std::string device;
};

/// Opens the feed as configured and takes batches from it. Throws what a feed throws.
Observation observe(const Config& config, const ObserveOptions& options);

/// AU of the same steps when batches are in memory: what no change of the input can exceed. `like` has at
/// least two batches.
double headroom(const Observation& like, const std::function<void()>& check);

}  // namespace penstock
