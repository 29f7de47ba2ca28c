// penstock bench: how fast the feed is, what each stage costs, and how busy it keeps a device.
#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/bench_run.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "penstock/core/error.h"
#include "penstock/monitor/system_log.h"

namespace penstock::cli {
namespace {

using nlohmann::json;

struct BenchArguments {
  std::unique_ptr<ConfigFlags> flags;
  BenchWork work;
  int repeat = 0;  // 0: once, with --ablate three times
  std::string mode, run_folder, trace;
  Option preprocessing_mode;
  bool json = false;
  bool no_limits = false;
  bool ablate = false;
};

/// What each part of a batch costs, and how much of it went on beside the step.
void print_parts(const json& parts) {
  for (const char* name : {"fill", "copy", "step"}) {
    if (!parts.contains(name)) continue;
    const json& part = parts[name];
    fmt::print("{:<16} {:>10.2f} ms a batch", name, part["ms"].get<double>());
    if (part.contains("hidden")) fmt::print(", {:.1f} % of it hidden", part["hidden"].get<double>() * 100);
    fmt::print("\n");
  }
}

void print_text(const json& r) {
  const auto number = [](const json& v) { return v.get<double>(); };
  fmt::print("samples/s        {:>10.0f}   ({} samples in {:.2f} s, {} workers)\n",
             number(r["samples_per_second"]), r["samples"].get<std::int64_t>(), number(r["seconds"]),
             r["workers"].get<int>());
  fmt::print("CPU s / 1000     {:>10.3f}\n", number(r["cpu_seconds_per_1000"]));
  const json& b = r["batch_ms"];
  fmt::print("batch            {:>10.2f} ms mean, CV {:.1f} %, p50 {:.2f}, p99 {:.2f}, max {:.2f}\n",
             number(b["mean"]), number(b["cv"]) * 100, number(b["p50"]), number(b["p99"]), number(b["max"]));
  fmt::print("first batch      {:>10.1f} ms after opening\n", number(r["first_batch_ms"]));
  if (r.contains("au"))
    fmt::print(
        "AU               {:>10.4f}   (ceiling {:.4f}; waited p50 {:.3f} ms, p99 {:.3f} ms; ring level "
        "{:.1f})\n",
        number(r["au"]), number(r["au_ceiling"]), number(r["wait_ms"]["p50"]), number(r["wait_ms"]["p99"]),
        number(r["ring_level"]));
  if (r.contains("parts")) print_parts(r["parts"]);
  if (r["tune_changes"].get<std::int64_t>() > 0)
    fmt::print("autotune         {:>10} workers, a depth of {}, after {} changes\n", r["workers"].get<int>(),
               r["depth"].get<int>(), r["tune_changes"].get<std::int64_t>());
  fmt::print("memory           {:>10.0f} MB peak, {:.0f} MB anonymous\n", number(r["peak_rss_mb"]),
             number(r["peak_anon_mb"]));
  fmt::print("padding          {:>10.1f} % of the frames\n", number(r["padding"]) * 100);
  if (const json& c = r["cache"]; r["mode"] != "live")
    fmt::print("cache            {:>10} hits, {} misses, {} recomputed, {} read\n",
               c["hits"].get<std::int64_t>(), c["misses"].get<std::int64_t>(),
               c["recomputed"].get<std::int64_t>(), bytes_text(c["bytes_read"].get<std::uint64_t>()));
  fmt::print("\nstage       us/sample   share\n");
  for (const json& s : r["stages"])
    fmt::print("{:<10} {:>10.1f}  {:>5.1f}% {}\n", s["name"].get<std::string>(), number(s["us_per_sample"]),
               number(s["share"]) * 100, bar(number(s["share"]), 30));
  fmt::print("\nshape (rows x tokens x frames)   batches\n");
  for (const json& s : r["shapes"])
    fmt::print("  {:>4} x {:>4} x {:>5} {:>18}\n", s["rows"].get<int>(), s["tokens"].get<int>(),
               s["frames"].get<int>(), s["batches"].get<std::int64_t>());
  if (r.contains("limits"))
    fmt::print("\nlimits of this machine: memcpy {:.0f} rows/s, mel kernel {:.3f} us/frame on one core\n",
               number(r["limits"]["memcpy_rows_per_s"]), number(r["limits"]["mel_us_per_frame"]));
  if (r["rejected"].get<int>() > 0)
    fmt::print("{} utterances are too long or empty and were left out (penstock info names them)\n",
               r["rejected"].get<int>());
  for (const json& s : r["skipped_samples"])
    fmt::print("skipped {}: {}\n", s["id"].get<std::string>(), s["reason"].get<std::string>());
  for (const json& s : r["recomputed_samples"])
    fmt::print("recomputed {}: {} (`penstock cache verify --fix` repairs it)\n", s["id"].get<std::string>(),
               s["reason"].get<std::string>());
}

/// --mode, or preprocessing_mode from a flag or the file; live where none of them is given.
void choose_mode(BenchArguments& a) {
  if (a.preprocessing_mode.given()) {
    if (!a.mode.empty())
      throw Error("--mode and --preprocessing-mode say the same thing: leave one of them out");
    return;
  }
  if (a.mode.empty()) return a.flags->set_default("preprocessing_mode", "runtime", "the default of bench");
  const std::string value = a.mode == "live" ? "runtime" : a.mode == "cached" ? "precompute" : "auto";
  a.flags->set("preprocessing_mode", value, "--mode " + a.mode);
}

/// The switches that do something under these settings, by key.
std::vector<std::string> switches(const Config& config) {
  std::vector<std::string> keys;
  const bool live = config.preprocessing_mode == PreprocessingMode::runtime;
  if (live) keys.emplace_back("native_loading");
  if (config.device != "cpu") keys.insert(keys.end(), {"device_prefetch", "overlap"});
  if (!live) keys.emplace_back("enable_memory_mapping");
  if (config.num_workers == 0) keys.emplace_back("autotune");
  return keys;
}

Config without(Config config, const std::string& key) {
  for (const ConfigKey& k : config_keys())
    if (k.name == key) k.set(config, "false");
  return config;
}

/// Every switch off, one at a time, in turns, so that a machine that changes its mind changes it for all.
json ablate(const Config& config, const BenchArguments& a) {
  std::vector<std::string> off = {""};
  for (const std::string& key : switches(config)) off.push_back(key);
  std::vector<std::vector<json>> runs(off.size());
  CopyWork copies;
  for (int i = 0; i < a.repeat; ++i)
    for (std::size_t v = 0; v < off.size(); ++v) {
      BenchWork work = a.work;
      if (off[v] == "native_loading")
        work.batches = std::max<std::int64_t>(2, work.batches / 20);  // it is that slow
      runs[v].push_back(measure(off[v].empty() ? config : without(config, off[v]), work, copies));
    }
  json rows = json::array();
  for (std::size_t v = 0; v < off.size(); ++v) {
    const json r = median_of(runs[v]);
    json row = {{"off", off[v]}};
    for (const char* key : {"samples_per_second", "cpu_seconds_per_1000", "au", "au_ceiling", "parts"})
      if (r.contains(key)) row[key] = r[key];
    rows.push_back(std::move(row));
  }
  return rows;
}

void print_ablation(const json& rows) {
  const json& all = rows.front();
  const bool au = all.contains("au");
  fmt::print("{:<24} {:>10} {:>12} {}  what the switch brings\n", "switched off", "samples/s", "CPU s/1000",
             au ? "    AU" : "");
  for (const json& row : rows) {
    const auto of = [&](const char* key) { return row[key].get<double>(); };
    const auto on = [&](const char* key) { return all[key].get<double>(); };
    const std::string off = row["off"].get<std::string>();
    fmt::print("{:<24} {:>10.0f} {:>12.3f}", off.empty() ? "nothing" : off, of("samples_per_second"),
               of("cpu_seconds_per_1000"));
    if (au) fmt::print(" {:>6.4f}", of("au"));
    if (!off.empty())
      fmt::print("  {:.2f}x samples/s, {:.2f}x CPU{}", on("samples_per_second") / of("samples_per_second"),
                 on("cpu_seconds_per_1000") / of("cpu_seconds_per_1000"),
                 au ? fmt::format(", AU {:+.4f}", on("au") - of("au")) : "");
    fmt::print("\n");
  }
}

int run_bench(BenchArguments& a) {
  choose_mode(a);
  if (a.ablate) a.flags->set_default("device", "simulated", "the default of bench --ablate");
  if (a.repeat == 0) a.repeat = a.ablate ? 3 : 1;
  Config config;
  if (!a.flags->load(config)) return 0;
  if (a.work.batches < 2) throw Error("--batches must be at least 2");
  if (a.ablate && !(a.trace.empty() && a.run_folder.empty()))
    throw Error("--trace and --run show one setting: leave --ablate out");
  if (!a.trace.empty()) a.work.trace = std::make_shared<Trace>();
  if (a.ablate) {
    const json rows = ablate(config, a);
    if (a.json)
      print_json(
          {{"mode", mode_name(config.preprocessing_mode)}, {"device", config.device}, {"ablation", rows}});
    else
      print_ablation(rows);
    return 0;
  }
  std::optional<BenchLog> log;
  if (!a.run_folder.empty()) log.emplace(a.run_folder);
  std::optional<SystemLog> system_log;
  if (log) system_log.emplace(log->log());
  std::vector<json> runs;
  CopyWork copies;
  for (int i = 0; i < a.repeat; ++i) runs.push_back(measure(config, a.work, copies, log ? &*log : nullptr));
  if (a.work.trace) a.work.trace->write(a.trace);
  json result = median_of(runs);
  result["mode"] = mode_name(config.preprocessing_mode);
  for (const json& note : result["notes"]) fmt::print(stderr, "note: {}\n", note.get<std::string>());
  if (!a.no_limits) {
    result["limits"] = {{"memcpy_rows_per_s", memcpy_rows_per_second(copies, result["workers"].get<int>())},
                        {"mel_us_per_frame", mel_us_per_frame(config)}};
  }
  if (a.repeat > 1) result["runs"] = runs;
  if (a.json)
    print_json(result);
  else
    print_text(result);
  return 0;
}

}  // namespace

void add_bench(const Command& app, Action& action) {
  auto a = std::make_shared<BenchArguments>();
  const Command c = app.add_command("bench", "measure the feed, stage by stage, beside the machine's limits");
  a->flags = std::make_unique<ConfigFlags>(c);
  c.add_option("--step-ms", a->work.step_ms,
               "emulate a device whose step takes this long, and report its utilisation")
      .range(0.01, 1e6);
  c.add_option("--batches", a->work.batches, "how many to measure").show_default();
  c.add_option("--repeat", a->repeat, "measure so often and report medians (default: 1; with --ablate 3)")
      .range(1, 1000);
  c.add_flag("--ablate", a->ablate,
             "switch each optimisation off in turn and show what it brings (with a simulated device, unless "
             "--device says another)");
  c.add_option(
       "--mode", a->mode,
       "live (default; preprocessing_mode runtime), cached (precompute: what is missing is built first), "
       "or auto: use what is cached")
      .one_of({"live", "cached", "auto"});
  a->preprocessing_mode = c.option("--preprocessing-mode");
  c.add_option("--run", a->run_folder,
               "log steps and feed to RUN/log.jsonl, behind what is there: `penstock report RUN` shows it")
      .type_name("RUN");
  c.add_option("--trace", a->trace, "a timeline of workers, slots, copies and steps, for ui.perfetto.dev")
      .type_name("FILE");
  c.add_flag("--no-limits", a->no_limits,
             "do not measure the machine's limits (which takes memory: up to 1 GiB)");
  c.add_flag("--json", a->json, "the result for programs");
  c.footer(
      "Examples:\n  penstock bench data/en\n  penstock bench data/en --mode cached\n"
      "  penstock bench data/en --step-ms 50 --batch-size 32 --shapes 4\n"
      "  penstock bench data/en --step-ms 10 --device simulated\n"
      "  penstock bench data/en --step-ms 10 --ablate\n"
      "  penstock bench data/en --step-ms 10 --batches 100 --trace trace.json\n"
      "  penstock bench data/en --pad-to-fixed-length --max-mel-frames 880 --max-text-length 256 --json");
  c.runs(action, [a] { return run_bench(*a); });
}

}  // namespace penstock::cli
