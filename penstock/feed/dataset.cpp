#include "penstock/feed/dataset.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/core/threads.h"
#include "penstock/decode/decode.h"
#include "penstock/plan/rows.h"

namespace penstock {
namespace {

/// Folders that are given side by side start at the current folder; files inside a dataset start at its own.
DatasetPaths dataset_paths(const Config& config) {
  const auto folder = [](const std::string& path) {
    return path.empty() ? std::filesystem::path() : std::filesystem::absolute(path);
  };
  return {.folder = config.dataset_path,
          .train_data = folder(config.train_data),
          .val_data = folder(config.val_data),
          .metadata_train_file = config.metadata_train_file,
          .wavs_train_dir = config.wavs_train_dir,
          .metadata_eval_file = config.metadata_eval_file,
          .wavs_eval_dir = config.wavs_eval_dir,
          .val_fraction = config.val_fraction};
}

SymbolTable dataset_symbols(const Config& config, const Index& index) {
  if (!config.symbols.empty()) return SymbolTable::load(config.symbols);
  std::vector<char32_t> characters;
  for (const CharacterCount& c : index.characters()) characters.push_back(c.character);
  return SymbolTable(characters);
}

bool in_split(const Utterance& utterance, Split split) {
  return split == Split::all || utterance.validation == (split == Split::val);
}

std::int32_t round_up(std::int32_t n) { return (n + shape_multiple - 1) / shape_multiple * shape_multiple; }

Remainder remainder_of(const Config& config) {
  switch (config.remainder) {
    case RemainderRule::drop:
      return Remainder::drop;
    case RemainderRule::wrap:
      return Remainder::wrap;
    case RemainderRule::pad:
      return Remainder::pad;
    case RemainderRule::automatic:
      break;
  }
  return config.split == Split::val ? Remainder::pad : Remainder::drop;
}

/// What holds every one of them; its rows are not said.
Shape largest_shape(std::span<const Lengths> lengths, const Config& config) {
  Lengths longest;
  for (const Lengths& l : lengths)
    longest = {std::max(longest.tokens, l.tokens), std::max(longest.frames, l.frames)};
  Shape shape{.tokens = round_up(longest.tokens), .frames = round_up(longest.frames)};
  if (config.pad_to_fixed_length) {
    if (config.max_text_length > 0) shape.tokens = config.max_text_length;
    if (config.max_mel_frames > 0) shape.frames = config.max_mel_frames;
  }
  return shape;
}

/// With batch_size auto: throws Error unless a rank has room for a row of the largest shape.
void check_room(const Shape& largest, const Config& config) {
  const std::int64_t budget = frames_budget(config);
  if (budget < largest.frames)
    throw Error(
        fmt::format("batch_size auto: a row of the largest shape has {} frames, but device_memory ({} bytes) "
                    "has room for {} at a frame_memory of {} bytes: raise device_memory, lower "
                    "max_mel_frames, or lower frame_memory if a training step needs less for each frame",
                    largest.frames, config.device_memory, budget, config.frame_memory));
}

bool audio_has_changed(const Dataset& dataset) {
  const File root = File::open_folder(dataset.index.root());
  std::atomic<bool> changed = false;
  constexpr std::size_t chunk = 64;
  const auto size = static_cast<std::size_t>(dataset.index.size());
  parallel_for((size + chunk - 1) / chunk, available_cpus(), [&](std::size_t c) {
    for (std::size_t i = c * chunk; i < std::min(size, (c + 1) * chunk) && !changed; ++i) {
      const Utterance u = dataset.index.utterance(static_cast<std::int64_t>(i));
      FileStamp now;  // all zero for a file that is not there, as the index has it
      try {
        now = File::open(u.path.data(), root.fd()).stamp();
      } catch (const std::system_error&) {
      }
      if (now != u.stamp) changed = true;
    }
  });
  return changed;
}

// ---- lengths, and the .npy trees that have a say in them ----

std::vector<std::string_view> member_ids(const Dataset& dataset) {
  std::vector<std::string_view> ids;
  ids.reserve(dataset.members.size());
  for (const std::int64_t number : dataset.members) ids.push_back(dataset.index.utterance(number).id);
  return ids;
}

/// One tree: the folder that was named, or else the one that was found, which is left out when it does not
/// fit. `fits` says for a member whether its array can be used.
template <typename Fits>
void choose_tree(Dataset& dataset, NpyTree& tree, const std::string& key, const std::string& named,
                 const std::filesystem::path& found, const std::string& what, Fits&& fits) {
  if (named.empty() && found.empty()) return;
  const std::filesystem::path folder = named.empty() ? found : std::filesystem::path(named);
  tree = NpyTree(folder, member_ids(dataset), available_cpus());
  std::int64_t usable = 0, there = 0;
  std::string example;
  for (std::size_t m = 0; m < dataset.members.size(); ++m) {
    const NpyItem& item = tree.item(m);
    const bool good = fits(static_cast<std::int64_t>(m));
    usable += good;
    there += item.there;
    if (item.there && !good && example.empty())
      example = fmt::format("; {}.npy {}", dataset.index.utterance(dataset.members[m]).id,
                            item.problem.empty()
                                ? fmt::format("has the shape ({}, {}) of {}", item.header.shape[0],
                                              item.header.shape[1], npy_type_name(item.header.type))
                                : item.problem);
  }
  if (usable > 0) {
    dataset.notes.push_back(fmt::format("{} of {} utterances come from {}{}", what, usable, folder.string(),
                                        named.empty() ? fmt::format(" (found; {} names another folder, "
                                                                    "preprocessing_mode: runtime uses none)",
                                                                    key)
                                                      : ""));
    return;
  }
  const std::string why =
      there == 0 ? "has no <id>.npy of any utterance" : "has none that can be used" + example;
  if (!named.empty()) throw Error(fmt::format("{}: {} {}", key, folder.string(), why));
  dataset.notes.push_back(fmt::format("{} {}: not used", folder.string(), why));
  tree = NpyTree();
}

void open_trees(Dataset& dataset, const Config& config) {
  if (config.preprocessing_mode == PreprocessingMode::runtime) return;
  const NpyFolders found = find_npy_folders(dataset.index.root());
  const std::int32_t bins = config.mel.n_mels;
  choose_tree(dataset, dataset.mel_tree, "npy_mels", config.npy_mels, found.mels, "mels",
              [&](std::int64_t m) { return tree_mel(dataset, m, bins).has_value(); });
  std::int64_t bins_first = 0;
  for (const NpyItem& item : dataset.mel_tree.items())
    if (item.header.shape[0] != item.header.shape[1])
      bins_first += item.header.shape[0] == bins ? 1 : item.header.shape[1] == bins ? -1 : 0;
  dataset.mel_tree_bins_first = bins_first > 0;
  choose_tree(dataset, dataset.token_tree, "npy_tokens", config.npy_tokens, found.tokens, "tokens",
              [&](std::int64_t m) { return tree_tokens(dataset, m).has_value(); });
}

void set_lengths(Dataset& dataset, const Config& config) {
  dataset.lengths.reserve(dataset.members.size());
  for (std::size_t m = 0; m < dataset.members.size(); ++m) {
    const Utterance u = dataset.index.utterance(dataset.members[m]);
    const auto samples = resampled_length(u.audio.samples, u.audio.sample_rate, config.mel.sample_rate);
    const auto frames =
        std::min<std::int64_t>(config.mel.frames(samples), std::numeric_limits<std::int32_t>::max());
    const auto mel = tree_mel(dataset, static_cast<std::int64_t>(m), config.mel.n_mels);
    const auto tokens = tree_tokens(dataset, static_cast<std::int64_t>(m));
    dataset.lengths.push_back({.tokens = tokens.value_or(dataset.tokenizer->length(u.characters)),
                               .frames = mel ? mel->frames : static_cast<std::int32_t>(frames)});
  }
}

bool is_float(NpyType type) { return type != NpyType::int32 && type != NpyType::int64; }

struct ExtraKindVote {
  Along along = Along::nothing;
  bool transposed = false;
  std::int64_t width = 0;
  auto operator<=>(const ExtraKindVote&) const = default;
};

/// Everything that an array can be.
std::vector<ExtraKindVote> possible_kinds(const NpyHeader& h, Lengths lengths) {
  std::vector<ExtraKindVote> kinds = {{Along::nothing, false, h.shape[0] * h.shape[1]}};
  for (const auto& [along, length] :
       {std::pair(Along::frames, lengths.frames), std::pair(Along::tokens, lengths.tokens)}) {
    if (h.shape[0] == length) kinds.push_back({along, false, h.shape[1]});
    if (h.dimensions == 2 && h.shape[1] == length) kinds.push_back({along, true, h.shape[0]});
  }
  return kinds;
}

/// What most of an extra's arrays follow. The others are bad samples when their turn comes.
void find_kind(DatasetExtra& extra, const Dataset& dataset) {
  std::map<ExtraKindVote, std::size_t> votes;  // frames before tokens before nothing
  bool floats = false;
  std::size_t good = 0;
  std::string example;
  for (std::size_t m = 0; m < dataset.members.size(); ++m) {
    const NpyItem& item = extra.tree.item(m);
    if (!item.there || !item.problem.empty()) continue;
    const NpyHeader& h = item.header;
    ++good;
    floats |= is_float(h.type);
    for (const ExtraKindVote& kind : possible_kinds(h, dataset.lengths[m])) ++votes[kind];
    if (example.empty())
      example = fmt::format("{}.npy has the shape ({}, {}), its mel {} frames, its text {} tokens",
                            dataset.index.utterance(dataset.members[m]).id, h.shape[0], h.shape[1],
                            dataset.lengths[m].frames, dataset.lengths[m].tokens);
  }
  if (good == 0)
    throw Error(fmt::format("extra: {}: {} has no <id>.npy of any utterance", extra.name, extra.folder));
  for (const auto& [kind, count] : votes) {
    if (kind.width == 0 || kind.width > (1 << 20) || 2 * count <= good) continue;
    extra.along = kind.along;
    extra.transposed = kind.transposed;
    extra.width = static_cast<std::int32_t>(kind.width);
    extra.type = floats ? ElementType::float32 : ElementType::int32;
    return;
  }
  throw Error(fmt::format(
      "extra: {}: the arrays in {} follow neither frames nor tokens and have no size in common: {}",
      extra.name, extra.folder, example));
}

void open_extras(Dataset& dataset, const Config& config) {
  for (const ExtraSource& source : config.extra) {
    DatasetExtra extra{.name = source.name,
                       .folder = source.folder,
                       .tree = NpyTree(source.folder, member_ids(dataset), available_cpus())};
    find_kind(extra, dataset);
    dataset.extras.push_back(std::move(extra));
  }
}

}  // namespace

std::optional<TreeMel> tree_mel(const Dataset& dataset, std::int64_t member, std::int32_t bins) {
  if (dataset.mel_tree.empty()) return std::nullopt;
  const NpyItem& item = dataset.mel_tree.item(static_cast<std::size_t>(member));
  const auto& [rows, columns] = item.header.shape;
  if (!item.there || !item.problem.empty() || item.header.dimensions != 2 || !is_float(item.header.type) ||
      (rows != bins && columns != bins))
    return std::nullopt;
  const bool bins_first = rows == columns ? dataset.mel_tree_bins_first : rows == bins;
  const std::int64_t frames = bins_first ? columns : rows;
  if (frames == 0 || frames > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return TreeMel{.frames = static_cast<std::int32_t>(frames), .bins_first = bins_first};
}

std::optional<std::int32_t> tree_tokens(const Dataset& dataset, std::int64_t member) {
  if (dataset.token_tree.empty()) return std::nullopt;
  const NpyItem& item = dataset.token_tree.item(static_cast<std::size_t>(member));
  const auto& [rows, columns] = item.header.shape;
  if (!item.there || !item.problem.empty() || is_float(item.header.type) || std::min(rows, columns) != 1 ||
      std::max(rows, columns) > std::numeric_limits<std::int32_t>::max())
    return std::nullopt;
  return static_cast<std::int32_t>(std::max(rows, columns));
}

std::filesystem::path cache_folder(const Config& config) {
  if (!config.cache_dir.empty()) return config.cache_dir;
  for (const std::string* folder : {&config.dataset_path, &config.train_data})
    if (!folder->empty()) return std::filesystem::path(*folder) / ".penstock";
  return std::filesystem::path(config.metadata_train_file).parent_path() / ".penstock";
}

Dataset open_dataset(const Config& config, const OpenOptions& options) {
  const IndexInputs inputs{.probe = probe_audio,
                           .clean =
                               [](std::string_view text) {
                                 TextScratch scratch;
                                 const auto cleaned = clean_text(text, scratch);
                                 return std::u32string(cleaned.begin(), cleaned.end());
                               },
                           .clean_version = clean_text_version,
                           .progress = options.progress,
                           .threads = available_cpus()};
  Index index = Index::open(dataset_paths(config), cache_folder(config), inputs, options.rescan);
  SymbolTable symbols = dataset_symbols(config, index);
  auto tokenizer = character_tokenizer(symbols, {.add_blank = config.add_blank});

  Dataset dataset{
      .index = std::move(index), .symbols = std::move(symbols), .tokenizer = std::move(tokenizer)};
  for (std::int64_t i = 0; i < dataset.index.size(); ++i) {
    const Utterance u = dataset.index.utterance(i);
    if (!in_split(u, config.split)) continue;
    (u.problem.empty() ? dataset.members : dataset.problems).push_back(i);
  }
  open_trees(dataset, config);
  set_lengths(dataset, config);
  open_extras(dataset, config);
  return dataset;
}

Dataset open_current_dataset(const Config& config, const OpenOptions& options) {
  Dataset dataset = open_dataset(config, options);
  if (options.rescan || !audio_has_changed(dataset)) return dataset;
  OpenOptions again = options;
  again.rescan = true;
  return open_dataset(config, again);
}

std::vector<Lengths> admitted(std::span<const Lengths> lengths, const Config& config) {
  const auto fits = [](std::int32_t n, std::int32_t limit) { return n > 0 && (limit == 0 || n <= limit); };
  std::vector<Lengths> result;
  std::copy_if(lengths.begin(), lengths.end(), std::back_inserter(result), [&](Lengths l) {
    return fits(l.tokens, config.max_text_length) && fits(l.frames, config.max_mel_frames);
  });
  return result;
}

std::int64_t frames_budget(const Config& config) {
  if (config.device_memory < 1)
    throw Error(
        "batch_size auto needs device_memory: say what batches may fill, such as device_memory 24GB, or use "
        "a GPU, whose free memory is taken");
  if (config.frame_memory < 1)
    throw Error(fmt::format("frame_memory must be at least 1 byte, but is {}", config.frame_memory));
  return config.device_memory / config.frame_memory;
}

std::vector<Shape> configured_shapes(std::span<const Lengths> lengths, const Config& config) {
  const std::vector<Lengths> fitting = admitted(lengths, config);
  if (fitting.empty())
    throw Error(
        fmt::format("none of the split's {} utterances can be used: max_text_length {} and max_mel_frames {} "
                    "admit none of them",
                    lengths.size(), config.max_text_length, config.max_mel_frames));
  const bool by_memory = config.batch_size == 0;
  const Remainder remainder = remainder_of(config);
  Shape largest = largest_shape(fitting, config);
  if (by_memory) check_room(largest, config);
  // Where memory decides, rows follow the utterances in steps of 8: so much is what a remainder costs.
  const std::int32_t rows = by_memory
                                ? std::min(rows_within(frames_budget(config), largest.frames), row_multiple)
                                : config.batch_size;
  largest.rows = rows * config.world;
  std::vector<Shape> shapes = {largest};
  if (config.shapes > 1) {
    shapes = choose_shapes(fitting, config.shapes, largest.rows);
    if (remainder == Remainder::drop)
      shapes = without_rare_shapes(fitting, std::move(shapes), by_memory ? config.world : largest.rows);
  }
  if (!by_memory) return shapes;
  return with_rows(fitting, std::move(shapes), frames_budget(config), config.world, remainder);
}

Plan make_plan(const Dataset& dataset, const Config& config, std::span<const Shape> shapes,
               std::uint64_t seed) {
  for (const Shape& shape : shapes)
    if (shape.rows > static_cast<std::int64_t>(most_rows) * config.world)
      throw Error(
          fmt::format("a global batch of {} rows needs a world of {} at least, but world is {}: a rank "
                      "has at most {} rows",
                      shape.rows, (shape.rows - 1) / most_rows + 1, config.world, most_rows));
  return {dataset.lengths,
          shapes,
          {.rank = config.rank,
           .world = config.world,
           .seed = seed,
           .remainder = remainder_of(config),
           .dynamic = config.shapes == 0}};
}

}  // namespace penstock
