#include <algorithm>
#include <chrono>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

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

/// One of its shards is: whatever else may be wrong, it is not ours to judge.
bool is_from_a_newer_version(const PackSummary& pack) {
  if (pack.problem.empty()) return false;
  const Pack open(pack.folder, pack.identity, {.mapped = false});
  return std::ranges::any_of(open.problems(), [](const std::string& problem) {
    return problem.find("newer version") != std::string::npos;
  });
}

/// Why the whole pack can go; empty when it stays. `used`: of this configuration, or null.
std::string why_useless(const PackSummary& pack, const StoredArray* used,
                        const std::vector<StoredArray>& arrays, double unused_days) {
  if (is_from_a_newer_version(pack)) return {};
  if (!pack.problem.empty() && pack.records == 0) return fmt::format("cannot be read: {}", pack.problem);
  if (used) return {};
  const auto same =
      std::ranges::find(arrays, pack.identity.array, [](const auto& a) { return a.identity.array; });
  if (same != arrays.end() && !pack.identity.parameters.empty()) {
    const std::string ours = version_lines(same->identity.parameters),
                      its = version_lines(pack.identity.parameters);
    if (ours != its) return fmt::format("was made by another version ({}; this one has {})", its, ours);
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
    if (const PackEntry* entry = pack.find(u.id); entry && made_from(u, array, *entry))
      keep[entry->number] = true;
  }
  return keep;
}

/// A build that is running holds the pack's lock; whoever holds it may remove the pack. Throws Error.
File lock_pack(const fs::path& folder) {
  File lock(::open((folder / "lock").c_str(), O_RDONLY | O_CLOEXEC));
  if (lock.fd() >= 0 && ::flock(lock.fd(), LOCK_EX | LOCK_NB) != 0)
    throw Error(fmt::format("{}: a build of this pack is running: wait for it or stop it", folder.string()));
  return lock;
}

void remove_pack(const fs::path& folder) {
  const File lock = lock_pack(folder);
  std::error_code failure;
  fs::remove_all(folder, failure);
  if (failure) throw Error(fmt::format("{}: cannot be removed: {}", folder.string(), failure.message()));
}

void remove_file(const fs::path& path) {
  const File lock = lock_pack(path.parent_path());
  std::error_code failure;
  fs::remove(path, failure);
  if (failure) throw Error(fmt::format("{}: cannot be removed: {}", path.string(), failure.message()));
}

/// One pack that stays: its left-overs, and its records that nobody will read.
void prune_inside(const PackSummary& pack, const std::optional<PackIdentity>& identity,
                  const Dataset& dataset, bool remove, std::vector<PruneItem>& items) {
  for (const std::string& name : pack.leftovers) {
    std::error_code gone;
    const auto bytes = fs::file_size(pack.folder / name, gone);
    items.push_back({pack.folder / name,
                     identity
                         ? "unfinished, and its build is not running: its complete records move to a shard"
                         : "unfinished, and its build is not running",
                     gone ? 0 : bytes});
    if (remove && !identity) remove_file(pack.folder / name);
  }
  if (!identity) return;
  const auto writer =
      remove ? std::make_unique<PackWriter>(pack.folder, *identity) : nullptr;  // takes in left-overs
  const Pack open(pack.folder, *identity, {.mapped = false});
  const std::vector<bool> keep = worth_keeping(open, identity->array, dataset);
  PruneItem dropped{.path = pack.folder};
  std::int64_t records = 0;
  for (const PackEntry& entry : open.entries())
    if (!keep[entry.number]) ++records, dropped.bytes += entry.bytes;
  if (records == 0) return;
  dropped.reason =
      fmt::format("{} of its {} records are replaced, stale or of no utterance: it is rewritten without them",
                  records, open.entries().size());
  if (remove) {
    writer->rewrite(open, [&](const PackEntry& entry) { return keep[entry.number]; });
    writer->finish();
  }
  items.push_back(std::move(dropped));
}

}  // namespace

std::vector<PruneItem> prune_cache(const Config& config, const Dataset& dataset,
                                   const CachePruneOptions& options) {
  const std::vector<StoredArray> arrays = stored_arrays(config, dataset);
  std::vector<PruneItem> items;
  for (const PackSummary& pack : list_packs(pack_folder(config, dataset))) {
    const auto found = std::ranges::find(arrays, pack.folder.filename(),
                                         [](const StoredArray& a) { return a.folder.filename(); });
    const StoredArray* used = found == arrays.end() ? nullptr : &*found;
    if (std::string reason = why_useless(pack, used, arrays, options.unused_days); !reason.empty()) {
      items.push_back({pack.folder, std::move(reason), pack.bytes});
      if (options.remove) remove_pack(pack.folder);
      continue;
    }
    if (is_from_a_newer_version(pack)) continue;
    std::optional<PackIdentity> identity;
    if (used)
      identity = used->identity;
    else if (!pack.identity.parameters.empty())
      identity = pack.identity;
    prune_inside(pack, identity, dataset, options.remove, items);
  }
  return items;
}

}  // namespace penstock
