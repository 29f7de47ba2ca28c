// Trees of files as a kernel shows them.
#pragma once
#include <filesystem>
#include <fstream>
#include <string_view>

namespace penstock {

/// Writes over what is there, in place: who has it open reads the new text.
inline void put(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::trunc) << text;
}

}  // namespace penstock
