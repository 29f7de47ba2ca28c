#include <algorithm>
#include <chrono>
#include <system_error>

#include <fmt/format.h>

#include "penstock/feed/cache.h"
#include "penstock/feed/cache_work.h"
#include "penstock/feed/store.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// The lines of a pack's parameters that name the version of the code that made it: `mel_version: 3`.
std::string version_lines(std::string_view parameters) {
  std::string lines;
  for (std::size_t at = 0; at < parameters.size();) {
    const std::size_t end = std::min(parameters.find('\n', at), parameters.size());
    const std::string_view line = parameters.substr(at, end - at);
    if (line.find("_version:") != std::string_view::npos)
      lines += fmt::format("{}{}", lines.empty() ? "" : ", ", line);
    at = end + 1;
  }
  return lines;
}

double days_since(std::int64_t ns) {
  using namespace std::chrono;
  const auto age = system_clock::now().time_since_epoch() - nanoseconds(ns);
  return duration<double>(age).count() / 86400;
}

/// One of its shards is from a newer version: whatever else is wrong with the pack, it is not ours to judge.
bool is_too_new(const Pack& pack) {
  return std::ranges::any_of(pack.problems(), [](const std::string& problem) {
    return problem.find("newer version") != std::string::npos;
  });
}

/// Why the whole pack can go; empty when it stays. `used`: of this configuration, or null. `ours`: what this
/// version makes of the configuration, whatever its `cache_kind` is.
std::string why_useless(const PackSummary& pack, const Pack& open, const StoredArray* used,
                        const std::vector<PackIdentity>& ours, double unused_days) {
  if (!pack.problem.empty() && open.entries().empty()) return fmt::format("cannot be read: {}", pack.problem);
  if (used) return {};
  if (pack.shards == 0 && !pack.leftovers.empty())
    return "has only unfinished files, and their build is not running";
  const auto same = std::ranges::find(ours, pack.identity.array, &PackIdentity::array);
  if (same != ours.end() && !pack.identity.parameters.empty()) {
    const std::string here = version_lines(same->parameters), its = version_lines(pack.identity.parameters);
    if (here != its) return fmt::format("was made by another version ({}; this one has {})", its, here);
  }
  const double days = days_since(std::max(pack.used_ns, pack.written_ns));
  if (days < unused_days) return {};
  return fmt::format("unused for {:.0f} days, and not of this configuration", days);
}

/// Which records may stay: the newest of an utterance as it is now. By number.
std::vector<bool> worth_keeping(const Pack& pack, const std::string& array, const Dataset& dataset) {
  std::vector<bool> keep(pack.entries().size());
  for (std::int64_t i = 0; i < dataset.index.size(); ++i) {
    const Utterance u = dataset.index.utterance(i);
    if (const PackEntry* entry = pack.find(u.id, xxh3(u.path)); entry && made_from(u, array, *entry))
      keep[entry->number] = true;
  }
  return keep;
}

/// A pack that stays: its left-overs, and its records that nobody will read.
void prune_inside(const PackSummary& pack, const Pack& open, const PackIdentity& identity,
                  const Dataset& dataset, bool remove, std::vector<PruneItem>& items) {
  for (const std::string& name : pack.leftovers) {
    std::error_code gone;
    const auto bytes = fs::file_size(pack.folder / name, gone);
    items.push_back({pack.folder / name,
                     "unfinished, and its build is not running: its complete records move to a shard",
                     gone ? 0 : bytes});
  }
  std::vector<bool> keep = worth_keeping(open, identity.array, dataset);
  const auto useless = [&](const PackEntry& entry) { return !keep[entry.number]; };
  if (const auto records = std::ranges::count_if(open.entries(), useless); records > 0) {
    PruneItem dropped{
        .path = pack.folder,
        .reason = fmt::format("{} of its {} records are replaced, stale or of no utterance: it is "
                              "rewritten without them",
                              records, open.entries().size())};
    for (const PackEntry& entry : open.entries())
      if (useless(entry)) dropped.bytes += entry.bytes;
    items.push_back(std::move(dropped));
  } else if (pack.leftovers.empty()) {
    return;
  }
  if (!remove) return;
  PackWriter writer(pack.folder, identity);  // takes in what is left over
  const Pack now(pack.folder, identity, {.mapped = false});
  keep = worth_keeping(now, identity.array, dataset);
  writer.rewrite(now, [&](const PackEntry& entry) { return keep[entry.number]; });
  writer.finish();
}

}  // namespace

std::vector<PruneItem> prune_cache(const Config& config, const Dataset& dataset,
                                   const CachePruneOptions& options) {
  const std::vector<StoredArray> arrays = stored_arrays(config, dataset);
  std::vector<PackIdentity> identities{mel_pack(config), pcm_pack(config)};
  for (const StoredArray& array : arrays) identities.push_back(array.identity);
  std::vector<PruneItem> items;
  for (const PackSummary& pack : list_packs(pack_folder(config, dataset))) {
    const auto found = std::ranges::find(arrays, pack.folder.filename(),
                                         [](const StoredArray& a) { return a.folder.filename(); });
    const StoredArray* used = found == arrays.end() ? nullptr : &*found;
    const PackIdentity& identity = used ? used->identity : pack.identity;
    const Pack open(pack.folder, identity, {.mapped = false});
    if (is_too_new(open)) continue;
    if (std::string reason = why_useless(pack, open, used, identities, options.unused_days);
        !reason.empty()) {
      items.push_back({pack.folder, std::move(reason), pack.bytes});
      if (options.remove) remove_pack(pack.folder);
      continue;
    }
    prune_inside(pack, open, identity, dataset, options.remove, items);
  }
  return items;
}

}  // namespace penstock
