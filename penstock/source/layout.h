// DatasetPaths -> the manifest files and audio folders that are really there.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "penstock/source/manifest.h"

namespace penstock {

struct ManifestSource {
  std::filesystem::path file;   ///< the manifest
  std::filesystem::path audio;  ///< ids are looked for here first, then beside the manifest
  bool validation = false;
};

/// All paths are absolute.
struct Layout {
  std::filesystem::path root;
  std::vector<ManifestSource> sources;  ///< training first, then validation where it has data of its own
};

/// Looks at names only, opens nothing. Throws Error saying what it expected where.
Layout find_layout(const DatasetPaths& paths);

/// Relative to the root for what lies below it, else absolute: how paths are stored and shown.
std::string shown_path(const std::filesystem::path& path, const std::filesystem::path& root);

}  // namespace penstock
