// A measurement of `bench` as lines of a run's log, so that whatever reads a training run reads it too.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "penstock/core/types.h"
#include "penstock/feed/feed_log.h"

namespace penstock::cli {

/// The consumer's thread. Lines of steps are kept and written together, since a batch may come every few
/// microseconds.
class BenchLog {
 public:
  /// Steps are numbered behind those that the run has.
  explicit BenchLog(const std::filesystem::path& run);

  /// `tune`, `feed` and `event` lines go here.
  RunLog& log() { return log_; }
  /// A measurement begins: of so many batches, after a feed whose first one took so long.
  void start(const Feed& feed, std::int64_t batches, double step_ms, double first_batch_ms);
  /// A batch that was waited for so long and came `elapsed_ms` after the one before; its step takes step_ms
  /// from here on.
  void step(const Batch& batch, double data_ms, double elapsed_ms);
  void finish();

 private:
  void flush();

  RunLog log_;
  const Feed* feed_ = nullptr;
  std::optional<FeedLog> feed_log_;
  double step_ms_ = 0;
  std::int64_t step_ = 0, epoch_ = -1;
  std::string lines_;
  FeedLog::Clock::time_point flushed_;
};

}  // namespace penstock::cli
