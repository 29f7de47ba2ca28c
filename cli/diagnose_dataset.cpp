// penstock diagnose DIR: why a device starves, and what will fix it, on a page.
#include "cli/diagnose_dataset.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/feed/diagnose.h"
#include "penstock/feed/tune.h"
#include "penstock/monitor/diagnosis.h"

namespace penstock::cli {
namespace {

using nlohmann::json;

/// What --apply did.
struct Applied {
  Remedy remedy;
  Observation seen;
  Demand demand;
};

// ---- words ----

std::string milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return fmt::format("{:.{}f} ms", ms, ms < 10 ? 2 : ms < 100 ? 1 : 0);
}

std::string_view band(const Diagnosis& d) {
  return band_name(band_of(d.batch.mean * 1e3, d.demand.step * 1e3));
}

std::string why(const Diagnosis& d) {
  const Demand& m = d.demand;
  const Observation& o = d.seen;
  const auto row = [&](Stage s) { return milliseconds(m.row[static_cast<std::size_t>(s)]); };
  switch (d.verdict) {
    case Cause::step:
      return "the device is busy";
    case Cause::storage:
      return fmt::format("slow storage: reading a file takes {}, also the second time ({})", row(Stage::read),
                         milliseconds(o.read_again));
    case Cause::cold:
      return fmt::format(
          "files come from storage for the first time ({} of {} a row); from memory it takes {}",
          row(Stage::read), milliseconds(m.row_running + m.row_ready + m.row_asleep),
          milliseconds(o.read_again));
    case Cause::decode:
      return fmt::format("decoding takes {} a file", row(Stage::decode));
    case Cause::mel:
      return fmt::format("this mel takes {} a row, far more than the default one", row(Stage::mel));
    case Cause::features:
      return fmt::format("there is more to compute than {} can: {} of CPU a row", count_text(o.cpus, "CPU"),
                         milliseconds(m.row_running));
    case Cause::workers:
      return fmt::format("too few workers: {} at work, {} there", o.workers, count_text(o.cpus, "CPU"));
    case Cause::ring:
      return fmt::format("batches are uneven, and a ring of {} does not even them out", o.depth);
    case Cause::copy:
      return fmt::format("the step waits {} for the copy of a batch, which takes {}",
                         milliseconds(m.copy_wait), milliseconds(std::max(m.copy, m.copy_wait)));
    case Cause::stall:
      return fmt::format("everything stands still now and then ({:.0f} of 100 batches){}", 100 * m.stalls,
                         d.swing_cause.empty() ? "" : ": " + d.swing_cause);
    case Cause::cpu:
      return fmt::format("other processes take {:.1f} of {}{}", o.other_cpus, count_text(o.cpus, "CPU"),
                         o.busiest.cpus > 0.1
                             ? fmt::format(", most of it {} (process {})", o.busiest.name, o.busiest.id)
                             : "");
    case Cause::shapes:
      return fmt::format("{} different shapes in {} batches: the device compiles its step for each", d.shapes,
                         o.batches.size());
  }
  return "";
}

// ---- the page ----

void print_times(const Diagnosis& d) {
  const SeriesSummary& b = d.batch;
  fmt::print("batch        {} ± {}, CV {:.0f} %: {}\n", milliseconds(b.mean), milliseconds(b.deviation),
             b.cv * 100, band(d));
  fmt::print("             p50 {}, p95 {}, p99 {}\n", milliseconds(b.p50), milliseconds(b.p95),
             milliseconds(b.p99));
  fmt::print("first batch  {} after opening, which does not count\n", milliseconds(d.seen.first_batch));
  if (d.demand.step > 0)
    fmt::print("AU           {:.2f} with steps of {} on average; {:.2f} with batches from memory\n",
               d.seen.au, milliseconds(d.demand.step), d.headroom);
  if (d.swing && d.batch.cv > 0.5)
    fmt::print("it swings    every {:.1f} batches ({}){}\n", d.swing.period,
               milliseconds(d.swing.period * b.mean), d.swing_cause.empty() ? "" : ", when " + d.swing_cause);
  else if (d.batch.cv > 0.5)
    fmt::print("it swings    without a period{}\n", d.swing_cause.empty() ? "" : ", when " + d.swing_cause);
}

/// What a batch asks of each resource: the largest is the limit.
void print_demands(const Diagnosis& d) {
  const Demand& m = d.demand;
  struct Line {
    std::string name;
    double seconds;
  };
  std::vector<Line> lines;
  if (m.step > 0) lines.push_back({"step", m.step});
  if (m.compile > 0) lines.push_back({"compile", m.compile});
  if (m.copy > 0 || m.copy_wait > 0.01 * m.cycle) lines.push_back({"copy", std::max(m.copy, m.copy_wait)});
  lines.push_back({fmt::format("filling ({})", count_text(d.seen.workers, "worker")), m.fill});
  const double most = std::max(1e-9, std::ranges::max(lines, {}, &Line::seconds).seconds);
  fmt::print("\na batch asks\n");
  for (const Line& l : lines)
    fmt::print("  {:<22} {:>9}  {}\n", l.name, milliseconds(l.seconds), bar(l.seconds / most, 30));
  fmt::print("\na row takes a worker\n");
  double row = 1e-12;
  for (const double s : m.row) row += s;
  for (std::size_t i = 0; i < stage_count; ++i)
    if (m.row[i] > 0.005 * row)
      fmt::print("  {:<22} {:>9}  {}\n", stage_names[i], milliseconds(m.row[i]), bar(m.row[i] / row, 30));
  fmt::print("  of that {:.0f} % computing, {:.0f} % waiting for storage, {:.0f} % for a CPU\n",
             100 * m.row_running / row, 100 * m.row_asleep / row, 100 * m.row_ready / row);
  fmt::print("padding      {:.0f} % of the frames, {}\n", d.padding * 100,
             count_text(static_cast<std::int64_t>(d.shapes), "shape"));
}

std::string gain(const Diagnosis& d, const Remedy& r) {
  if (d.demand.step > 0) return fmt::format("AU {:.2f} -> {:.2f}", d.seen.au, r.au);
  return fmt::format("batch {} -> {}", milliseconds(d.demand.cycle), milliseconds(r.cycle));
}

void print_remedies(const Diagnosis& d) {
  if (d.remedies.empty()) return;
  fmt::print("\nwhat to change\n");
  for (std::size_t i = 0; i < std::min<std::size_t>(5, d.remedies.size()); ++i) {
    const Remedy& r = d.remedies[i];
    fmt::print("{}. {}: {}{}\n", i + 1, r.what, gain(d, r),
               !r.tried                                       ? ""
               : r.cause == Cause::copy && r.settings.empty() ? " (tried without copies)"
                                                              : " (tried)");
    for (const auto& [key, value] : r.settings) fmt::print("      {}: {}\n", key, value);
  }
}

void print_text(const Diagnosis& d, const std::optional<Applied>& applied, const std::string& file) {
  if (d.healthy && d.demand.step > 0) {
    fmt::print("healthy: AU {:.2f} with steps of {}; the feed has a batch ready before it is asked for\n",
               d.seen.au, milliseconds(d.demand.step));
  } else if (d.healthy) {
    fmt::print("healthy: a batch every {} ({}); give --step-ms to see whether your device would wait\n",
               milliseconds(d.demand.cycle), band(d));
  } else {
    fmt::print("verdict: {}\n\n", why(d));
    print_times(d);
    print_demands(d);
    print_remedies(d);
  }
  if (d.seen.stolen_cpus > 0.1)
    fmt::print("note: the hypervisor gave {:.1f} of {} to others meanwhile\n", d.seen.stolen_cpus,
               count_text(d.seen.cpus, "CPU"));
  if (d.seen.skipped > 0)
    fmt::print("note: {} could not be read (penstock info names them)\n", count_text(d.seen.skipped, "clip"));
  if (!applied) return;
  fmt::print("\napplied: {}, in {}\n", applied->remedy.what, file);
  if (d.demand.step > 0)
    fmt::print("AU {:.2f} -> {:.2f} (predicted {:.2f})\n", d.seen.au, applied->seen.au, applied->remedy.au);
  else
    fmt::print("batch {} -> {} (predicted {})\n", milliseconds(d.demand.cycle),
               milliseconds(applied->demand.cycle), milliseconds(applied->remedy.cycle));
}

// ---- for programs ----

json remedy_json(const Remedy& r) {
  json settings = json::object();
  for (const auto& [key, value] : r.settings) settings[key] = value;
  return {{"cause", cause_name(r.cause)},
          {"what", r.what},
          {"settings", settings},
          {"builds_cache", r.builds_cache},
          {"au", r.au},
          {"batch_ms", r.cycle * 1e3},
          {"tried", r.tried}};
}

json diagnosis_json(const Diagnosis& d, const std::optional<Applied>& applied) {
  const Demand& m = d.demand;
  const Observation& o = d.seen;
  json stages = json::object(), causes = json::array(), remedies = json::array();
  for (std::size_t i = 0; i < stage_count; ++i) stages[stage_names[i]] = m.row[i] * 1e6;
  for (const WhatIf& w : d.causes)
    causes.push_back({{"cause", cause_name(w.cause)}, {"batch_ms", w.cycle * 1e3}, {"tried", w.tried}});
  for (const Remedy& r : d.remedies) remedies.push_back(remedy_json(r));
  json out = {
      {"verdict", cause_name(d.verdict)},
      {"why", why(d)},
      {"healthy", d.healthy},
      {"au", o.au},
      {"headroom", d.headroom},
      {"batches", o.batches.size()},
      {"frames_per_second", m.frames * m.rows / m.cycle},
      {"batch_ms",
       {{"mean", d.batch.mean * 1e3},
        {"std", d.batch.deviation * 1e3},
        {"cv", d.batch.cv},
        {"p50", d.batch.p50 * 1e3},
        {"p95", d.batch.p95 * 1e3},
        {"p99", d.batch.p99 * 1e3}}},
      {"band", band(d)},
      {"first_batch_ms", o.first_batch * 1e3},
      {"oscillation",
       {{"swings", d.batch.cv > 0.5},
        {"period_batches", d.swing.period},
        {"strength", d.swing.strength},
        {"cause", d.swing_cause}}},
      {"demand_ms",
       {{"step", m.step * 1e3},
        {"compile", m.compile * 1e3},
        {"copy", m.copy * 1e3},
        {"copy_wait", m.copy_wait * 1e3},
        {"fill", m.fill * 1e3},
        {"stall", m.stall * 1e3},
        {"loss", m.loss * 1e3}}},
      {"row_us", stages},
      {"row_share",
       {{"running_us", m.row_running * 1e6},
        {"ready_us", m.row_ready * 1e6},
        {"asleep_us", m.row_asleep * 1e6}}},
      {"read_again_us", o.read_again * 1e6},
      {"padding", d.padding},
      {"shapes", d.shapes},
      {"workers", o.workers},
      {"depth", o.depth},
      {"ring_level", o.ring_level},
      {"cpus", o.cpus},
      {"other_cpus", o.other_cpus},
      {"stolen_cpus", o.stolen_cpus},
      {"device", o.device},
      {"cache", {{"hits", o.cache.hits}, {"misses", o.cache.misses}, {"recomputed", o.cache.recomputed}}},
      {"skipped", o.skipped},
      {"rejected", o.rejected},
      {"causes", causes},
      {"remedies", remedies}};
  if (applied)
    out["applied"] = {{"remedy", remedy_json(applied->remedy)},
                      {"au", applied->seen.au},
                      {"batch_ms", applied->demand.cycle * 1e3}};
  return out;
}

// ---- the run ----

/// Progress on a terminal: what is being run, and files that are indexed or cached on the way.
ObserveOptions observe_options(const DatasetArguments& a, ProgressBar& indexing, ProgressBar& caching) {
  ObserveOptions options{.step_seconds = a.step_ms * 1e-3,
                         .compile_seconds = a.compile_ms * 1e-3,
                         .batches = a.num_batches,
                         .check = check_interrupt};
  options.feed.open = {.progress = [&](std::size_t done, std::size_t total) { indexing.update(done, total); },
                       .building =
                           [&](std::size_t done, std::size_t total, std::uint64_t bytes) {
                             indexing.clear();
                             caching.update(done, total, bytes);
                           }};
  return options;
}

/// The settings as YAML, with a remedy's in place of the user's.
std::string with_lines(const std::string& settings, const Remedy& remedy) {
  std::istringstream lines(settings);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    for (const auto& [key, value] : remedy.settings)
      if (line.starts_with(key + ":"))
        line = fmt::format("{}: {}  # penstock diagnose", key, yaml_scalar(value));
    out += line + "\n";
  }
  return out;
}

/// The first remedy that a setting can make, written and measured; none when there is none.
std::optional<Applied> apply(const DatasetArguments& a, const Config& config, const Diagnosis& d,
                             const ObserveOptions& options) {
  const auto first = std::ranges::find_if(d.remedies, [](const Remedy& r) { return !r.settings.empty(); });
  if (first == d.remedies.end()) return std::nullopt;
  write_file(a.output, fmt::format("# {}: {}\n{}", first->what, gain(d, *first),
                                   with_lines(a.flags->collect().print(), *first)));
  ObserveOptions further = options;
  further.skip = d.taken;
  const Observation seen = observe(with_settings(config, *first), further);
  return Applied{.remedy = *first, .seen = seen, .demand = demand_of(seen)};
}

}  // namespace

int diagnose_dataset(DatasetArguments& a) {
  Config config;
  if (!a.flags->load(config)) return 0;
  if (a.step_ms < 0 || a.compile_ms < 0) throw Error("--step-ms and --compile-ms must be 0 or more");
  if (a.num_batches < 8)
    throw Error(fmt::format("--num-batches must be at least 8, but is {}", a.num_batches));
  if (a.apply && !a.force && std::filesystem::exists(a.output))
    throw Error(fmt::format("{}: is there already: --force overwrites it, --output names another", a.output));
  ProgressBar indexing("indexing"), caching("caching"), running("diagnosing");
  const ObserveOptions observed = observe_options(a, indexing, caching);
  const Dataset dataset = open_dataset(config, observed.feed.open);
  indexing.clear();
  Config whole = config;
  whole.preprocessing_mode = PreprocessingMode::automatic;
  std::size_t run = 0;
  const DiagnoseOptions options{.observe = observed,
                                .cache_complete = cache_is_complete(whole, dataset),
                                .progress = [&](const std::string&) { running.update(run, run + 1), ++run; }};
  const Diagnosis d = diagnose(config, options);
  running.clear();
  std::optional<Applied> applied;
  if (a.apply) applied = apply(a, config, d, observed);
  caching.clear();
  if (a.json)
    print_json(diagnosis_json(d, applied));
  else
    print_text(d, applied, a.output);
  if (a.apply && !applied && !a.json)
    fmt::print("nothing to apply: {}\n", d.healthy ? "all is well" : "no setting helps here");
  return d.healthy ? 0 : 1;
}

}  // namespace penstock::cli
