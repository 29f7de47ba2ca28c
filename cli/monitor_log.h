// Samples in a file: CSV or JSON lines.
#pragma once
#include <filesystem>
#include <string>

#include "cli/monitor_view.h"
#include "penstock/core/file.h"

namespace penstock::cli {

/// Appends a line to `.csv` or `.jsonl`, each in one write: who is killed leaves whole lines.
class MonitorLog {
 public:
  /// `first` says which GPUs there are. Throws Error for another ending, for a file that cannot be written
  /// and for CSV with other columns.
  MonitorLog(const std::filesystem::path& path, const Moment& first);
  /// Throws Error when it cannot be written.
  void add(const Moment& moment, double seconds_since_epoch);

 private:
  void write(const std::string& line);

  std::filesystem::path path_;
  bool csv_;
  std::vector<int> gpus_;  // with columns of their own
  std::size_t cores_ = 0;
  File file_;
};

}  // namespace penstock::cli
