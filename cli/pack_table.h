// The packs of a dataset, as `penstock cache list` and `penstock info` show them.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "penstock/cache/pack.h"
#include "penstock/feed/dataset.h"

namespace penstock::cli {

struct ListedPack {
  PackSummary pack;
  bool current = false;    ///< this configuration uses it
  std::string difference;  ///< its main parameters, or for another configuration's pack those that differ
                           ///< from this one's
};

std::vector<ListedPack> listed_packs(const Config& config, const Dataset& dataset);
nlohmann::json packs_json(const std::vector<ListedPack>& packs);
void print_packs(const std::vector<ListedPack>& packs);

}  // namespace penstock::cli
