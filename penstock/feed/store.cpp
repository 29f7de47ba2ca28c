#include "penstock/feed/store.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "penstock/core/random.h"
#include "penstock/decode/decode.h"
#include "penstock/features/mel.h"
#include "penstock/feed/cache_kind.h"

namespace penstock {
namespace {

/// The keys that shape a mel, in the order in which a pack shows them.
constexpr std::string_view mel_keys[] = {
    "cache_type",  "sample_rate",  "n_fft",         "win_length", "hop_length",     "n_mels",  "mel_fmin",
    "mel_fmax",    "mel_scale",    "mel_norm",      "mel_power",  "mel_eps",        "mel_log", "mel_floor",
    "mel_framing", "mel_pad_mode", "mel_precision", "mel_layout", "native_loading", "resample"};

std::string value_of(const Config& config, std::string_view name) {
  const auto keys = config_keys();
  return std::ranges::find(keys, name, &ConfigKey::name)->get(config);
}

std::string_view type_name(ElementType type) {
  return type == ElementType::float32 ? "float32" : type == ElementType::float16 ? "float16" : "int32";
}

std::string_view along_name(Along along) {
  return along == Along::frames ? "frames" : along == Along::tokens ? "tokens" : "nothing";
}

}  // namespace

PackIdentity mel_pack(const Config& config) {
  std::string parameters;
  for (const std::string_view key : mel_keys)
    parameters += fmt::format("{}: {}\n", key, value_of(config, key));
  parameters += fmt::format("mel_version: {}\ndecode_version: {}\n", mel_version, decode_version);
  return {.array = "mel", .parameters = std::move(parameters)};
}

PackIdentity pcm_pack(const Config& config) {
  return {.array = "pcm",
          .parameters =
              fmt::format("sample_rate: {}\nresample: {}\ndecode_version: {}\n",
                          value_of(config, "sample_rate"), value_of(config, "resample"), decode_version)};
}

PackIdentity token_pack(const Config& config, const Dataset& dataset) {
  return {
      .array = "tokens",
      .parameters = fmt::format("tokenizer: {:016x}\nsymbols: {}\nadd_blank: {}\n",
                                dataset.tokenizer->fingerprint(), dataset.symbols.size(), config.add_blank)};
}

PackIdentity extra_pack(const DatasetExtra& extra) {
  return {.array = extra.name,
          .parameters = fmt::format("folder: {}\nalong: {}\nwidth: {}\ntype: {}\n", extra.folder,
                                    along_name(extra.along), extra.width, type_name(extra.type))};
}

SourceKey mel_source(const Utterance& u) { return {.name = xxh3(u.path), .stamp = u.stamp}; }

SourceKey token_source(const Utterance& u) {
  return {.name = xxh3(u.path),
          .stamp = {.size = static_cast<std::int64_t>(u.text.size()),
                    .mtime_ns = static_cast<std::int64_t>(xxh3(u.text))}};
}

SourceKey extra_source(const Dataset& dataset, std::size_t extra, std::int64_t member) {
  const auto m = static_cast<std::size_t>(member);
  return {.name = xxh3(dataset.index.utterance(dataset.members[m]).path),
          .stamp = dataset.extras[extra].tree.item(m).stamp};
}

std::filesystem::path pack_folder(const Config& config, const Dataset& dataset) {
  std::filesystem::path folder = cache_folder(config);
  if (config.cache_dir.empty()) return folder;
  // Datasets that share a cache_dir may have the same ids.
  const std::string root = dataset.index.root().string();
  return folder / fmt::format("{}-{:08x}", dataset.index.root().filename().string(),
                              static_cast<std::uint32_t>(xxh3(root)));
}

std::vector<StoredArray> stored_arrays(const Config& given, const Dataset& dataset) {
  const Config config = with_cache_kind(given, dataset);
  const std::filesystem::path folder = pack_folder(config, dataset);
  std::vector<StoredArray> arrays;
  const auto add = [&](const PackIdentity& identity, ElementType type, auto want) {
    const std::filesystem::path path = folder / identity.folder_name();
    arrays.push_back({.identity = identity, .folder = path, .type = type, .want = std::move(want)});
  };
  using Wanted = StoredArray::Wanted;
  const auto utterance = [&dataset](std::int64_t member) {
    return dataset.index.utterance(dataset.members[static_cast<std::size_t>(member)]);
  };
  const auto lengths = [&dataset](std::int64_t member) {
    return dataset.lengths[static_cast<std::size_t>(member)];
  };
  const std::int32_t bins = config.mel.n_mels;
  if (config.cache_kind == CacheKind::pcm)
    add(pcm_pack(config), ElementType::int16,
        [=, &dataset, rate = config.mel.sample_rate](std::int64_t m) -> Wanted {
          if (tree_mel(dataset, m, bins)) return {};
          const Utterance u = utterance(m);
          const auto samples = resampled_length(u.audio.samples, u.audio.sample_rate, rate);
          // Hours at a studio's rate: more than a record holds, so it is always decoded.
          if (samples > std::numeric_limits<std::int32_t>::max()) return {};
          return {mel_source(u), static_cast<std::int32_t>(samples), 1};
        });
  else
    add(mel_pack(config),
        config.cache_type == CacheType::float16 ? ElementType::float16 : ElementType::float32,
        [=, &dataset, frames_first = config.mel.layout == MelLayout::frames_first](std::int64_t m) -> Wanted {
          if (tree_mel(dataset, m, bins)) return {};
          const std::int32_t frames = lengths(m).frames;
          return {mel_source(utterance(m)), frames_first ? frames : bins, frames_first ? bins : frames};
        });
  add(token_pack(config, dataset), ElementType::int32, [=, &dataset](std::int64_t m) -> Wanted {
    if (tree_tokens(dataset, m)) return {};
    return {token_source(utterance(m)), lengths(m).tokens, 1};
  });
  for (std::size_t i = 0; i < dataset.extras.size(); ++i) {
    const DatasetExtra& extra = dataset.extras[i];
    add(extra_pack(extra), extra.type, [=, &dataset, &extra](std::int64_t m) -> Wanted {
      return {extra_source(dataset, i, m), length_along(extra.along, lengths(m)), extra.width};
    });
  }
  return arrays;
}

bool usable(const PackEntry& entry, const StoredArray& array, const StoredArray::Wanted& wanted) {
  return entry.source == wanted.source && entry.type == array.type && entry.rows == wanted.rows &&
         entry.columns == wanted.columns &&
         entry.bytes == static_cast<std::uint64_t>(entry.rows) * static_cast<std::uint64_t>(entry.columns) *
                            element_bytes(entry.type);
}

StoreReader open_store(const StoredArray& array, const Dataset& dataset, const PackOptions& options) {
  StoreReader reader{.pack = Pack(array.folder, array.identity, options)};
  if (reader.pack.entries().empty()) return reader;
  reader.records.resize(dataset.members.size());
  for (std::size_t m = 0; m < dataset.members.size(); ++m) {
    const auto wanted = array.want(static_cast<std::int64_t>(m));
    const PackEntry* entry =
        reader.pack.find(dataset.index.utterance(dataset.members[m]).id, wanted.source.name);
    if (entry && usable(*entry, array, wanted)) reader.records[m] = entry;
  }
  return reader;
}

Stores open_stores(const Config& config, const Dataset& dataset) {
  Stores stores;
  stores.extras.resize(dataset.extras.size());
  if (config.preprocessing_mode == PreprocessingMode::runtime) return stores;
  const PackOptions options{.mapped = config.enable_memory_mapping, .verify = config.cache_verification};
  std::vector<StoreReader> readers;
  for (const StoredArray& array : stored_arrays(config, dataset)) {
    readers.push_back(open_store(array, dataset, options));
    if (!readers.back().records.empty()) mark_used(array.folder);
  }
  stores.mel = std::move(readers[0]);
  stores.tokens = std::move(readers[1]);
  std::move(readers.begin() + 2, readers.end(), stores.extras.begin());
  return stores;
}

}  // namespace penstock
