#include "penstock/feed/dataset.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/core/threads.h"
#include "penstock/decode/decode.h"

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

}  // namespace

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

  std::vector<std::int64_t> members, problems;
  std::vector<Lengths> lengths;
  for (std::int64_t i = 0; i < index.size(); ++i) {
    const Utterance u = index.utterance(i);
    if (!in_split(u, config.split)) continue;
    if (!u.problem.empty()) {
      problems.push_back(i);
      continue;
    }
    const auto samples = resampled_length(u.audio.samples, u.audio.sample_rate, config.mel.sample_rate);
    const auto frames =
        std::min<std::int64_t>(config.mel.frames(samples), std::numeric_limits<std::int32_t>::max());
    members.push_back(i);
    lengths.push_back(
        {.tokens = tokenizer->length(u.characters), .frames = static_cast<std::int32_t>(frames)});
  }
  return {std::move(index),   std::move(symbols), std::move(tokenizer),
          std::move(members), std::move(lengths), std::move(problems)};
}

std::vector<Lengths> admitted(std::span<const Lengths> lengths, const Config& config) {
  const auto fits = [](std::int32_t n, std::int32_t limit) { return n > 0 && (limit == 0 || n <= limit); };
  std::vector<Lengths> result;
  std::copy_if(lengths.begin(), lengths.end(), std::back_inserter(result), [&](Lengths l) {
    return fits(l.tokens, config.max_text_length) && fits(l.frames, config.max_mel_frames);
  });
  return result;
}

std::vector<Shape> configured_shapes(std::span<const Lengths> lengths, const Config& config,
                                     std::int32_t global_rows) {
  const std::vector<Lengths> fitting = admitted(lengths, config);
  if (fitting.empty())
    throw Error(
        fmt::format("none of the split's {} utterances can be used: max_text_length {} and max_mel_frames {} "
                    "admit none of them",
                    lengths.size(), config.max_text_length, config.max_mel_frames));
  if (config.shapes > 1) {
    auto shapes = choose_shapes(fitting, config.shapes, global_rows);
    return remainder_of(config) == Remainder::drop
               ? without_rare_shapes(fitting, std::move(shapes), global_rows)
               : shapes;
  }
  Lengths longest;
  for (const Lengths& l : fitting)
    longest = {std::max(longest.tokens, l.tokens), std::max(longest.frames, l.frames)};
  Shape one{.rows = global_rows, .tokens = round_up(longest.tokens), .frames = round_up(longest.frames)};
  if (config.pad_to_fixed_length) {
    if (config.max_text_length > 0) one.tokens = config.max_text_length;
    if (config.max_mel_frames > 0) one.frames = config.max_mel_frames;
  }
  return {one};
}

Plan make_plan(const Dataset& dataset, const Config& config, std::span<const Shape> shapes,
               std::uint64_t seed, std::int32_t global_rows) {
  return {dataset.lengths,
          shapes,
          {.global_rows = global_rows,
           .rank = config.rank,
           .world = config.world,
           .seed = seed,
           .remainder = remainder_of(config),
           .dynamic = config.shapes == 0}};
}

}  // namespace penstock
