// What `cache_kind: auto` stands for: decided once per dataset, when its cache is built, and kept beside the
// packs. So every later run takes the same, live ones too, and a batch's bytes never depend on a
// measurement's luck.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "penstock/core/config.h"
#include "penstock/feed/dataset.h"

namespace penstock {

struct CacheKindChoice {
  CacheKind kind = CacheKind::mel;  ///< mel or pcm
  std::string reason;  ///< one sentence with the figures; empty where the configuration names the kind
  bool final = true;   ///< false: another build may decide otherwise
};

/// What the decision rests on.
struct CacheCosts {
  std::int64_t samples = 0;                    ///< that were measured
  double decode_ms = 0, mel_ms = 0;            ///< a sample; reading belongs to decoding
  std::uint64_t pcm_bytes = 0, mel_bytes = 0;  ///< still to be written
  std::uint64_t free_bytes = 0;                ///< on the disk
};

/// pcm where decoding is at least three quarters of the work (so that it keeps three quarters of what a mel
/// cache saves, and survives changes of the mel) and its pack fits with an eighth to spare; mel otherwise.
/// The one that fits where the other does not; mel, and not final, where neither does.
CacheKindChoice choose_cache_kind(const CacheCosts& costs);

/// Where the decision is kept.
std::filesystem::path cache_kind_file(const Config& config, const Dataset& dataset);

/// The configured kind; for auto the one that is kept, or mel where there is none yet. Throws Error for a
/// kept one that cannot be read: to decide again could change what a run is fed.
CacheKindChoice cache_kind_of(const Config& config, const Dataset& dataset);

/// The configuration with that kind: everything that reads or writes packs or computes rows works with it.
Config with_cache_kind(Config config, const Dataset& dataset);

/// For a build: as cache_kind_of(), but where nothing is kept it measures (or takes `costs`), decides and
/// keeps. Of several processes one measures and the others wait. Throws Error for a folder that cannot be
/// written.
CacheKindChoice decide_cache_kind(const Config& config, const Dataset& dataset,
                                  const std::optional<CacheCosts>& costs = {});

}  // namespace penstock
