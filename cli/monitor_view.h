// What `penstock monitor` shows: rows of figures with their recent past, as wide and as high as there is
// room.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/monitor/gpu.h"
#include "penstock/monitor/run_reader.h"
#include "penstock/monitor/system.h"

namespace penstock::cli {

/// One sample of all that is watched.
struct Moment {
  double seconds = 0;  ///< since the start
  SystemSample system;
  std::vector<GpuSample> gpus;
  std::optional<TreeSample> command;
};

/// The recent past of a figure, one mark for each half second (or for each sample, where they are further
/// apart).
class Trail {
 public:
  void add(double seconds, double value);
  void push(double value) { marks_.push_back(value); }
  /// The last `width` marks as columns `height` rows high, the top row first; `full` is the highest (0: the
  /// largest of them).
  [[nodiscard]] std::vector<std::string> draw(int width, int height, double full) const;

 private:
  static constexpr double period = 0.5;
  std::deque<double> marks_;
  double sum_ = 0, begin_ = 0;
  int count_ = 0;
};

/// A row on its way to the screen: a label, a figure, its past, and notes, of which the last are left out
/// first.
struct Row {
  int rank = 0;  ///< rows of higher rank go first where there is no room for all
  std::string label, value, picture;
  const Trail* trail = nullptr;  ///< drawn instead of `picture`; `full` is the highest
  double full = 0;
  std::vector<std::string> notes;
};

class MonitorView {
 public:
  /// `title`: what is watched.
  explicit MonitorView(std::string title) : title_(std::move(title)) {}

  void add(const Moment& moment);
  /// What the run's log says by now.
  void set_run(const RunRecords& run);
  /// Something that a person should know; the last ones are shown.
  void say(const std::string& news) { news_.push_back(news); }

  /// At most `rows` lines of at most `columns` columns. `styled`: with escape codes for bold and dim.
  [[nodiscard]] std::vector<std::string> frame(int columns, int rows, bool styled) const;
  /// The same in one line without any escape codes.
  [[nodiscard]] std::string line() const;

 private:
  void add_gpus(std::vector<Row>& rows) const;
  void add_machine(std::vector<Row>& rows, int width) const;
  void add_command(std::vector<Row>& rows) const;
  void add_run(std::vector<Row>& rows) const;

  std::string title_;
  Moment now_;
  std::map<int, Trail> gpu_;
  Trail cpu_, disk_, command_;
  std::optional<StepRecord> step_;
  std::optional<FeedRecord> feed_;
  Trail au_, ring_;
  std::vector<std::string> news_;
};

}  // namespace penstock::cli
