// The caches of a dataset as the feed sees them: for every member, where each of its arrays is kept.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "penstock/cache/pack.h"
#include "penstock/core/config.h"
#include "penstock/feed/dataset.h"

namespace penstock {

/// The packs that a configuration uses. Equal parameters, equal pack.
PackIdentity mel_pack(const Config& config);
PackIdentity pcm_pack(const Config& config);
PackIdentity token_pack(const Config& config, const Dataset& dataset);
PackIdentity extra_pack(const DatasetExtra& extra);

/// What a member's records must have been made from, samples and mels alike. `extra` counts Dataset::extras.
SourceKey mel_source(const Utterance& utterance);
SourceKey token_source(const Utterance& utterance);
SourceKey extra_source(const Dataset& dataset, std::size_t extra, std::int64_t member);

/// Where the packs of a dataset are: .penstock/ in its folder, or a folder of its own below cache_dir.
std::filesystem::path pack_folder(const Config& config, const Dataset& dataset);

/// How long an array of a row is.
constexpr std::int32_t length_along(Along along, Lengths lengths) {
  return along == Along::frames ? lengths.frames : along == Along::tokens ? lengths.tokens : 1;
}

/// One array of a dataset: its pack, and what each member's record must look like.
struct StoredArray {
  PackIdentity identity;
  std::filesystem::path folder;  ///< of the pack
  ElementType type = ElementType::float32;

  /// What a member's record must be; rows is -1 where this member has none: it is read from a .npy tree in
  /// place.
  struct Wanted {
    SourceKey source;
    std::int32_t rows = -1, columns = 0;
  };
  std::function<Wanted(std::int64_t member)> want;  ///< refers to the dataset
};

/// The arrays that a configuration caches: first what mels come from (mel or pcm, as `cache_kind` says), then
/// tokens, then the extras. Refers to the dataset.
std::vector<StoredArray> stored_arrays(const Config& config, const Dataset& dataset);

/// The record may be used for this member.
bool usable(const PackEntry& entry, const StoredArray& array, const StoredArray::Wanted& wanted);

/// An open pack with the record of each member.
struct StoreReader {
  Pack pack;
  std::vector<const PackEntry*> records;  ///< by member; null where there is none that may be used
  [[nodiscard]] const PackEntry* record(std::int64_t member) const {
    return records.empty() ? nullptr : records[static_cast<std::size_t>(member)];
  }
};
/// Opens an array's pack for reading.
StoreReader open_store(const StoredArray& array, const Dataset& dataset, const PackOptions& options);

/// All that a feed reads from packs.
struct Stores {
  StoreReader mel;  ///< or the samples that mels are computed from: records of int16
  StoreReader tokens;
  std::vector<StoreReader> extras;
};
/// As the configuration says (`cache_kind` resolved): nothing with `preprocessing_mode: runtime`. Remembers
/// that the packs are in use.
Stores open_stores(const Config& config, const Dataset& dataset);

}  // namespace penstock
