#include "penstock/monitor/trace.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/core/file.h"

namespace penstock {

using nlohmann::json;

TraceTrack& Trace::track(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(tracks_, name, &TraceTrack::name_);
  return known != tracks_.end() ? *known : tracks_.emplace_back(name, capacity_);
}

void Trace::write(const std::filesystem::path& path) const {
  const std::lock_guard lock(mutex_);
  std::string out = R"({"displayTimeUnit":"ms","traceEvents":[)"
                    "\n"
                    R"({"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"penstock"}})";
  std::uint64_t lost = 0;
  int tid = 0;
  for (const TraceTrack& track : tracks_) {
    if (track.spans_.empty()) continue;
    ++tid;
    out += fmt::format(
        ",\n"
        R"({{"name":"thread_name","ph":"M","pid":1,"tid":{0},"args":{{"name":{1}}}}})"
        ",\n"
        R"({{"name":"thread_sort_index","ph":"M","pid":1,"tid":{0},"args":{{"sort_index":{0}}}}})",
        tid, json(track.name_).dump());
    lost += track.added_ - track.spans_.size();
    // By their beginning; what holds others comes before them.
    std::vector<TraceTrack::Span> spans = track.spans_;
    std::ranges::stable_sort(spans, [](const auto& a, const auto& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    for (const TraceTrack::Span& span : spans) {
      using Microseconds = std::chrono::duration<double, std::micro>;
      std::string place;
      const auto add = [&](const char* key, std::int64_t value) {
        if (value >= 0) place += fmt::format("{}\"{}\":{}", place.empty() ? "" : ",", key, value);
      };
      add("epoch", span.place.epoch), add("step", span.place.step), add("row", span.place.row);
      fmt::format_to(std::back_inserter(out),
                     ",\n"
                     R"({{"name":"{}","ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
                     span.name, tid, Microseconds(span.begin - start_).count(),
                     Microseconds(span.end - span.begin).count(), place);
    }
  }
  out += fmt::format("\n],\"otherData\":{{\"spans_lost\":{}}}}}\n", lost);
  write_file(path, out);
}

}  // namespace penstock
