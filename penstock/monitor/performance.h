// Where a program's time goes: named scopes on any thread, beside what the machine does meanwhile.
//
//   PerformanceMonitor monitor;
//   { auto scope = monitor.time("augment"); augment(batch); }
//   monitor.cache("mel", {.hits = 990, .misses = 10, .bytes = 4'000'000});
//   print(text(monitor.report()));
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/monitor/utilisation.h"

namespace penstock {

/// What a cache of the caller's did.
struct CacheFigures {
  std::uint64_t hits = 0, misses = 0, recomputed = 0, bytes = 0;
};

struct ScopeReport {
  std::string name;
  std::uint64_t calls = 0;
  int threads = 0;         ///< that have been in it
  double seconds = 0;      ///< of all threads together
  double own_seconds = 0;  ///< without the scopes inside it
  double share = 0;        ///< own seconds, of all scopes' own seconds
  double longest_ms = 0;   ///< one call
};

struct PerformanceReport {
  double seconds = 0;               ///< since the monitor was made
  std::vector<ScopeReport> scopes;  ///< the most own seconds first
  std::vector<std::pair<std::string, CacheFigures>> caches;
  /// Means over the samples; 0 when the system was not sampled.
  std::size_t samples = 0;
  double cpu = 0, steal = 0, disk_busy = 0, disk_read = 0, faults_major = 0;
  double own_cpus = 0, others_cpus = 0, waiting = 0, available_cpus = 0;
  std::optional<UtilisationJudgement> gpu;  ///< the first GPU that says how busy it is
  std::string bottleneck;                   ///< device, cpu, others, disk, one thread, waiting or unknown
  std::string reason;                       ///< one sentence
};

/// Names the bottleneck and its reason, from what was measured: the first that applies, as what is full hides
/// what lies behind it.
void name_bottleneck(PerformanceReport& report);
/// As a person reads it, and for programs.
std::string text(const PerformanceReport& report);
std::string to_json(const PerformanceReport& report);

/// Any thread may time scopes and ask for a report at any time. A scope costs two looks at a clock and no
/// lock; the first use of a name by a thread takes one.
class PerformanceMonitor {
 public:
  using Clock = std::chrono::steady_clock;
  /// `period` between samples of the system, on a thread of its own; 0: none are taken.
  explicit PerformanceMonitor(std::chrono::milliseconds period = std::chrono::milliseconds(100));
  ~PerformanceMonitor();

  struct Sums;  // one thread's
  /// A span of time on the thread that made it. Scopes of a thread end in the reverse order of their
  /// beginning, and before their monitor.
  class [[nodiscard]] Scope {
   public:
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    friend class PerformanceMonitor;
    Scope(Sums& sums, std::size_t name);
    Sums& sums_;
    std::size_t name_;
    Scope* outer_;
    std::uint64_t inner_ns_ = 0;
    Clock::time_point start_ = Clock::now();
  };

  /// Names are few: throws Error for more than 64.
  Scope time(std::string_view name);
  /// What a cache did so far: replaces what was said of it before.
  void cache(const std::string& name, const CacheFigures& figures);
  [[nodiscard]] PerformanceReport report() const;

 private:
  struct State;
  Sums& own_sums();
  std::shared_ptr<State> state_;
};

}  // namespace penstock
