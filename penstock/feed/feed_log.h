// What a feed does, as lines of a run's log.
#pragma once
#include <chrono>

#include "penstock/feed/feed.h"
#include "penstock/monitor/run_log.h"

namespace penstock {

/// One decision of the autotuner, as a `tune` line.
void log_tune(RunLog& log, const TuneChange& change);

/// A `feed` line about every two seconds, each with the figures since the one before. The consumer's thread.
class FeedLog {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds every{2};

  /// Counts from here on. Both must outlive it.
  FeedLog(RunLog& log, const Feed& feed);

  /// After a batch, at `now`: writes a line when it is time. Costs nothing otherwise.
  void after_batch(Clock::time_point now) {
    if (now - last_ >= every) write(now, false);
  }
  /// The last line, which names the samples that were skipped. Throws Error as RunLog does.
  void finish() { write(Clock::now(), true); }

 private:
  void write(Clock::time_point now, bool last);

  RunLog& log_;
  const Feed& feed_;
  Clock::time_point last_;
  FeedStats before_;
};

}  // namespace penstock
