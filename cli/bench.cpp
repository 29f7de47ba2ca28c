// penstock bench: how fast the feed is, what each stage costs, and how busy it keeps a device.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <time.h>

#include "cli/bench_limits.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "penstock/core/error.h"
#include "penstock/feed/feed.h"
#include "penstock/monitor/run_log.h"

namespace penstock::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Arguments {
  std::unique_ptr<ConfigFlags> flags;
  double step_ms = 0;
  std::int64_t batches = 300;
  int repeat = 1;
  std::string mode, run_folder;
  CLI::Option* preprocessing_mode = nullptr;
  bool json = false;
  bool no_limits = false;
};

double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

/// A field of /proc/self/status, in MB (10^6 bytes).
double status_mb(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    double kib = 0;
    if (name == field && status >> kib) return kib * 1024e-6;
    status.ignore(1 << 16, '\n');
  }
  return 0;
}

/// The emulated device: a step ends at an absolute deadline, so that lateness does not add up. Sleeps until
/// 300 us before it, then spins, since a sleeping thread wakes late.
void compute_until(Clock::time_point deadline) {
  const auto wake = deadline - std::chrono::microseconds(300);
  if (wake > Clock::now()) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(wake.time_since_epoch()).count();
    const timespec at{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) != 0) check_interrupt();
  }
  while (Clock::now() < deadline) {
  }
}

/// Steps of `step` each over what `next` returns. AU: N x T / (end of the last step - start of the second), N
/// from the second on.
template <typename Next>
double accelerator_utilisation(std::int64_t steps, Clock::duration step, Next&& next) {
  Clock::time_point second_start, end;
  for (std::int64_t i = 0; i < steps; ++i) {
    next();
    const auto start = Clock::now();
    if (i == 1) second_start = start;
    compute_until(end = start + step);
  }
  end = Clock::now();
  return static_cast<double>(steps - 1) * milliseconds(step) / milliseconds(end - second_start);
}

/// What a consumer must at least do with a batch: look at every array.
double touch(const Batch& b) {
  return static_cast<double>(b.mel[0]) + b.tokens[0] + b.mel_lengths[0] + b.token_lengths[0] + b.speakers[0];
}

json batch_times(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const auto n = static_cast<double>(ms.size());
  const double mean = std::accumulate(ms.begin(), ms.end(), 0.0) / n;
  const double squares = std::accumulate(ms.begin(), ms.end(), 0.0,
                                         [&](double s, double x) { return s + (x - mean) * (x - mean); });
  const double deviation = std::sqrt(squares / n);
  const auto quantile = [&](double q) { return ms[static_cast<std::size_t>(std::ceil(q * n)) - 1]; };
  return {{"mean", mean},         {"std", deviation},      {"cv", deviation / mean},
          {"p50", quantile(0.5)}, {"p99", quantile(0.99)}, {"max", ms.back()}};
}

/// Counts what the consumer was given.
struct Delivered {
  std::int64_t valid_frames = 0, frames = 0, rows = 0, replaced = 0;
  std::map<Shape, std::int64_t> shapes;
  double peak_anon_mb = 0, checksum = 0;

  void add(const Batch& b) {
    checksum += touch(b);
    for (const std::int32_t n : b.mel_lengths) valid_frames += n;
    for (const std::uint8_t r : b.replaced) replaced += r;
    frames += static_cast<std::int64_t>(b.shape.rows) * b.shape.frames;
    rows += b.shape.rows;
    if (shapes[b.shape]++ % 64 == 0) peak_anon_mb = std::max(peak_anon_mb, status_mb("RssAnon:"));
    check_interrupt();
  }
};

json shapes_json(const Delivered& d) {
  json out = json::array();
  for (const auto& [shape, count] : d.shapes)
    out.push_back(
        {{"rows", shape.rows}, {"tokens", shape.tokens}, {"frames", shape.frames}, {"batches", count}});
  return out;
}

json stages_json(const FeedStats& before, const FeedStats& after, double samples) {
  std::array<double, stage_count> seconds{};
  for (std::size_t i = 0; i < stage_count; ++i) seconds[i] = after.stage_seconds[i] - before.stage_seconds[i];
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  json out = json::array();
  for (std::size_t i = 0; i < stage_count; ++i)
    out.push_back({{"name", stage_names[i]},
                   {"us_per_sample", seconds[i] / samples * 1e6},
                   {"share", seconds[i] / total}});
  return out;
}

json samples_json(const std::vector<SkippedSample>& samples) {
  json out = json::array();
  for (const SkippedSample& s : samples)
    out.push_back({{"id", s.id}, {"reason", s.reason}, {"times", s.times}});
  return out;
}

json cache_json(const CacheStats& before, const CacheStats& after) {
  return {{"hits", after.hits - before.hits},
          {"misses", after.misses - before.misses},
          {"recomputed", after.recomputed - before.recomputed},
          {"bytes_read", after.bytes_read - before.bytes_read}};
}

/// A new feed, with what a person should know on the way.
std::unique_ptr<Feed> open_feed(const Config& config) {
  ProgressBar indexing("indexing"), building("caching");
  auto feed = std::make_unique<Feed>(
      config, FeedOptions{.open = {.progress = [&](std::size_t done,
                                                   std::size_t total) { indexing.update(done, total); },
                                   .building =
                                       [&](std::size_t done, std::size_t total, std::uint64_t bytes) {
                                         indexing.clear();
                                         building.update(done, total, bytes);
                                       }}});
  indexing.clear();
  building.clear();
  return feed;
}

/// One measurement: a new feed, some batches to get going, then `a.batches` that count.
json measure(const Config& config, const Arguments& a, CopyWork& copies) {
  const auto opening = Clock::now();
  const std::unique_ptr<Feed> opened = open_feed(config);
  Feed& feed = *opened;
  feed.next();
  const double first_batch_ms = milliseconds(Clock::now() - opening);
  for (int i = 0; i < config.prefetch_buffer_size; ++i) feed.next();

  Delivered delivered;
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(a.batches));
  const FeedStats before = feed.stats();
  const double cpu = cpu_seconds();
  const auto start = Clock::now();
  auto last = start;
  const auto take = [&] {
    delivered.add(feed.next());
    const auto now = Clock::now();
    if (last != start) times.push_back(milliseconds(now - last));  // from batch to batch
    last = now;
  };
  double au = 0, au_ceiling = 0;
  const auto step =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(a.step_ms));
  if (a.step_ms > 0)
    au = accelerator_utilisation(a.batches, step, take);
  else
    for (std::int64_t i = 0; i < a.batches; ++i) take();
  const double seconds = milliseconds(Clock::now() - start) / 1e3;
  const double cpu_used = cpu_seconds() - cpu;
  const FeedStats after = feed.stats();
  const auto samples = static_cast<double>(delivered.rows);

  if (a.step_ms > 0) {
    Delivered constant;
    const Batch batch = feed.next();
    au_ceiling = accelerator_utilisation(a.batches, step, [&] { constant.add(batch); });
  }
  const std::int64_t bins = config.mel.n_mels;
  copies = {.row_floats = feed.plan().largest().frames * bins, .rows = feed.plan().largest().rows};
  for (const Lengths& l : feed.dataset().lengths)
    if (l.frames <= feed.plan().largest().frames) copies.clip_floats.push_back(l.frames * bins);
  const json skipped = samples_json(feed.skipped());

  json r = {
      {"samples", delivered.rows},
      {"seconds", seconds},
      {"samples_per_second", samples / seconds},
      {"cpu_seconds_per_1000", cpu_used / samples * 1000},
      {"batch_ms", batch_times(times)},
      {"first_batch_ms", first_batch_ms},
      {"wait_ms",
       {{"p50", static_cast<double>(after.wait.quantile(0.5).count()) * 1e-6},
        {"p99", static_cast<double>(after.wait.quantile(0.99).count()) * 1e-6}}},
      {"ring_level", after.ring_level},
      {"peak_rss_mb", status_mb("VmHWM:")},
      {"peak_anon_mb", std::max(delivered.peak_anon_mb, status_mb("RssAnon:"))},
      {"padding", 1 - static_cast<double>(delivered.valid_frames) / static_cast<double>(delivered.frames)},
      {"shapes", shapes_json(delivered)},
      {"stages", stages_json(before, after, samples)},
      {"cache", cache_json(before.cache, after.cache)},
      {"recomputed_samples", samples_json(feed.recomputed())},
      {"notes", feed.dataset().notes},
      {"workers", feed.workers()},
      {"rejected", feed.plan().rejected().size()},
      {"skipped", skipped.size()},
      {"skipped_samples", skipped},
      {"valid_frames_per_sample", static_cast<double>(delivered.valid_frames) / samples}};
  if (a.step_ms > 0) r["au"] = au, r["au_ceiling"] = au_ceiling;
  return r;
}

/// What later readers of a run want to know about its feed.
void log_feed(RunLog& log, const json& r) {
  json line = r["cache"];
  line["samples_per_second"] = r["samples_per_second"];
  line["skipped"] = r["skipped"];
  log.add("feed", line.dump());
}

/// The median of every number, place by place; what is not a number is the first run's.
json median_of(const std::vector<json>& runs) {
  json out = runs.front();
  if (out.is_number_float()) {
    std::vector<double> values;
    for (const json& r : runs) values.push_back(r.get<double>());
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                     values.end());
    return values[values.size() / 2];
  }
  if (!out.is_structured() ||
      !std::all_of(runs.begin(), runs.end(), [&](const json& r) { return r.size() == out.size(); }))
    return out;
  for (auto& [key, value] : out.items()) {
    std::vector<json> children;
    for (const json& r : runs) children.push_back(out.is_array() ? r.at(std::stoul(key)) : r.at(key));
    value = median_of(children);
  }
  return out;
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
void choose_mode(Arguments& a) {
  if (a.preprocessing_mode->count() > 0) {
    if (!a.mode.empty())
      throw Error("--mode and --preprocessing-mode say the same thing: leave one of them out");
    return;
  }
  if (a.mode.empty()) return a.flags->set_default("preprocessing_mode", "runtime", "the default of bench");
  const std::string value = a.mode == "live" ? "runtime" : a.mode == "cached" ? "precompute" : "auto";
  a.flags->set("preprocessing_mode", value, "--mode " + a.mode);
}

std::string_view mode_name(PreprocessingMode mode) {
  return mode == PreprocessingMode::runtime      ? "live"
         : mode == PreprocessingMode::precompute ? "cached"
                                                 : "auto";
}

int run(Arguments& a) {
  choose_mode(a);
  Config config;
  if (!a.flags->load(config)) return 0;
  if (a.batches < 2) throw Error("--batches must be at least 2");
  std::optional<RunLog> log;
  if (!a.run_folder.empty()) log.emplace(a.run_folder);
  std::vector<json> runs;
  CopyWork copies;
  for (int i = 0; i < a.repeat; ++i) {
    runs.push_back(measure(config, a, copies));
    if (log) log_feed(*log, runs.back());
  }
  json result = median_of(runs);
  result["mode"] = mode_name(config.preprocessing_mode);
  for (const json& note : result["notes"]) fmt::print(stderr, "note: {}\n", note.get<std::string>());
  if (!a.no_limits) {
    result["limits"] = {{"memcpy_rows_per_s", memcpy_rows_per_second(copies, result["workers"].get<int>())},
                        {"mel_us_per_frame", mel_us_per_frame(config)}};
  }
  if (a.repeat > 1) result["runs"] = runs;
  if (a.json)
    fmt::print("{}\n", result.dump(2, ' ', false, json::error_handler_t::replace));
  else
    print_text(result);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("bench", "measure the feed, stage by stage, beside the machine's limits");
  a->flags = std::make_unique<ConfigFlags>(*c);
  c->add_option("--step-ms", a->step_ms,
                "emulate a device whose step takes this long, and report its utilisation")
      ->check(CLI::Range(0.01, 1e6));
  c->add_option("--batches", a->batches, "how many to measure")->capture_default_str();
  c->add_option("--repeat", a->repeat, "measure so often and report medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  c->add_option(
       "--mode", a->mode,
       "live (default; preprocessing_mode runtime), cached (precompute: what is missing is built first), "
       "or auto: use what is cached")
      ->check(CLI::IsMember({"live", "cached", "auto"}));
  a->preprocessing_mode = c->get_option("--preprocessing-mode");
  c->add_option("--run", a->run_folder, "append each measurement to RUN/log.jsonl")->type_name("RUN");
  c->add_flag("--no-limits", a->no_limits,
              "do not measure the machine's limits (which takes memory: up to 1 GiB)");
  c->add_flag("--json", a->json, "the result for programs");
  c->footer(
      "Examples:\n  penstock bench data/en\n  penstock bench data/en --mode cached\n"
      "  penstock bench data/en --step-ms 50 --batch-size 32 --shapes 4\n"
      "  penstock bench data/en --pad-to-fixed-length --max-mel-frames 880 --max-text-length 256 --json");
  c->callback([a, &action] { action = [a] { return run(*a); }; });
}

}  // namespace penstock::cli
