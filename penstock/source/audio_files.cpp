#include "penstock/source/audio_files.h"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

namespace penstock {
namespace {

namespace fs = std::filesystem;

struct Extension {
  std::string_view lower, upper;
};
constexpr std::array<Extension, 5> extensions{
    {{".wav", ".WAV"}, {".flac", ".FLAC"}, {".ogg", ".OGG"}, {".opus", ".OPUS"}, {".mp3", ".MP3"}}};

std::string joined(std::string_view a, std::string_view b) {
  std::string result;
  result.reserve(a.size() + b.size());
  return result.append(a).append(b);
}

/// The file in `names` that `name` means; empty for none.
std::string match(const std::unordered_set<std::string>& names, std::string_view name) {
  const auto [stem, extension] = split_audio_name(name);
  if (std::string exact(name); !extension.empty() && names.contains(exact)) return exact;
  for (const Extension& e : extensions) {
    if (std::string file = joined(stem, e.lower); names.contains(file)) return file;
    if (std::string file = joined(stem, e.upper); names.contains(file)) return file;
  }
  return {};
}

}  // namespace

AudioName split_audio_name(std::string_view name) {
  for (const Extension& e : extensions)
    if (name.ends_with(e.lower) || name.ends_with(e.upper)) {
      const std::size_t stem = name.size() - e.lower.size();
      return {name.substr(0, stem), name.substr(stem)};
    }
  return {name, {}};
}

AudioFiles::AudioFiles(const Layout& layout, const ManifestSource& source)
    : root_(layout.root), bases_{source.audio.string(), source.file.parent_path().string()} {}

std::string AudioFiles::find(std::string_view id) {
  const std::size_t name_at = id.rfind('/') + 1;  // npos + 1 is 0
  const std::string_view subfolder = id.substr(0, name_at), name = id.substr(name_at);
  for (const std::string& base : bases_) {
    const Folder& folder = list(base, subfolder);
    if (const std::string file = match(folder.names, name); !file.empty()) return folder.prefix + file;
  }
  const bool complete = !split_audio_name(name).extension.empty();
  return list(bases_[0], subfolder).prefix + joined(name, complete ? "" : extensions[0].lower);
}

const AudioFiles::Folder& AudioFiles::list(const std::string& base, std::string_view subfolder) {
  const auto [at, is_new] = folders_.try_emplace(fmt::format("{}/{}", base, subfolder));
  Folder& folder = at->second;
  if (!is_new) return folder;
  fs::path path = (fs::path(base) / subfolder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  folder.prefix = path == root_ ? "" : shown_path(path, root_) + "/";
  std::error_code unreadable;  // as good as empty: every row then names the file that it misses
  for (fs::directory_iterator i(path, unreadable), end; !unreadable && i != end; i.increment(unreadable))
    folder.names.insert(i->path().filename().string());
  return folder;
}

}  // namespace penstock
