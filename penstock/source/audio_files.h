// Ids -> audio files, by listing folders.
#pragma once
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "penstock/source/layout.h"

namespace penstock {

/// A name before and from its audio extension on; one without has an empty second half.
struct AudioName {
  std::string_view stem, extension;
};

AudioName split_audio_name(std::string_view name);

/// Finds the audio of a manifest's ids. Every folder is listed once, which costs less than asking for each
/// name.
class AudioFiles {
 public:
  AudioFiles(const Layout& layout, const ManifestSource& source);

  /// The path as shown_path gives it; where it was expected when there is no such file.
  std::string find(std::string_view id);

 private:
  struct Folder {
    std::string prefix;  // of its files' paths
    std::unordered_set<std::string> names;
  };
  const Folder& list(const std::string& base, std::string_view subfolder);

  const std::filesystem::path root_;
  std::array<std::string, 2> bases_;
  std::unordered_map<std::string, Folder> folders_;
};

}  // namespace penstock
