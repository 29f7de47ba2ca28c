// The work on a dataset's caches: build, verify, export, prune. What the feed reads is in store.h.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/cache/pack.h"
#include "penstock/cache/pack_writer.h"
#include "penstock/core/config.h"
#include "penstock/core/error.h"
#include "penstock/feed/cache_kind.h"
#include "penstock/feed/dataset.h"

namespace penstock {

/// Called now and then from one thread at a time; may throw, which ends the work in good order.
using CacheProgress = std::function<void(std::size_t done, std::size_t total, std::uint64_t bytes)>;

struct CacheBuildOptions {
  bool mel = true, tokens = true, extras = true;  ///< mel: or the samples, as `cache_kind` says
  bool overwrite = false;                         ///< build every record again
  bool wait = false;                              ///< for another build of the same pack, instead of an Error
  std::uint64_t shard_bytes = PackWriterOptions{}.shard_bytes;
  CacheProgress progress;
  std::optional<CacheCosts> costs;  ///< decide `cache_kind: auto` by these instead of measuring
};

/// Only one array: mel (or pcm: what mels come from), tokens, or the name of an extra, which is then the only
/// one that is opened. Throws Error for another name.
void build_only(const std::string& array, Config& config, CacheBuildOptions& options);

struct CacheBuildReport {
  CacheKindChoice kind;
  std::int64_t built = 0, kept = 0;      ///< records, all arrays together
  std::int64_t utterances = 0;           ///< that missed something
  std::uint64_t bytes = 0;               ///< written
  double seconds = 0, sync_seconds = 0;  ///< the whole build; its last part, in which the disk catches up.
                                         ///< What the decision took is not in them
  std::vector<std::filesystem::path> packs;  ///< folders
  std::vector<SampleError> bad;              ///< could not be cached (`on_bad_sample: skip`)

  /// Utterances a second of the work alone: what the disk takes to catch up at the end depends on its cache,
  /// not on us.
  [[nodiscard]] double rate() const {
    const double work = seconds - sync_seconds;
    return utterances > 0 && work > 0 ? static_cast<double>(utterances) / work : 0;
  }
};

/// Utterances that the index knows to be bad, as bad samples. Throws the first one where they may not be left
/// out (`on_bad_sample: fail`).
std::vector<SampleError> known_bad(const Config& config, const Dataset& dataset);

/// Builds what is missing or stale in the packs of this configuration, for all members of `dataset`; each
/// array in a record per member. A bad sample ends the build (SampleError) or is counted (`on_bad_sample`);
/// in both cases, and when `progress` throws, every record that was finished stays. Throws Error: disk full
/// (before anything is written where that can be seen), another build, a folder that cannot be written.
/// `cache_kind: auto` is decided first, where it is not yet.
CacheBuildReport build_cache(const Config& config, const Dataset& dataset,
                             const CacheBuildOptions& options = {});

/// A record, or a file of a .npy tree, that is not as it should be.
struct CacheFinding {
  enum class Kind { bad, stale, missing, orphaned };
  Kind kind = Kind::bad;
  std::string array;   ///< mel, pcm, tokens, f0
  std::string id;      ///< empty when it is about a whole file
  std::string reason;  ///< what is wrong, and with which file
  bool fixed = false;  ///< is no more
};

struct CacheCheck {
  std::int64_t checked = 0, bad = 0, stale = 0, missing = 0, orphaned = 0;
  std::int64_t fixed = 0;              ///< findings that are no more
  std::vector<CacheFinding> findings;  ///< by array, then in the dataset's order
  [[nodiscard]] bool clean() const {   ///< nothing is wrong, or nothing any more
    return fixed == bad + stale + missing + orphaned;
  }
};

struct CacheVerifyOptions {
  bool fix =
      false;  ///< rewrites damaged packs, drops what is bad, stale or orphaned and builds what is missing
  CacheProgress progress;
};

/// Checks every record of this configuration's packs (those that exist) and every file of its .npy trees, in
/// parallel, against the dataset as it is on disk now.
/// bad: damaged. stale: made from another state of its source. missing: no record though the pack exists.
/// orphaned: of no utterance of the dataset.
CacheCheck verify_cache(const Config& config, const Dataset& dataset, const CacheVerifyOptions& options = {});

struct CacheExportReport {
  std::int64_t arrays = 0;
  std::uint64_t bytes = 0;
  std::vector<SampleError> bad;  ///< left out (`on_bad_sample: skip`)
};

/// Writes OUT/mels/<id>.npy, OUT/tokens/<id>.npy and OUT/<extra>/<id>.npy: what the feed would put into a
/// row, without padding; from the cache where there is one, computed where not. Mels as [frames, bins] or
/// [bins, frames] (mel_layout), float32 or float16 (cache_type); tokens int32.
CacheExportReport export_npy(const Config& config, const Dataset& dataset, const std::filesystem::path& out,
                             const CacheProgress& progress = {});

/// A pack in the dataset's folder.
struct ListedPack {
  PackSummary pack;
  bool current = false;    ///< this configuration uses it
  std::string difference;  ///< its main parameters, or for another configuration's pack those that differ
                           ///< from this one's
};
std::vector<ListedPack> listed_packs(const Config& config, const Dataset& dataset);
/// PackIdentity::parameters line by line.
std::vector<std::pair<std::string, std::string>> pack_parameters(const PackIdentity& identity);

/// What prune would remove, or has removed.
struct PruneItem {
  std::filesystem::path path;  ///< a pack's folder, a left-over file, or a pack to be rewritten
  std::string reason;
  std::uint64_t bytes = 0;
};

struct CachePruneOptions {
  bool remove = false;      ///< otherwise only says what it would do
  double unused_days = 30;  ///< packs of other configurations that no feed has opened for so long are unused
};

/// Stale: records that a newer one has replaced or whose utterance is gone (the pack is rewritten without
/// them), unfinished files of builds that are not running, packs of other kernel versions, packs that cannot
/// be read (but never those of a newer version). Unused: packs that this configuration does not use and that
/// no feed has opened for `unused_days`.
std::vector<PruneItem> prune_cache(const Config& config, const Dataset& dataset,
                                   const CachePruneOptions& options = {});

}  // namespace penstock
