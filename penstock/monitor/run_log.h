// A run's log: RUN/log.jsonl, one JSON object a line. Whatever shows a run reads it from there.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "penstock/core/file.h"

namespace penstock {

/// A line of a log, its end included: {"t": seconds since the epoch, "kind": kind, ...}. `kind` is step,
/// feed, tune, gpu or event; `object` is a JSON object with the rest.
std::string log_line(double t, std::string_view kind, std::string_view object);

/// Appends lines. Each is one write at the end of the file, so threads and processes may share a log, and a
/// killed one leaves at most the beginning of its last line.
class RunLog {
 public:
  /// Makes the folder where there is none. Throws Error naming the path.
  explicit RunLog(const std::filesystem::path& run);

  /// Seconds since the epoch.
  static double now();
  /// A line of this moment. Throws Error naming the path when it cannot be written.
  void add(std::string_view kind, std::string_view object) { append(log_line(now(), kind, object)); }
  /// Lines that were made before, for who has many. Throws the same.
  void append(std::string_view lines);

 private:
  std::filesystem::path path_;
  File file_;
};

}  // namespace penstock
