#include "penstock/monitor/run_reader.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/monitor/probe.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::size_t most_named = 10;   // damaged lines
constexpr std::size_t remembered = 256;  // bytes in front of where the next call reads on
constexpr std::size_t chunk = 1 << 18;
constexpr std::size_t longest_line = 64 << 20;

/// `object[key]`, where it is there. A number that is not finite is null in JSON, and so not there.
template <typename T>
void get(const json& object, const char* key, T& into) {
  const auto found = object.find(key);
  if (found != object.end() && !found->is_null()) found->get_to(into);
}

void get(const json& object, const char* key, Shape& into) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  const auto sizes = found->get<std::array<std::int32_t, 3>>();
  into = {.rows = sizes[0], .tokens = sizes[1], .frames = sizes[2]};
}

/// In the stages' own order; JSON has lost it. Others follow.
std::vector<std::pair<std::string, double>> stages_of(const json& object) {
  std::vector<std::pair<std::string, double>> stages;
  const auto found = object.find("stages");
  if (found == object.end()) return stages;
  auto left = found->get<std::map<std::string, double>>();
  for (const char* name : stage_names)
    if (auto node = left.extract(name)) stages.emplace_back(name, node.mapped());
  stages.insert(stages.end(), left.begin(), left.end());
  return stages;
}

StepRecord step_of(const json& o) {
  StepRecord r;
  get(o, "t", r.t), get(o, "step", r.step), get(o, "epoch", r.epoch);
  get(o, "loss", r.loss), get(o, "lr", r.learning_rate), get(o, "grad_norm", r.grad_norm);
  get(o, "step_ms", r.step_ms), get(o, "data_ms", r.data_ms), get(o, "au", r.au);
  get(o, "frames_per_s", r.frames_per_s), get(o, "padding", r.padding), get(o, "retraces", r.retraces);
  get(o, "shape", r.shape), get(o, "ring", r.ring), get(o, "skipped", r.skipped);
  return r;
}

FeedRecord feed_of(const json& o) {
  FeedRecord r;
  get(o, "t", r.t), get(o, "samples", r.samples), get(o, "samples_per_second", r.samples_per_second);
  r.stages = stages_of(o);
  get(o, "workers", r.workers), get(o, "depth", r.depth), get(o, "ring_level", r.ring_level);
  get(o, "hits", r.hits), get(o, "misses", r.misses), get(o, "recomputed", r.recomputed);
  get(o, "bytes_read", r.bytes_read), get(o, "skipped", r.skipped);
  if (const auto samples = o.find("skipped_samples"); samples != o.end())
    for (const json& s : *samples) {
      SkippedRecord& skipped = r.skipped_samples.emplace_back();
      get(s, "id", skipped.id), get(s, "reason", skipped.reason), get(s, "times", skipped.times);
    }
  return r;
}

SummaryRecord summary_of(const json& o) {
  SummaryRecord r;
  get(o, "t", r.t), get(o, "step", r.step), get(o, "updates", r.updates), get(o, "retraces", r.retraces);
  get(o, "shapes_planned", r.shapes_planned), get(o, "compute_s", r.compute_s), get(o, "data_s", r.data_s);
  get(o, "elapsed_s", r.elapsed_s), get(o, "au", r.au), get(o, "padding", r.padding);
  get(o, "frames_per_s", r.frames_per_s), get(o, "limit", r.limit), get(o, "workers", r.workers);
  r.stages = stages_of(o);
  return r;
}

TuneRecord tune_of(const json& o) {
  TuneRecord r;
  get(o, "t", r.t), get(o, "epoch", r.epoch), get(o, "step", r.step);
  get(o, "workers", r.workers), get(o, "depth", r.depth), get(o, "reason", r.reason);
  return r;
}

GpuRecord gpu_of(const json& o) {
  GpuRecord r;
  get(o, "index", r.index), get(o, "name", r.name), get(o, "utilisation", r.utilisation);
  get(o, "memory_used", r.memory_used), get(o, "memory_total", r.memory_total), get(o, "power_w", r.power_w);
  get(o, "clock_mhz", r.clock_mhz), get(o, "pcie_rx", r.pcie_rx), get(o, "pcie_tx", r.pcie_tx);
  return r;
}

SystemRecord system_of(const json& o) {
  SystemRecord r;
  get(o, "t", r.t), get(o, "faults_major", r.major_faults);
  if (const auto gpus = o.find("gpus"); gpus != o.end())
    for (const json& gpu : *gpus) r.gpus.push_back(gpu_of(gpu));
  if (const auto cpu = o.find("cpu"); cpu != o.end())
    get(*cpu, "busy", r.cpu_busy), get(*cpu, "cores", r.cores);
  if (const auto memory = o.find("memory"); memory != o.end()) {
    get(*memory, "total", r.memory_total), get(*memory, "available", r.memory_available);
    get(*memory, "used", r.memory_used), get(*memory, "page_cache", r.page_cache);
  }
  if (const auto disk = o.find("disk"); disk != o.end())
    get(*disk, "read", r.disk_read), get(*disk, "write", r.disk_write);
  return r;
}

EventRecord event_of(const json& o, std::string_view line) {
  EventRecord r;
  get(o, "t", r.t), get(o, "event", r.event), get(o, "step", r.step), get(o, "epoch", r.epoch);
  get(o, "loss", r.loss), get(o, "seconds", r.seconds), get(o, "cause", r.cause);
  if (const auto shape = o.find("shape"); shape != o.end() && shape->is_array() && shape->size() == 3)
    get(o, "shape", r.shape);
  // A validation counts its utterances; a retrace names them.
  if (const auto ids = o.find("utterances"); ids != o.end() && ids->is_array()) ids->get_to(r.utterances);
  r.text = line;
  return r;
}

void add_record(const json& object, std::string_view line, RunRecords& to) {
  std::string kind;
  get(object, "kind", kind);
  if (kind == "step")
    to.steps.push_back(step_of(object));
  else if (kind == "feed" && object.contains("updates"))
    to.summaries.push_back(summary_of(object));
  else if (kind == "feed")
    to.feed.push_back(feed_of(object));
  else if (kind == "tune")
    to.tune.push_back(tune_of(object));
  else if (kind == "gpu")
    to.system.push_back(system_of(object));
  else if (kind == "event")
    to.events.push_back(event_of(object, line));
}

}  // namespace

RunReader::RunReader(const std::filesystem::path& run) : path_(run / "log.jsonl") {
  std::error_code none;
  if (!std::filesystem::is_directory(run, none))
    throw Error(fmt::format("{}: is no folder; a run's folder is wanted, as train --run and bench --run make",
                            run.string()));
  if (!std::filesystem::exists(path_, none))
    throw Error(fmt::format("{}: is not there, so {} is no run's folder, or nothing has been logged yet",
                            path_.string(), run.string()));
}

bool RunReader::was_cut(const File& file) const {
  std::string now(before_.size(), '\0');
  const auto at = offset_ - static_cast<std::int64_t>(before_.size());
  return file.read_at(at, std::as_writable_bytes(std::span(now))) < now.size() || now != before_;
}

bool RunReader::read_on() {
  const std::size_t lines = records_.lines;
  bool again = false;
  try {
    const File file = File::open(path_.c_str());
    if (again = was_cut(file); again) records_ = {}, offset_ = 0, before_.clear();
    std::string text;  // from offset_ on
    for (;;) {
      const std::size_t kept = text.size();
      text.resize(kept + chunk);
      const std::size_t got = file.read_at(offset_ + static_cast<std::int64_t>(kept),
                                           std::as_writable_bytes(std::span(text).subspan(kept)));
      text.resize(kept + got);
      const std::size_t whole = text.rfind('\n') + 1;  // npos + 1 is 0: the end of the line is not here yet
      take_lines(std::string_view(text).substr(0, whole));
      text.erase(0, whole);
      if (got < chunk) break;
      if (text.size() > longest_line)
        throw Error(fmt::format("{}: line {} is longer than {} MB: this is no log of ours", path_.string(),
                                records_.lines + 1, longest_line >> 20));
    }
  } catch (const std::system_error& e) {
    throw Error(fmt::format("{}: cannot be read: {}", path_.string(), e.code().message()));
  }
  return again || records_.lines != lines;
}

void RunReader::take_lines(std::string_view text) {
  if (text.empty()) return;
  offset_ += static_cast<std::int64_t>(text.size());
  before_ = text.substr(text.size() - std::min(text.size(), remembered));
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    take(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

void RunReader::take(std::string_view line) {
  ++records_.lines;
  const auto damaged = [&](const char* reason) {
    if (++records_.damaged_lines <= most_named)
      records_.first_damaged.push_back({.number = records_.lines, .reason = reason});
  };
  try {
    const json object = json::parse(line);
    if (!object.is_object()) return damaged("must be a JSON object, but is something else");
    add_record(object, line, records_);
  } catch (const json::exception& e) {
    damaged(e.what());
  }
}

RunRecords read_run(const std::filesystem::path& run) {
  RunReader reader(run);
  reader.read_on();
  return reader.records();
}

}  // namespace penstock
