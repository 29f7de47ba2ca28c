#include "penstock/feed/feed_log.h"

#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using nlohmann::json;

/// Microseconds a row that workers filled; empty where they filled none.
json stages_json(const FeedStats& before, const FeedStats& now) {
  json stages = json::object();
  const auto rows = static_cast<double>(now.filled - before.filled);
  for (std::size_t i = 0; rows > 0 && i < stage_count; ++i)
    stages[stage_names[i]] = (now.stage_seconds[i] - before.stage_seconds[i]) / rows * 1e6;
  return stages;
}

}  // namespace

void log_tune(RunLog& log, const TuneChange& change) {
  const json line = {{"epoch", change.epoch},
                     {"step", change.step},
                     {"workers", change.workers},
                     {"depth", change.depth},
                     {"reason", change.reason}};
  log.add("tune", line.dump());
}

FeedLog::FeedLog(RunLog& log, const Feed& feed)
    : log_(log), feed_(feed), last_(Clock::now()), before_(feed.stats()) {}

void FeedLog::write(Clock::time_point now, bool last) {
  const FeedStats stats = feed_.stats();
  const std::chrono::duration<double> elapsed = now - last_;
  const std::int64_t samples = stats.samples - before_.samples;
  const std::vector<SkippedSample> skipped = feed_.skipped();
  json line = {{"samples", samples},
               {"samples_per_second", static_cast<double>(samples) / elapsed.count()},
               {"stages", stages_json(before_, stats)},
               {"workers", stats.active_workers},
               {"depth", stats.depth},
               {"ring_level", ring_level_between(before_, stats)},
               {"hits", stats.cache.hits - before_.cache.hits},
               {"misses", stats.cache.misses - before_.cache.misses},
               {"recomputed", stats.cache.recomputed - before_.cache.recomputed},
               {"bytes_read", stats.cache.bytes_read - before_.cache.bytes_read},
               {"skipped", skipped.size()}};
  if (last) {
    line["skipped_samples"] = json::array();
    for (const SkippedSample& s : skipped)
      line["skipped_samples"].push_back({{"id", s.id}, {"reason", s.reason}, {"times", s.times}});
  }
  log_.add("feed", line.dump(-1, ' ', false, json::error_handler_t::replace));
  last_ = now;
  before_ = stats;
}

}  // namespace penstock
