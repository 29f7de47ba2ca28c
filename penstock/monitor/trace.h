// A timeline of threads, slots, copies and steps, in the trace event format that Perfetto and
// chrome://tracing open.
//
//   Trace trace;
//   TraceTrack& track = trace.track("worker 0");        // once for a thread
//   track.add("mel", begin, end, {.epoch = 0, .step = 7, .row = 3});
//   trace.write("trace.json");                          // when all threads are done
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace penstock {

/// Which batch, and which of its rows; -1: does not apply.
struct TracePlace {
  std::int64_t epoch = -1, step = -1;
  std::int32_t row = -1;
};

/// One row of the timeline. Only one thread at a time adds to it, without a lock. Holds the last spans that
/// fit.
class TraceTrack {
 public:
  using Time = std::chrono::steady_clock::time_point;

  TraceTrack(std::string name, std::size_t capacity) : name_(std::move(name)), capacity_(capacity) {
    spans_.reserve(capacity);  // pages that are never written cost nothing
  }

  /// `name` must live as long as the trace does: a literal.
  void add(const char* name, Time begin, Time end, const TracePlace& place) {
    const Span span{name, begin, end, place};
    if (added_ < capacity_)
      spans_.push_back(span);
    else
      spans_[added_ % capacity_] = span;
    ++added_;
  }
  /// The same, at the place that was set last.
  void add(const char* name, Time begin, Time end) { add(name, begin, end, place_); }
  void set_place(const TracePlace& place) { place_ = place; }
  [[nodiscard]] const TracePlace& place() const { return place_; }

 private:
  friend class Trace;
  struct Span {
    const char* name;
    Time begin, end;
    TracePlace place;
  };
  std::string name_;
  std::size_t capacity_;
  std::vector<Span> spans_;
  std::uint64_t added_ = 0;
  TracePlace place_;
};

class Trace {
 public:
  /// Of each track the last `spans` are kept: 7 MB of memory for 131072.
  explicit Trace(std::size_t spans = 1 << 17) : capacity_(spans) {}

  /// The track of this name, made where there is none. Any thread; stays where it is.
  TraceTrack& track(const std::string& name);

  /// Throws Error naming the path. Nobody may add meanwhile.
  void write(const std::filesystem::path& path) const;

 private:
  const std::size_t capacity_;
  const TraceTrack::Time start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::list<TraceTrack> tracks_;
};

}  // namespace penstock
