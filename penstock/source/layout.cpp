#include "penstock/source/layout.h"

#include <initializer_list>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Names = std::initializer_list<const char*>;

constexpr Names train_names = {"metadata.csv", "metadata_train.csv"};
constexpr Names val_names = {"metadata.csv", "metadata_eval.csv", "metadata_val.csv"};

fs::path full_path(const fs::path& path) {
  fs::path clean = fs::absolute(path).lexically_normal();
  return clean.has_filename() ? clean : clean.parent_path();  // "data/" is "data"
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::optional<fs::path> first_of(const fs::path& folder, Names names) {
  for (const char* name : names)
    if (is_there(folder / name)) return folder / name;
  return {};
}

fs::path manifest_in(const fs::path& folder, Names names) {
  if (!is_folder(folder))
    throw Error(fmt::format("{}: expected a dataset's folder, but there is none", folder.string()));
  if (const auto found = first_of(folder, names)) return *found;
  throw Error(
      fmt::format("{}: expected {} there, but found none", folder.string(), fmt::join(names, " or ")));
}

fs::path audio_beside(const fs::path& manifest) {
  const fs::path folder = manifest.parent_path();
  return is_folder(folder / "wavs") ? folder / "wavs" : folder;
}

/// One split's options, and the names they have in messages.
struct Side {
  fs::path data, file, wavs;
  const char *data_name, *file_name, *wavs_name;
  Names manifest_names;
  bool validation;

  [[nodiscard]] bool is_given() const { return !data.empty() || !file.empty(); }
};

ManifestSource find_source(const Side& side) {
  if (!side.data.empty() && !side.file.empty())
    throw Error(fmt::format("{} ({}) and {} ({}) name the same split's data: give one of them",
                            side.data_name, side.data.string(), side.file_name, side.file.string()));
  if (!side.file.empty() && !is_there(side.file))
    throw Error(fmt::format("{}: {}: no such file", side.file_name, side.file.string()));
  if (!side.wavs.empty() && !is_folder(side.wavs))
    throw Error(fmt::format("{}: {}: no such folder", side.wavs_name, side.wavs.string()));
  const fs::path manifest = side.file.empty() ? manifest_in(side.data, side.manifest_names) : side.file;
  return {manifest, side.wavs.empty() ? audio_beside(manifest) : side.wavs, side.validation};
}

fs::path find_root(const fs::path& folder, const Side& train) {
  if (!folder.empty()) return folder;
  return train.data.empty() ? train.file.parent_path() : train.data;
}

}  // namespace

Layout find_layout(const DatasetPaths& paths) {
  const fs::path folder = paths.folder.empty() ? fs::path() : full_path(paths.folder);
  const auto resolve = [&](const fs::path& path) { return path.empty() ? path : full_path(folder / path); };
  Side train{resolve(paths.train_data),
             resolve(paths.metadata_train_file),
             resolve(paths.wavs_train_dir),
             "train_data",
             "metadata_train_file",
             "wavs_train_dir",
             train_names,
             false};
  Side val{resolve(paths.val_data),
           resolve(paths.metadata_eval_file),
           resolve(paths.wavs_eval_dir),
           "val_data",
           "metadata_eval_file",
           "wavs_eval_dir",
           val_names,
           true};
  if (!train.is_given()) train.data = folder;
  if (!train.is_given()) throw Error("a dataset needs its folder, train_data or metadata_train_file");

  Layout layout{.root = find_root(folder, train), .sources = {find_source(train)}};
  const fs::path& manifest = layout.sources[0].file;
  if (!val.is_given() && train.file.empty() && manifest.filename() == "metadata_train.csv")
    val.file = first_of(manifest.parent_path(), {"metadata_eval.csv", "metadata_val.csv"}).value_or("");
  if (val.is_given())
    layout.sources.push_back(find_source(val));
  else if (!val.wavs.empty())
    throw Error(fmt::format("wavs_eval_dir ({}) needs metadata_eval_file or val_data", val.wavs.string()));
  return layout;
}

std::string shown_path(const fs::path& path, const fs::path& root) {
  const fs::path relative = path.lexically_relative(root);
  if (relative.empty() || *relative.begin() == "..") return path.string();
  return relative.string();
}

}  // namespace penstock
