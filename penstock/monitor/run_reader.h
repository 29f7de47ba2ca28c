// What a run's log says, as plain records: the other end of run_log.h, for whoever shows or judges a run.
//
//   RunRecords run = read_run("runs/first");
//
//   RunReader reader("runs/first");                 // of a run that goes on
//   for (;;) { if (reader.read_on()) show(reader.records()); ... }
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/core/file.h"
#include "penstock/core/types.h"

namespace penstock {

/// A number that a line does not have; old logs have fewer.
inline constexpr double not_logged = std::numeric_limits<double>::quiet_NaN();

/// One update of a trainer, or one batch of `bench`.
struct StepRecord {
  double t = 0;  ///< seconds since the epoch, as in every record: when the line was written
  std::int64_t step = 0, epoch = 0;
  double loss = not_logged, learning_rate = not_logged, grad_norm = not_logged;
  double step_ms = not_logged;  ///< computed
  double data_ms = not_logged;  ///< waited for data
  double au = not_logged, frames_per_s = not_logged, padding = not_logged;
  std::int64_t retraces = 0;  ///< so far
  Shape shape;                ///< of its last batch; no rows: not logged
  double ring = not_logged;   ///< batches that were ready when it asked
  bool skipped = false;       ///< not finite, so nothing was changed
};

struct SkippedRecord {
  std::string id, reason;
  std::int64_t times = 0;
};

/// What the feed did since the record before.
struct FeedRecord {
  double t = 0;
  std::int64_t samples = 0;
  double samples_per_second = not_logged;
  std::vector<std::pair<std::string, double>> stages;  ///< in the order of a sample's way; us a sample
  int workers = 0, depth = 0;
  double ring_level = not_logged;
  std::int64_t hits = 0, misses = 0, recomputed = 0;
  std::uint64_t bytes_read = 0;
  std::int64_t skipped = 0;                    ///< utterances so far
  std::vector<SkippedRecord> skipped_samples;  ///< at the end of a process
};

/// A trainer's sums over its process so far.
struct SummaryRecord {
  double t = 0;
  std::int64_t step = 0, updates = 0, retraces = 0, shapes_planned = 0;
  double compute_s = not_logged, data_s = not_logged, elapsed_s = not_logged;
  double au = not_logged, padding = not_logged, frames_per_s = not_logged;
  std::string limit;  ///< "the step", or "the feed" with a stage
  int workers = 0;
  std::vector<std::pair<std::string, double>> stages;  ///< shares of the feed's work
};

struct TuneRecord {
  double t = 0;
  std::int64_t epoch = 0, step = 0;  ///< a batch of the epoch
  int workers = 0, depth = 0;        ///< from here on
  std::string reason;
};

struct GpuRecord {
  int index = 0;
  std::string name;
  double utilisation = not_logged;  ///< 0..1, as all shares
  double memory_used = not_logged, memory_total = not_logged, power_w = not_logged, clock_mhz = not_logged;
  double pcie_rx = not_logged, pcie_tx = not_logged;  ///< bytes a second
};

/// A sample of the machine. Bytes, and bytes a second.
struct SystemRecord {
  double t = 0;
  std::vector<GpuRecord> gpus;
  double cpu_busy = not_logged;
  std::vector<double> cores;
  double memory_total = not_logged, memory_available = not_logged, memory_used = not_logged;
  double page_cache = not_logged;
  double disk_read = not_logged, disk_write = not_logged;
  double major_faults = not_logged;  ///< a second
};

struct EventRecord {
  double t = 0;
  std::string event;  ///< start, resume, epoch, validation, checkpoint, retrace, not_finite, ...
  std::int64_t step = -1, epoch = -1;  ///< -1: it says nothing of one
  double loss = not_logged, seconds = not_logged;
  Shape shape;                          ///< of a retrace
  std::string cause;                    ///< of a retrace
  std::vector<std::string> utterances;  ///< ids
  std::string text;                     ///< the whole line, for what only some events have
};

struct DamagedLine {
  std::size_t number = 0;  ///< from 1
  std::string reason;
};

/// All records of a run, each kind in the order of its lines.
struct RunRecords {
  std::vector<StepRecord> steps;
  std::vector<FeedRecord> feed;
  std::vector<SummaryRecord> summaries;
  std::vector<TuneRecord> tune;
  std::vector<SystemRecord> system;
  std::vector<EventRecord> events;
  std::size_t lines = 0;  ///< whole ones, the damaged included
  std::size_t damaged_lines = 0;
  std::vector<DamagedLine> first_damaged;  ///< the first ten
};

/// Reads RUN/log.jsonl while somebody may be writing it. One thread.
///
/// The beginning of a last line is left until the rest is there. A line that is no JSON object, or has a
/// field of another type, is counted and named, and the next one is read. Kinds that nobody knows are left
/// out.
class RunReader {
 public:
  /// Throws Error when there is no such folder or it has no log.
  explicit RunReader(const std::filesystem::path& run);

  /// Takes in what has been written since the last call. Where the log was cut, as a run does that goes on
  /// from a checkpoint, all is read again. True when records() has changed. Throws Error when it cannot be
  /// read.
  bool read_on();
  [[nodiscard]] const RunRecords& records() const { return records_; }

 private:
  [[nodiscard]] bool was_cut(const File& file) const;
  void take_lines(std::string_view text);
  void take(std::string_view line);

  std::filesystem::path path_;
  RunRecords records_;
  std::int64_t offset_ = 0;  // behind the last whole line that was read
  std::string before_;       // the bytes in front of it: a log that was cut and has grown again has others
};

/// All that is there now. Throws Error.
RunRecords read_run(const std::filesystem::path& run);

}  // namespace penstock
