#include "cli/diagnose_run.h"

#include <chrono>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "penstock/monitor/diagnosis.h"
#include "penstock/monitor/diagnosis_json.h"

namespace penstock::cli {
namespace {

using nlohmann::json;

void print_times(const RunDiagnosis& d) {
  const auto row = [](const char* name, const SeriesSummary& s) {
    fmt::print("{:<18}{:>9.1f} ± {:<8.1f}{:>9.1f}{:>9.1f}{:>9.1f}{:>7.0f} %\n", name, s.mean, s.deviation,
               s.p50, s.p95, s.p99, s.cv * 100);
  };
  fmt::print("{:<18}{:>9}   {:<8}{:>9}{:>9}{:>9}{:>9}\n", "ms a step", "mean", "std", "p50", "p95", "p99",
             "CV");
  row("batch", d.batch);
  if (d.step.mean > 0) {
    row("  computing", d.step);
    row("  waiting for data", d.data);
  }
  fmt::print("first step{:>17.1f}   apart: it is cold\n", d.cold_ms);
  if (d.outside > 0.01) fmt::print("between steps{:>13.0f} % of the time\n", d.outside * 100);
}

std::string cause_text(const std::string& cause) {
  if (cause == "checkpoint") return "they stand at checkpoints";
  if (cause == "validation") return "they stand at validations";
  if (cause == "epoch") return "they stand at the beginning of an epoch";
  if (cause == "retrace") return "their step had to be planned anew";
  if (cause == "data") return "they waited for data";
  if (cause == "shapes") return "their batches are larger ones, which is as it should be";
  return "the step itself took long; the log names no event beside them";
}

void print_swing(const RunDiagnosis& d) {
  if (!d.swings) return;
  fmt::print("\nThe batch time swings: CV {:.0f} %", d.batch.cv * 100);
  if (d.slow.oscillation) fmt::print(", with a period of {:.1f} steps", d.slow.oscillation.period);
  fmt::print(".\n");
  if (d.slow.count > 0)
    fmt::print("  {}", wrapped(fmt::format("{} of {:.0f} ms: {}.",
                                           count_text(static_cast<std::int64_t>(d.slow.count), "slow step"),
                                           d.slow.ms, cause_text(d.slow.cause)),
                               78, 2));
}

void print_feed(const RunDiagnosis& d) {
  if (!d.stages.empty()) {
    fmt::print("\nstage       us/sample   share\n");
    for (const StageDemand& s : d.stages)
      if (s.share >= 0.005)
        fmt::print("{:<10} {:>10.1f}  {:>5.1f}% {}\n", s.name, s.us_per_sample, s.share * 100,
                   bar(s.share, 30));
    if (d.samples_per_second_possible > 0 && d.samples_per_second_needed > 0)
      fmt::print("{} can make {:.0f} samples/s; the step takes {:.0f}.\n", count_text(d.workers, "worker"),
                 d.samples_per_second_possible, d.samples_per_second_needed);
  }
  std::string line;
  const auto add = [&](const std::string& text) { line += (line.empty() ? "" : ", ") + text; };
  if (!std::isnan(d.gpu_busy)) add(fmt::format("GPU {:.0f} % busy", d.gpu_busy * 100));
  if (!std::isnan(d.cpu_busy)) add(fmt::format("CPU {:.0f} % busy", d.cpu_busy * 100));
  if (!std::isnan(d.padding)) add(fmt::format("padding {:.0f} %", d.padding * 100));
  if (!std::isnan(d.cache_hits)) add(fmt::format("{:.0f} % from the cache", d.cache_hits * 100));
  add(count_text(d.retraces, "retrace"));
  if (d.skipped > 0) add(fmt::format("{} skipped", count_text(d.skipped, "utterance")));
  fmt::print("\n{}\n", line);
}

void print_findings(const RunDiagnosis& d) {
  if (d.findings.empty()) return;
  fmt::print("\nWhat to change, what costs most first\n");
  int number = 0;
  for (const RunFinding& f : d.findings) {
    fmt::print("{}", wrapped(fmt::format("{}. {}", ++number, f.what), 80, 3));
    fmt::print("   {}", wrapped(f.advice, 77, 3));
    if (!f.lines.empty()) fmt::print("{}", indented(f.lines, "       "));
    if (f.au_after > 0) fmt::print("   AU {:.2f} -> {:.2f} (predicted)\n", d.au, f.au_after);
  }
}

std::string headline(const std::string& run, const RunDiagnosis& d) {
  const std::string steps = count_text(static_cast<std::int64_t>(d.steps), "step");
  if (d.step.mean <= 0)
    return fmt::format("{}: {}, no step time: one takes {:.0f} ms ({}).", run, steps, d.batch.mean,
                       band_name(d.band));
  if (d.healthy())
    return fmt::format("{}: healthy. {}, AU {:.2f}: the device computes and hardly waits.", run, steps, d.au);
  return fmt::format("{}: {}, AU {:.2f} ({}).", run, steps, d.au, band_name(d.band));
}

void print_page(const std::string& run, const RunDiagnosis& d) {
  fmt::print("{}\n", wrapped(headline(run, d), 80));
  print_times(d);
  print_swing(d);
  print_feed(d);
  print_findings(d);
}

}  // namespace

int diagnose_run(const std::string& run, bool as_json) {
  const RunRecords records = read_run(run);
  const RunDiagnosis d = diagnose(records);
  if (as_json) {
    json out = json::parse(diagnosis_json(d));
    out["run"] = run;
    out["damaged_lines"] = records.damaged_lines;
    print_json(out);
  } else if (d.steps == 0) {
    fmt::print("{}: {} in its log: too few to judge. Come back when it has done some.\n", run,
               records.steps.empty() ? "no step is" : "only the first step is");
  } else {
    print_page(run, d);
    if (records.damaged_lines > 0)
      fmt::print("\n{} of the log could not be read.\n",
                 count_text(static_cast<std::int64_t>(records.damaged_lines), "line"));
  }
  return d.healthy() ? 0 : 1;
}

}  // namespace penstock::cli
