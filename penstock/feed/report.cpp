#include "penstock/feed/report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/feed/store.h"

namespace penstock {

using nlohmann::json;

namespace {

json batch_json(const Config& config) {
  if (config.batch_size > 0) return {{"batch_size", config.batch_size}, {"world", config.world}};
  return {{"batch_size", "auto"},
          {"world", config.world},
          {"device_memory", config.device_memory},
          {"frame_memory", config.frame_memory},
          {"frames_budget", frames_budget(config)}};
}

json bad_json(const std::vector<SampleError>& bad) {
  json out = json::array();
  for (const SampleError& e : bad) out.push_back({{"id", e.utterance}, {"reason", e.what()}});
  return out;
}

json packs_json(const std::vector<ListedPack>& packs) {
  json out = json::array();
  for (const auto& [pack, current, difference] : packs) {
    json parameters = json::object();
    for (const auto& [key, value] : pack_parameters(pack.identity)) parameters[key] = value;
    out.push_back({{"array", pack.identity.array},
                   {"folder", pack.folder.string()},
                   {"current", current},
                   {"records", pack.records},
                   {"shards", pack.shards},
                   {"bytes", pack.bytes},
                   {"written", static_cast<double>(pack.written_ns) * 1e-9},
                   {"used", static_cast<double>(pack.used_ns) * 1e-9},
                   {"parameters", parameters},
                   {"leftovers", pack.leftovers},
                   {"problem", pack.problem}});
  }
  return out;
}

}  // namespace

std::string_view kind_name(CacheFinding::Kind kind) {
  static constexpr std::string_view names[] = {"bad", "stale", "missing", "orphaned"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view kind_name(const CacheKindChoice& choice) {
  return choice.kind == CacheKind::pcm ? "pcm" : "mel";
}

json info_json(const Dataset& dataset, const Config& config, const DatasetInfo& info) {
  const auto problems = [](const std::vector<DatasetProblem>& list) {
    json out = json::array();
    for (const DatasetProblem& p : list) out.push_back({{"id", p.id}, {"reason", p.reason}});
    return out;
  };
  json shapes = json::array();
  for (const ShapeChoice& c : info.shapes) {
    json list = json::array();
    for (const Shape& shape : c.shapes)
      list.push_back({{"rows", shape.rows}, {"tokens", shape.tokens}, {"frames", shape.frames}});
    shapes.push_back({{"count", c.count}, {"shapes", list}, {"padding", c.padding}, {"dropped", c.dropped}});
  }
  json notes = json::array();
  if (!dataset.index.note().empty()) notes.push_back(dataset.index.note());
  for (const std::string& note : dataset.notes) notes.push_back(note);
  json characters = json::object();
  for (const CharacterCount& c : dataset.index.characters())
    characters[fmt::format("U+{:04X}", c.character)] = c.count;
  return {{"clips", info.clips},
          {"train", info.train},
          {"validation", info.validation},
          {"hours", info.hours},
          {"seconds", {{"min", info.min_seconds}, {"max", info.max_seconds}}},
          {"speakers", dataset.index.speakers().size()},
          {"unreadable", problems(info.unreadable)},
          {"rejected", problems(info.rejected)},
          {"characters", characters},
          {"batch", batch_json(config)},
          {"shapes", shapes},
          {"cache", packs_json(info.packs)},
          {"notes", notes}};
}

json build_json(const CacheBuildReport& report) {
  json packs = json::array();
  for (const auto& pack : report.packs) packs.push_back(pack.string());
  return {{"cache_kind", kind_name(report.kind)},
          {"reason", report.kind.reason},
          {"built", report.built},
          {"kept", report.kept},
          {"bytes", report.bytes},
          {"seconds", report.seconds},
          {"sync_seconds", report.sync_seconds},
          {"samples_per_second", report.rate()},
          {"packs", packs},
          {"bad", report.bad.size()},
          {"bad_samples", bad_json(report.bad)}};
}

json check_json(const CacheCheck& c) {
  json findings = json::array();
  for (const CacheFinding& f : c.findings)
    findings.push_back({{"kind", kind_name(f.kind)},
                        {"array", f.array},
                        {"id", f.id},
                        {"reason", f.reason},
                        {"fixed", f.fixed}});
  return {{"checked", c.checked},   {"bad", c.bad},     {"stale", c.stale},    {"missing", c.missing},
          {"orphaned", c.orphaned}, {"fixed", c.fixed}, {"findings", findings}};
}

json export_json(const CacheExportReport& report, const std::filesystem::path& folder) {
  return {{"arrays", report.arrays},
          {"bytes", report.bytes},
          {"folder", folder.string()},
          {"bad", report.bad.size()},
          {"bad_samples", bad_json(report.bad)}};
}

json packs_json(const Config& config, const Dataset& dataset) {
  const CacheKindChoice kind = cache_kind_of(config, dataset);
  return {{"folder", pack_folder(config, dataset).string()},
          {"cache_kind", kind_name(kind)},
          {"reason", kind.reason},
          {"packs", packs_json(listed_packs(config, dataset))}};
}

json prune_json(const std::vector<PruneItem>& items, bool removed) {
  std::uint64_t bytes = 0;
  json list = json::array();
  for (const PruneItem& item : items) {
    bytes += item.bytes;
    list.push_back({{"path", item.path.string()}, {"reason", item.reason}, {"bytes", item.bytes}});
  }
  return {{"removed", removed}, {"bytes", bytes}, {"items", list}};
}

}  // namespace penstock
