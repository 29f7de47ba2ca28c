// A dataset that is ready to be planned: index, symbols, and the lengths that a configuration gives its
// utterances.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "penstock/core/config.h"
#include "penstock/features/text.h"
#include "penstock/plan/plan.h"
#include "penstock/source/index.h"

namespace penstock {

struct Dataset {
  Index index;
  SymbolTable symbols;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::vector<std::int64_t> members;   ///< usable utterances of the split: index numbers, ascending
  std::vector<Lengths> lengths;        ///< of the members
  std::vector<std::int64_t> problems;  ///< utterances of the split that cannot be used (Utterance::problem)
};

struct OpenOptions {
  bool rescan = false;                                                ///< read every audio header again
  std::function<void(std::size_t done, std::size_t total)> progress;  ///< while the index is built
};

/// Opens (and builds, where it has to) the dataset's index and applies the configuration to it.
Dataset open_dataset(const Config& config, const OpenOptions& options = {});

/// Where the index and later the caches of a dataset live: cache_dir, or .penstock/ in its folder.
std::filesystem::path cache_folder(const Config& config);

/// The lengths of those members that max_text_length and max_mel_frames admit and that have a frame at all.
std::vector<Lengths> admitted(std::span<const Lengths> lengths, const Config& config);

/// The configured shapes: one fixed, the best few, or (dynamic) one that bounds all. Rows are the global
/// batch's. Throws Error when the limits admit no utterance.
std::vector<Shape> configured_shapes(std::span<const Lengths> lengths, const Config& config,
                                     std::int32_t global_rows);

/// The plan of a dataset. `shapes` as from configured_shapes, or as they were frozen into a run.
Plan make_plan(const Dataset& dataset, const Config& config, std::span<const Shape> shapes,
               std::uint64_t seed, std::int32_t global_rows);

}  // namespace penstock
