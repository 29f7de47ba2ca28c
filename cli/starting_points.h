// configs/*.yaml, inside the program: where tuning begins for a GPU.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::cli {

struct StartingPoint {
  std::string name;                                           ///< the file's, without .yaml: rtx4090
  std::vector<std::pair<std::string, std::string>> settings;  ///< keys and values
};

/// For a GPU's name as people and drivers write it: rtx4090, 4090, "NVIDIA GeForce RTX 4090",
/// "NVIDIA A100-SXM4-80GB". None for another GPU; a laptop's is another.
std::optional<StartingPoint> starting_point(std::string_view gpu);
/// The names of all files, in order.
std::vector<std::string> starting_point_names();

}  // namespace penstock::cli
