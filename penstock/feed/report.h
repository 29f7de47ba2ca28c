// Results for programs: what the program's --json prints and what the Python functions return.
#pragma once
#include <filesystem>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "penstock/feed/cache.h"
#include "penstock/feed/info.h"

namespace penstock {

nlohmann::json info_json(const Dataset& dataset, const Config& config, const DatasetInfo& info);
nlohmann::json build_json(const CacheBuildReport& report);
nlohmann::json check_json(const CacheCheck& check);
nlohmann::json export_json(const CacheExportReport& report, const std::filesystem::path& folder);
/// `penstock cache list`.
nlohmann::json packs_json(const Config& config, const Dataset& dataset);
nlohmann::json prune_json(const std::vector<PruneItem>& items, bool removed);

/// bad, stale, missing, orphaned.
std::string_view kind_name(CacheFinding::Kind kind);
/// mel or pcm.
std::string_view kind_name(const CacheKindChoice& choice);

}  // namespace penstock
