#include "penstock/monitor/diagnosis_json.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using nlohmann::json;

json summary_json(const SeriesSummary& s) {
  return {{"mean", s.mean}, {"std", s.deviation}, {"cv", s.cv},  {"p50", s.p50},
          {"p95", s.p95},   {"p99", s.p99},       {"max", s.max}};
}

/// null where the log says nothing.
json number_or_null(double value) { return std::isnan(value) ? json() : json(value); }

}  // namespace

std::string diagnosis_json(const RunDiagnosis& d) {
  json out = {{"healthy", d.healthy()},
              {"steps", d.steps},
              {"au", d.au},
              {"band", band_name(d.band)},
              {"batch_ms", summary_json(d.batch)},
              {"step_ms", summary_json(d.step)},
              {"data_ms", summary_json(d.data)},
              {"first_step_ms", d.cold_ms},
              {"between_steps", d.outside},
              {"oscillation",
               {{"swings", d.swings},
                {"period_steps", d.slow.oscillation.period},
                {"strength", d.slow.oscillation.strength}}},
              {"slow_steps",
               {{"count", d.slow.count},
                {"mean_ms", d.slow.ms},
                {"cause", d.slow.cause},
                {"explained", d.slow.explained}}},
              {"stages", json::array()},
              {"samples_per_second",
               {{"needed", d.samples_per_second_needed}, {"possible", d.samples_per_second_possible}}},
              {"workers", d.workers},
              {"cores", d.cores},
              {"retraces", d.retraces},
              {"retrace_causes", json::array()},
              {"padding", number_or_null(d.padding)},
              {"cache_hits", number_or_null(d.cache_hits)},
              {"gpu_busy", number_or_null(d.gpu_busy)},
              {"cpu_busy", number_or_null(d.cpu_busy)},
              {"skipped", d.skipped},
              {"findings", json::array()}};
  for (const StageDemand& s : d.stages)
    out["stages"].push_back({{"name", s.name}, {"us_per_sample", s.us_per_sample}, {"share", s.share}});
  for (const auto& [cause, times] : d.retrace_causes)
    out["retrace_causes"].push_back({{"cause", cause}, {"times", times}});
  for (const RunFinding& f : d.findings) {
    json finding = {{"cause", f.cause}, {"share", f.share}, {"what", f.what}, {"advice", f.advice}};
    if (!f.lines.empty()) finding["lines"] = f.lines;
    if (f.au_after > 0) finding["au_after"] = f.au_after;
    out["findings"].push_back(std::move(finding));
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace penstock
