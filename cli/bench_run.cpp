// One measurement of the feed, as `bench` repeats it.
#include "cli/bench_run.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include <sys/resource.h>

#include "cli/terminal.h"
#include "penstock/core/clock.h"
#include "penstock/feed/device_feed.h"
#include "penstock/monitor/series.h"
#include "penstock/monitor/step_clock.h"

namespace penstock::cli {
namespace {

using nlohmann::json;

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

/// What a consumer must at least do with a batch: look at every array (on another device: what the host has
/// of it).
double touch(const Batch& b) {
  const double arrays = b.mel.empty() ? 0 : static_cast<double>(b.mel[0]) + b.tokens[0];
  return arrays + b.mel_lengths[0] + b.token_lengths[0] + b.speakers[0];
}

json batch_times(const std::vector<double>& ms) {
  const SeriesSummary s = summarise(ms);
  return {{"mean", s.mean}, {"std", s.deviation}, {"cv", s.cv},
          {"p50", s.p50},   {"p99", s.p99},       {"max", s.max}};
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
std::unique_ptr<DeviceFeed> open_feed(const Config& config, const BenchWork& work, BenchLog* log) {
  ProgressBar indexing("indexing"), building("caching");
  FeedOptions options{
      .open = {.progress = [&](std::size_t done, std::size_t total) { indexing.update(done, total); },
               .building =
                   [&](std::size_t done, std::size_t total, std::uint64_t bytes) {
                     indexing.clear();
                     building.update(done, total, bytes);
                   }},
      .trace = work.trace};
  if (log) options.tuned = [log](const TuneChange& change) { log_tune(log->log(), change); };
  auto feed = std::make_unique<DeviceFeed>(config, options);
  indexing.clear();
  building.clear();
  return feed;
}

/// The consumer: takes batches, and lets go of each when the step on the next one has begun, as a host does
/// whose device computes by itself.
class Consumer {
 public:
  /// Its waits go on `track`, where there is one.
  Consumer(DeviceFeed& feed, TraceTrack* track) : feed_(feed), track_(track) {}

  void take() {
    const auto asked = Clock::now();
    DeviceBatch next = feed_.next();
    const auto got = Clock::now();
    next.wait();
    const auto arrived = Clock::now();
    last_batch_ = std::exchange(batch_, std::move(next));
    waits_ms.push_back(milliseconds(arrived - asked));
    if (track_) {
      track_->set_place({.epoch = batch_.host().epoch, .step = batch_.host().step});
      track_->add("wait", asked, arrived);
    }
    filling += got - asked - feed_.copy_wait();
    copying += arrived - got + feed_.copy_wait();
    delivered.add(batch_.host());
    if (last_ != Clock::time_point{}) times.push_back(milliseconds(arrived - last_));  // from batch to batch
    last_ = arrived;
  }
  void let_go() { last_batch_ = {}; }
  [[nodiscard]] const Batch& batch() const { return batch_.host(); }

  Delivered delivered;
  std::vector<double> times;
  std::vector<double> waits_ms;            // for each batch
  Clock::duration filling{0}, copying{0};  // waited for

 private:
  DeviceFeed& feed_;
  TraceTrack* track_;
  DeviceBatch batch_, last_batch_;
  Clock::time_point last_;
};

/// What a batch costs in each part, and how much of that the consumer did not notice.
json parts_json(const Consumer& consumer, const FeedStats& before, const FeedStats& after,
                const DeviceStats& copied, double step_ms) {
  const auto batches = static_cast<double>(consumer.times.size() + 1);
  const auto part = [&](double seconds, Clock::duration waited) {
    const double ms = seconds / batches * 1e3, waited_ms = milliseconds(waited) / batches;
    return json{{"ms", ms}, {"hidden", ms > 0 ? std::clamp(1 - waited_ms / ms, 0.0, 1.0) : 1.0}};
  };
  double work = 0;
  for (std::size_t i = 0; i < stage_count; ++i) work += after.stage_seconds[i] - before.stage_seconds[i];
  json parts = {{"fill", part(work / after.active_workers, consumer.filling)}, {"step", {{"ms", step_ms}}}};
  if (copied.bytes > 0) parts["copy"] = part(copied.copy_seconds, consumer.copying);
  return parts;
}

DeviceStats operator-(const DeviceStats& a, const DeviceStats& b) {
  return {.batches = a.batches - b.batches,
          .bytes = a.bytes - b.bytes,
          .copy_seconds = a.copy_seconds - b.copy_seconds};
}

}  // namespace

json measure(const Config& config, const BenchWork& work, CopyWork& copies, BenchLog* log) {
  const auto opening = Clock::now();
  const std::unique_ptr<DeviceFeed> opened = open_feed(config, work, log);
  const Feed& feed = opened->feed();
  opened->next().wait();
  const double first_batch_ms = milliseconds(Clock::now() - opening);
  for (int i = 0; i < config.prefetch_buffer_size; ++i) opened->next().wait();

  TraceTrack* const track = work.trace ? &work.trace->track("steps") : nullptr;
  Consumer consumer(*opened, track);
  consumer.times.reserve(static_cast<std::size_t>(work.batches));
  consumer.waits_ms.reserve(static_cast<std::size_t>(work.batches));
  if (log) log->start(feed, work.batches, work.step_ms, first_batch_ms);
  const FeedStats before = feed.stats();
  const DeviceStats copied_before = opened->device_stats();
  const double cpu = cpu_seconds();
  const auto start = Clock::now();
  const auto step =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(work.step_ms));
  StepClock steps(check_interrupt);
  for (std::int64_t i = 0; i < work.batches; ++i) {
    consumer.take();
    const auto begun = Clock::now();
    if (work.step_ms > 0) steps.start(step);
    consumer.let_go();
    if (log)
      log->step(consumer.batch(), consumer.waits_ms.back(),
                i > 0 ? consumer.times.back() : consumer.waits_ms.back() + work.step_ms);
    if (work.step_ms > 0) steps.finish();
    if (track && work.step_ms > 0) track->add("step", begun, Clock::now());
  }
  const double seconds = milliseconds(Clock::now() - start) / 1e3;
  const double cpu_used = cpu_seconds() - cpu;
  const FeedStats after = feed.stats();
  if (log) log->finish();
  const DeviceStats copied = opened->device_stats() - copied_before;
  const SeriesSummary waits = summarise(consumer.waits_ms);
  const Delivered& delivered = consumer.delivered;
  const auto samples = static_cast<double>(delivered.rows);

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
      {"batch_ms", batch_times(consumer.times)},
      {"first_batch_ms", first_batch_ms},
      {"wait_ms", {{"p50", waits.p50}, {"p99", waits.p99}}},
      {"ring_level", ring_level_between(before, after)},
      {"peak_rss_mb", status_mb("VmHWM:")},
      {"peak_anon_mb", std::max(delivered.peak_anon_mb, status_mb("RssAnon:"))},
      {"padding", 1 - static_cast<double>(delivered.valid_frames) / static_cast<double>(delivered.frames)},
      {"shapes", shapes_json(delivered)},
      {"stages", stages_json(before, after, samples)},
      {"cache", cache_json(before.cache, after.cache)},
      {"recomputed_samples", samples_json(feed.recomputed())},
      {"notes", feed.dataset().notes},
      {"workers", after.active_workers},
      {"depth", after.depth},
      {"tune_changes", after.tune_changes},
      {"device", opened->device().info().name},
      {"rejected", feed.plan().rejected().size()},
      {"skipped", skipped.size()},
      {"skipped_samples", skipped},
      {"valid_frames_per_sample", static_cast<double>(delivered.valid_frames) / samples}};
  if (work.step_ms > 0) {
    StepClock ceiling(check_interrupt);
    Delivered constant;
    for (std::int64_t i = 0; i < work.batches; ++i) {
      constant.add(consumer.batch());
      ceiling.step(step);
    }
    r["au"] = steps.au();
    r["au_ceiling"] = ceiling.au();
    r["cpu_share"] = cpu_used / seconds;
    r["parts"] = parts_json(consumer, before, after, copied, work.step_ms);
  }
  return r;
}

/// The median of every fraction, place by place; whole numbers and all else are the first run's.
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

}  // namespace penstock::cli
