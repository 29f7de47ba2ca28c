// A dataset that is ready to be planned: index, symbols, and the lengths that a configuration gives its
// utterances.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/cache/npy.h"
#include "penstock/core/config.h"
#include "penstock/features/text.h"
#include "penstock/plan/plan.h"
#include "penstock/source/index.h"

namespace penstock {

/// An array beside the mel: a .npy tree whose arrays all have the same kind.
struct DatasetExtra {
  std::string name, folder;
  Along along = Along::nothing;
  std::int32_t width = 1;
  bool transposed = false;                  ///< how most arrays lie, [width, length]; decides for square ones
  ElementType type = ElementType::float32;  ///< in a batch: float32 or int32
  NpyTree tree;                             ///< items by member
};

struct Dataset {
  Index index;
  SymbolTable symbols;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::vector<std::int64_t> members;   ///< usable utterances of the split: index numbers, ascending
  std::vector<Lengths> lengths;        ///< of the members
  std::vector<std::int64_t> problems;  ///< utterances of the split that cannot be used (Utterance::problem)
  NpyTree mel_tree, token_tree;        ///< items by member; empty where there is none
  bool mel_tree_bins_first = false;    ///< how most of the mel tree's arrays lie; decides for square ones
  std::vector<DatasetExtra> extras;
  std::vector<std::string> notes;  ///< what a person should know: trees that were found, or not used and why
};

struct OpenOptions {
  bool rescan = false;                                                ///< read every audio header again
  std::function<void(std::size_t done, std::size_t total)> progress;  ///< while the index is built
  /// While `preprocessing_mode: precompute` builds what is missing of the cache.
  std::function<void(std::size_t done, std::size_t total, std::uint64_t bytes)> building;
};

/// Opens (and builds, where it has to) the dataset's index and applies the configuration to it.
Dataset open_dataset(const Config& config, const OpenOptions& options = {});

/// A mel of the dataset's tree.
struct TreeMel {
  std::int32_t frames = 0;
  bool bins_first = false;  ///< as NumPy sees it
};
/// None where the tree has none that can be used for this member.
std::optional<TreeMel> tree_mel(const Dataset& dataset, std::int64_t member, std::int32_t bins);
/// How many tokens the dataset's tree has for this member, likewise.
std::optional<std::int32_t> tree_tokens(const Dataset& dataset, std::int64_t member);

/// The same for work on the caches: every audio file's size and mtime are compared with the index, which is
/// built again when one has changed.
Dataset open_current_dataset(const Config& config, const OpenOptions& options = {});

/// Where the index and the caches of a dataset live: cache_dir, or .penstock/ in its folder.
std::filesystem::path cache_folder(const Config& config);

/// The lengths of those members that max_text_length and max_mel_frames admit and that have a frame at all.
std::vector<Lengths> admitted(std::span<const Lengths> lengths, const Config& config);

/// With `batch_size: auto`, the frames (rows x frames) that a batch may have on each rank: device_memory /
/// frame_memory. Throws Error when device_memory does not say anything.
std::int64_t frames_budget(const Config& config);

/// The configured shapes: one fixed, the best few, or (dynamic) one that bounds all. Rows are the global
/// batch's: batch_size x world in every shape, or with `batch_size: auto` in each what frames_budget has room
/// for. Throws Error when the limits admit no utterance, or the budget not one row of the largest shape.
std::vector<Shape> configured_shapes(std::span<const Lengths> lengths, const Config& config);

/// The plan of a dataset. `shapes` as from configured_shapes, or as they were frozen into a run. Throws Error
/// as Plan does, and when a rank's share of their rows is more than a batch can have.
Plan make_plan(const Dataset& dataset, const Config& config, std::span<const Shape> shapes,
               std::uint64_t seed);

}  // namespace penstock
