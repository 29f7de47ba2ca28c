// configs/levels/*.yaml, inside the program: what `optimization_level` stands for.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "penstock/core/config.h"

namespace penstock::train {

std::string level_name(OptimizationLevel level);
/// Keys and values, in the order of the file.
std::vector<std::pair<std::string, std::string>> level_settings(OptimizationLevel level);

}  // namespace penstock::train
