#include "penstock/source/index.h"

#include <optional>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/core/random.h"
#include "penstock/source/index_build.h"
#include "penstock/source/index_format.h"
#include "penstock/source/layout.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ManifestFiles = std::vector<std::pair<fs::path, FileStamp>>;

/// Names the dataset and its paths as they look from the index folder: a dataset that moves together with its
/// index keeps it, and a folder may hold the indexes of many.
std::uint64_t dataset_key(const Layout& layout, const fs::path& index_folder) {
  const fs::path from = fs::absolute(index_folder).lexically_normal();
  std::uint64_t key = hash_text(layout.root.lexically_relative(from).string());
  for (const ManifestSource& source : layout.sources)
    for (const fs::path& path : {source.file, source.audio})
      key = mix(key, hash_text(shown_path(path, layout.root)));
  return key;
}

/// An index file that is sound, though perhaps out of date.
struct OpenFile {
  MappedFile file;
  IndexView view;
};

std::optional<OpenFile> open_file(const fs::path& path, std::uint64_t key) {
  try {
    MappedFile file(path);
    const auto view = IndexView::check(file.bytes());
    if (!view || view->header().key != key) return {};
    return OpenFile{std::move(file), *view};
  } catch (const Error&) {
    return {};  // there is none, or it cannot be read: building one says more
  }
}

bool is_current(const IndexView& view, const ManifestFiles& files, std::uint64_t clean_version) {
  if (view.header().clean_version != clean_version || view.header().manifests != files.size()) return false;
  for (std::size_t i = 0; i < files.size(); ++i)
    if (view.manifest(i).stamp != files[i].second) return false;
  return true;
}

/// Returns why it could not; empty when it could.
std::string try_to_write(const fs::path& path, std::span<const std::byte> bytes) {
  try {
    fs::create_directories(path.parent_path());
    write_file(path, bytes);
    return {};
  } catch (const fs::filesystem_error& e) {
    return fmt::format("{}: {}", path.parent_path().string(), e.code().message());
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace

struct Index::State {
  fs::path path, root;
  double val_fraction = 0;
  bool rebuilt = false;
  std::string note;

  MappedFile file;                // `view` shows either the file ...
  std::vector<std::byte> memory;  // ... or the memory
  std::optional<IndexView> view;
  std::vector<std::string_view> speakers;

  void show(OpenFile opened) {
    file = std::move(opened.file);
    show(opened.view);
  }
  void show(std::vector<std::byte> bytes) {
    memory = std::move(bytes);
    show(IndexView::check(memory).value());
  }
  void show(const IndexView& index) {
    view = index;
    for (std::size_t i = 0; i < index.header().speakers; ++i) speakers.push_back(index.speaker(i));
  }

  void rebuild(const DatasetPaths& paths, const IndexInputs& inputs, std::uint64_t key,
               const std::optional<IndexView>& known) {
    const Manifest manifest = read_manifest(paths);
    std::vector<std::byte> bytes = build_index(manifest, inputs, key, known);
    rebuilt = true;
    if (const std::string failure = try_to_write(path, bytes); !failure.empty()) {
      note = fmt::format("the index is kept in memory and will be built again next time: {}", failure);
      return show(std::move(bytes));
    }
    // Mapped memory costs nothing until it is touched. Another process may have replaced the file meanwhile.
    auto written = open_file(path, key);
    if (written && is_current(written->view, manifest.files, inputs.clean_version))
      show(std::move(*written));
    else
      show(std::move(bytes));
  }

  [[nodiscard]] Record record(std::int64_t number) const {
    const auto utterances = static_cast<std::int64_t>(view->header().utterances);
    if (number < 0 || number >= utterances)
      throw Error(
          fmt::format("{}: utterance must be 0 to {}, but is {}", path.string(), utterances - 1, number));
    if (const auto record = view->record(static_cast<std::size_t>(number))) return *record;
    throw Error(fmt::format(
        "{}: the entry of utterance {} is damaged; `penstock info {} --rescan` builds the index anew",
        path.string(), number, root.string()));
  }
};

Index::Index() : state_(std::make_unique<State>()) {}
Index::Index(Index&&) noexcept = default;
Index& Index::operator=(Index&&) noexcept = default;
Index::~Index() = default;

Index Index::open(const DatasetPaths& paths, const fs::path& index_folder, const IndexInputs& inputs,
                  bool rescan) {
  const Layout layout = find_layout(paths);
  const std::uint64_t key = dataset_key(layout, index_folder);
  Index index;
  State& state = *index.state_;
  state.path = index_folder / fmt::format("index-{:016x}.bin", key);
  state.root = layout.root;
  state.val_fraction = paths.val_fraction;

  std::optional<OpenFile> opened;
  if (!rescan) opened = open_file(state.path, key);
  if (opened && is_current(opened->view, manifest_files(paths), inputs.clean_version))
    state.show(std::move(*opened));
  else
    state.rebuild(paths, inputs, key, opened ? std::optional(opened->view) : std::nullopt);
  return index;
}

std::int64_t Index::size() const { return static_cast<std::int64_t>(state_->view->header().utterances); }

Utterance Index::utterance(std::int64_t number) const {
  const Record record = state_->record(number);
  const IndexView::Strings strings = state_->view->strings(record);
  const bool by_id = state_->view->header().split_by_id != 0;
  return {.id = strings.id,
          .text = strings.text,
          .path = strings.path,
          .speaker = record.speaker,
          .line = record.line,
          .characters = record.characters,
          .validation = by_id ? in_validation(record.id_hash, state_->val_fraction) : record.validation != 0,
          .audio = record.audio,
          .stamp = record.stamp,
          .problem = strings.problem};
}

std::span<const std::string_view> Index::speakers() const { return state_->speakers; }
std::span<const CharacterCount> Index::characters() const { return state_->view->characters(); }
const fs::path& Index::root() const { return state_->root; }
bool Index::rebuilt() const { return state_->rebuilt; }
std::string_view Index::note() const { return state_->note; }

std::string Index::where(std::int64_t number) const {
  const Record record = state_->record(number);
  return fmt::format("{}:{}", state_->view->name(state_->view->manifest(record.file).name), record.line);
}

}  // namespace penstock
