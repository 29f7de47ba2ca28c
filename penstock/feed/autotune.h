// How many workers, and how many batches ahead: the least that keeps the consumer from waiting.
//
// A pure function of what it is told: no clock, no thread, so that tests can drive it through any weather.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

struct Effort {
  int workers = 1;
  int depth = 2;  ///< batches in the ring, the consumer's included
  bool operator==(const Effort&) const = default;
};

/// What happened from one decision to the next: a window of some batches.
struct TuneWindow {
  std::int64_t batches = 0;
  double step_seconds = 0;  ///< the consumer's own time, in all
  double wait_seconds = 0;  ///< it waited for batches, in all
  std::int64_t rows = 0;    ///< of the batches that were delivered
  double row_seconds = 0;   ///< a worker's time for a row on average, without its waiting for a CPU
  double cpu_share = 1;     ///< of that time, how much it was on a CPU
  int least_ready = 0;      ///< batches that were ready when one was asked for, in the worst case
};

class Autotuner {
 public:
  struct Limits {
    int cpus = 1;          ///< no more workers than that, unless they mostly wait for the storage
    int most_workers = 1;  ///< then no more than these
    int most_depth = 2;
  };
  Autotuner(const Limits& limits, const Effort& start);

  /// A window under the present setting has ended. The new setting's reason, when there is a new one.
  std::optional<std::string> observe(const TuneWindow& window);
  [[nodiscard]] const Effort& effort() const { return effort_; }

 private:
  std::optional<std::string> relieve(const TuneWindow& window, double load);
  std::optional<std::string> save(const TuneWindow& window);
  void remember_failure(double load);
  std::optional<std::string> change(const Effort& to, std::string reason);
  [[nodiscard]] int useful_workers(const TuneWindow& window) const;
  [[nodiscard]] bool has_failed(const Effort& setting, double load) const;

  Limits limits_;
  Effort effort_;
  bool started_ = false;                   // the first window shows an empty ring
  bool settling_ = false;                  // the window after a change shows its transition
  std::uint32_t waits_ = 0;                // the last windows, a bit each: the consumer waited
  double load_before_ = 0;                 // the last window's
  int calm_ = 0;                           // windows without waiting, in a row
  double calm_load_ = 0, least_load_ = 0;  // the largest load among them, and the least
  int calm_ready_ = 0;                     // the least level among them
  double usual_load_ = 0;          // the least load when all was calm last; 0 after something was added
  double load_before_relief_ = 0;  // what it was before that
  struct Failure {
    Effort setting;
    double load = 0;
  };
  std::vector<Failure> failures_;  // settings under which the consumer waited, and the load they had
};

}  // namespace penstock
