// The packs of a dataset, as `penstock cache list` and `penstock info` show them.
#pragma once
#include <vector>

#include "penstock/feed/cache.h"

namespace penstock::cli {

void print_packs(const std::vector<ListedPack>& packs);

}  // namespace penstock::cli
