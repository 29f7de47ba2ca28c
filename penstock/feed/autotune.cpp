#include "penstock/feed/autotune.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace penstock {
namespace {

// So many more workers than would be busy all the time: a share of them, up to a part of one. What varies is
// absorbed by that.
constexpr double margin_share = 0.12, most_margin = 0.6;
// The consumer's waiting, as a share of its time: too much when it repeats, and right after a change.
constexpr double slight_wait = 0.005, bad_wait = 0.05;
// Windows without waiting before something is taken away; and so many where it was added because of a blip:
// the load is again what it was before, within these.
constexpr int calm_windows = 3, calm_windows_after_blip = 128;
constexpr double same_load_from = 0.67, same_load_to = 1.3;
// Depth is taken away when it is so much: one by one, as batches happen to be ready, would never end.
constexpr int least_depth_saved = 2;
// Batches that stay ready in the worst case when depth is taken away.
constexpr int spare_batches = 2;
// What has failed is tried again when the load is so much less.
constexpr double much_less = 0.8;

double wait_share(const TuneWindow& w) {
  const double all = w.wait_seconds + w.step_seconds;
  return all > 0 ? w.wait_seconds / all : 0;
}

/// Workers that would be busy all the time.
double load_of(const TuneWindow& w) {
  const double work = static_cast<double>(w.rows) * w.row_seconds;
  return w.step_seconds > 0 ? work / w.step_seconds : std::numeric_limits<double>::infinity();
}

int workers_for(double load) {
  const double wanted = load + std::min(load * margin_share, most_margin);
  return static_cast<int>(std::clamp(std::ceil(wanted), 1.0, 1e6));
}

}  // namespace

Autotuner::Autotuner(const Limits& limits, const Effort& start) : limits_(limits), effort_(start) {}

std::optional<std::string> Autotuner::observe(const TuneWindow& window) {
  const double load = load_of(window), share = wait_share(window);
  const double before = std::exchange(load_before_, load);
  if (!std::exchange(started_, true)) return std::nullopt;
  if (std::exchange(settling_, false) && share < bad_wait) return std::nullopt;
  waits_ = waits_ << 1 | static_cast<std::uint32_t>(share > slight_wait);
  if (share > slight_wait) {
    calm_ = 0;
    if (std::popcount(waits_ & 0xFU) < 2) return std::nullopt;  // a single one: a blip
    // A change of the weather is felt for a window: what was before it may be to blame.
    remember_failure(std::max(load, before));
    if (usual_load_ > 0) load_before_relief_ = std::exchange(usual_load_, 0);
    return relieve(window, load);
  }
  calm_load_ = calm_ == 0 ? load : std::max(calm_load_, load);
  least_load_ = calm_ == 0 ? load : std::min(least_load_, load);
  calm_ready_ = calm_ == 0 ? window.least_ready : std::min(calm_ready_, window.least_ready);
  if (++calm_ < calm_windows) return std::nullopt;
  usual_load_ = least_load_;
  const bool blip = least_load_ > load_before_relief_ * same_load_from &&
                    least_load_ < load_before_relief_ * same_load_to &&
                    effort_.workers <= workers_for(calm_load_) + 1;
  return calm_ < (blip ? calm_windows_after_blip : calm_windows) ? std::nullopt : save(window);
}

/// What the CPUs can serve: those that wait for the storage need none meanwhile.
int Autotuner::useful_workers(const TuneWindow& window) const {
  const double sharing = std::round(limits_.cpus / std::max(window.cpu_share, 0.01));
  return static_cast<int>(std::clamp<double>(sharing, limits_.cpus, limits_.most_workers));
}

bool Autotuner::has_failed(const Effort& setting, double load) const {
  return std::ranges::any_of(failures_, [&](const Failure& f) {
    return setting.workers <= f.setting.workers && setting.depth <= f.setting.depth &&
           load > f.load * much_less;
  });
}

/// Keeps only what says more than the rest: more of both failed under less.
void Autotuner::remember_failure(double load) {
  const auto covers = [](const Failure& a, const Failure& b) {
    return a.setting.workers >= b.setting.workers && a.setting.depth >= b.setting.depth && a.load <= b.load;
  };
  const Failure now{effort_, load};
  if (std::ranges::any_of(failures_, [&](const Failure& f) { return covers(f, now); })) return;
  std::erase_if(failures_, [&](const Failure& f) { return covers(now, f); });
  failures_.push_back(now);
}

std::optional<std::string> Autotuner::relieve(const TuneWindow& window, double load) {
  Effort to = effort_;
  // Those who are there are busy, or almost: more of them. Else the batches are uneven: more ahead.
  const bool busy = workers_for(load) > effort_.workers;
  if (busy) to.workers = workers_for(load);
  if (!busy || to.workers > useful_workers(window))
    to.depth = std::min(limits_.most_depth, 2 * effort_.depth);
  to.workers = std::max(effort_.workers, std::min(to.workers, useful_workers(window)));
  return change(to,
                fmt::format("the consumer waited {:.1f} % of the time; its batches are the work of {:.1f} "
                            "workers",
                            wait_share(window) * 100, std::min(load, 999.0)));
}

std::optional<std::string> Autotuner::save(const TuneWindow& window) {
  Effort to = effort_;
  to.workers = std::min(effort_.workers, workers_for(calm_load_));
  // With fewer workers that are busier, what is ready has to be seen again first.
  if (to.workers == effort_.workers || calm_load_ < 0.5 * to.workers)
    if (const int spare = calm_ready_ - spare_batches; spare >= least_depth_saved) to.depth -= spare;
  // Of what has failed before, as little as possible is tried again.
  while (to.workers < effort_.workers && has_failed(to, calm_load_)) ++to.workers;
  to.workers = std::min(to.workers, useful_workers(window));
  while (to.depth < effort_.depth && has_failed(to, calm_load_)) ++to.depth;
  const std::string reason = fmt::format(
      "the consumer does not wait; its batches are the work of {:.2f} workers, and {} or more were "
      "ready",
      calm_load_, calm_ready_);
  calm_ = 0;
  return change(to, reason);
}

std::optional<std::string> Autotuner::change(const Effort& to, std::string reason) {
  if (to == effort_) return std::nullopt;
  effort_ = to;
  settling_ = true;
  calm_ = 0;
  waits_ = 0;
  return reason;
}

}  // namespace penstock
