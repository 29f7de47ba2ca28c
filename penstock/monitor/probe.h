// What a stage costs: a clock read before and after its call, added up per worker. No lock, no allocation,
// some 50 ns.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "penstock/monitor/trace.h"

namespace penstock {

/// The stages of a sample's way, in their order.
enum class Stage : std::uint8_t { read, decode, mel, tokens, cache, pad };
constexpr std::size_t index_of(Stage stage) { return static_cast<std::size_t>(stage); }
inline constexpr std::array stage_names = {"read", "decode", "mel", "tokens", "cache", "pad"};
inline constexpr std::size_t stage_count = stage_names.size();

/// One worker's sums. Only that worker adds; anybody may read at any time.
class StageClock {
 public:
  void add(Stage stage, std::chrono::nanoseconds time) {
    // relaxed: a single writer, and readers want a recent value, not an ordering.
    auto& sum = sums_[static_cast<std::size_t>(stage)];
    sum.store(sum.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(time.count()),
              std::memory_order_relaxed);
  }
  /// The same, and onto the timeline where there is one.
  void add(Stage stage, TraceTrack::Time begin, TraceTrack::Time end) {
    add(stage, end - begin);
    if (track_ != nullptr) track_->add(stage_names[static_cast<std::size_t>(stage)], begin, end);
  }
  /// Before the worker begins. Must outlive its work; null: no timeline.
  void set_track(TraceTrack* track) { track_ = track; }
  [[nodiscard]] TraceTrack* track() const { return track_; }
  /// One more sample has gone through.
  void add_sample() {
    samples_.store(samples_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t nanoseconds(std::size_t stage) const {
    return sums_[stage].load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t samples() const { return samples_.load(std::memory_order_relaxed); }
  /// Before anybody uses it: probes read no clock and add nothing, which shows what they cost.
  void turn_off() { on_ = false; }
  [[nodiscard]] bool is_on() const { return on_; }

 private:
  alignas(64) std::array<std::atomic<std::uint64_t>, stage_count> sums_{};
  std::atomic<std::uint64_t> samples_{0};
  bool on_ = true;
  TraceTrack* track_ = nullptr;
};

/// Runs `call`, adds its time to `stage` (also when it throws) and returns its result.
template <typename Call>
decltype(auto) probe(StageClock& clock, Stage stage, Call&& call) {
  if (!clock.is_on()) return call();
  struct Timer {
    StageClock& clock;
    Stage stage;
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    ~Timer() { clock.add(stage, start, std::chrono::steady_clock::now()); }
  } timer{clock, stage};
  return call();
}

}  // namespace penstock
