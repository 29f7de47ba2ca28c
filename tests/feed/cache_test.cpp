// The feed and its caches: a batch's bytes never depend on what happens to be cached.
#include "penstock/feed/cache.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "penstock/core/random.h"
#include "penstock/feed/feed.h"
#include "penstock/feed/store.h"
#include "tests/feed/made_dataset.h"
#include "tests/long_run.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Every record of the configuration's packs, by array and id: where it came from and its bytes.
std::map<std::string, std::vector<std::byte>> contents(const Config& config) {
  std::map<std::string, std::vector<std::byte>> all;
  const Dataset dataset = open_dataset(config);
  for (const StoredArray& array : stored_arrays(config, dataset)) {
    const Pack pack(array.folder, array.identity);
    for (const PackEntry& entry : pack.entries())
      if (pack.live(entry)) {
        std::vector<std::byte> bytes(entry.bytes);
        pack.read(entry, bytes);
        all[array.identity.array + "/" + pack.id(entry)] = std::move(bytes);
      }
  }
  return all;
}

fs::path only_shard(const Config& config, const PackIdentity& identity) {
  return cache_folder(config) / identity.folder_name() / "00000.pack";
}

void flip_byte(const fs::path& path, std::uint64_t at) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(at));
  const auto byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

TEST(Cache, LiveAndCachedBatchesAreEqualBitForBit) {
  const MadeDataset made(40);
  for (const CacheType type : {CacheType::float32, CacheType::float16})
    for (const MelLayout layout : {MelLayout::frames_first, MelLayout::bins_first})
      for (const bool mapped : {true, false}) {
        Config config = made.config();
        config.cache_type = type;
        config.mel.layout = layout;
        config.enable_memory_mapping = mapped;
        config.mel_pad_value = -3;
        const auto live = batches(with_mode(config, PreprocessingMode::runtime), 25);
        CacheStats stats;
        EXPECT_EQ(batches(with_mode(config, PreprocessingMode::precompute), 25, &stats), live);
        EXPECT_GE(stats.hits, 2 * 25 * 4);
        EXPECT_EQ(stats.misses, 0);
        EXPECT_EQ(stats.recomputed, 0);
        EXPECT_GT(stats.bytes_read, 0u);
        EXPECT_EQ(batches(with_mode(config, PreprocessingMode::automatic), 25), live);
      }
}

TEST(Cache, Float16RoundsLiveMelsAndNothingElse) {
  const MadeDataset made(12);
  Config config = with_mode(made.config(), PreprocessingMode::runtime);
  Feed exact(config);
  config.cache_type = CacheType::float16;
  Feed rounded(config);
  const Batch a = exact.next(), b = rounded.next();
  EXPECT_TRUE(std::ranges::equal(a.tokens, b.tokens));
  bool differs = false;
  for (std::size_t i = 0; i < a.mel.size(); ++i) {
    EXPECT_NEAR(a.mel[i], b.mel[i], 0.004 + std::abs(a.mel[i]) * 0.0005);
    differs |= a.mel[i] != b.mel[i];
  }
  EXPECT_TRUE(differs);
}

TEST(Cache, RuntimeNeverUsesIt) {
  const MadeDataset made(12);
  build_cache(made.config(), open_dataset(made.config()));
  CacheStats stats;
  batches(with_mode(made.config(), PreprocessingMode::runtime), 5, &stats);
  EXPECT_EQ(stats.hits + stats.misses + stats.recomputed, 0);
  EXPECT_EQ(stats.bytes_read, 0u);
}

TEST(Cache, AutoUsesWhatIsThereAndComputesTheRest) {
  const MadeDataset made(24);
  const Config config = with_mode(made.config(), PreprocessingMode::automatic);
  const auto live = batches(config, 12);
  Config some = config;
  some.split = Split::train;
  some.val_fraction = 0.4;
  build_cache(some, open_dataset(some));
  CacheStats stats;
  EXPECT_EQ(batches(config, 12, &stats), live);
  EXPECT_GT(stats.hits, 0);
  EXPECT_GT(stats.misses, 0);
}

TEST(Cache, ABuildKeepsWhatIsCurrent) {
  const MadeDataset made(20);
  const Config config = made.config();
  const auto build = [&](const CacheBuildOptions& options = {}) {
    return build_cache(config, open_current_dataset(config), options);
  };
  CacheBuildReport report = build({.tokens = false});
  EXPECT_EQ(report.built, 20);
  report = build();
  EXPECT_EQ(report.built, 20);  // the tokens
  EXPECT_EQ(report.kept, 20);
  report = build();
  EXPECT_EQ(report.built, 0);
  EXPECT_EQ(report.kept, 40);
  const auto before = contents(config);
  report = build({.overwrite = true, .shard_bytes = 100'000});
  EXPECT_EQ(report.built, 40);
  EXPECT_EQ(contents(config), before);
  const Dataset dataset = open_dataset(config);
  for (const StoredArray& array : stored_arrays(config, dataset)) {
    const Pack pack(array.folder, array.identity);
    EXPECT_EQ(pack.entries().size(), 20u) << "old records are gone";
  }
}

TEST(Cache, AnInterruptedBuildKeepsWhatWasFinished) {
  const MadeDataset made(30);
  const Config config = made.config();
  struct Stop {};
  const Dataset dataset = open_dataset(config);
  EXPECT_THROW(build_cache(config, dataset,
                           {.progress =
                                [](std::size_t done, std::size_t, std::uint64_t) {
                                  if (done >= 10) throw Stop();
                                }}),
               Stop);
  const auto kept = contents(config);
  EXPECT_GE(kept.size(), 20u);
  EXPECT_LT(kept.size(), 60u);
  const CacheBuildReport report = build_cache(config, dataset);
  EXPECT_EQ(report.kept, static_cast<std::int64_t>(kept.size()));
  EXPECT_EQ(report.built + report.kept, 60);
}

/// One random change to a dataset or its configuration, and the records that it touches.
struct Change {
  std::string what;
  std::set<std::string> touched;  // of the pack as it was, by array and id
};

Change change_something(MadeDataset& made, Config& config, std::mt19937& random) {
  const int clip = static_cast<int>(random() % 20);
  const std::string id = MadeDataset::id(clip);
  const auto all = [&](const std::string& array) {
    std::set<std::string> ids;
    for (int i = 0; i < 20; ++i) ids.insert(array + "/" + MadeDataset::id(i));
    return ids;
  };
  switch (random() % 7) {
    case 0:
      made.write(clip, made.noise(500 + static_cast<int>(random() % 9000)));
      return {"audio of " + id, {"mel/" + id}};
    case 1: {  // the same size, another time
      const auto time = fs::last_write_time(made.wav(clip));
      fs::last_write_time(made.wav(clip), time + std::chrono::nanoseconds(1));
      return {"mtime of " + id, {"mel/" + id}};
    }
    case 2: {
      std::string manifest = read_text(made.folder() / "metadata.csv");
      const std::size_t at = manifest.find("|", manifest.find(id)) + 1;
      manifest.replace(at, manifest.find('\n', at) - at, "the wheel turns, steady water.");
      std::ofstream(made.folder() / "metadata.csv") << manifest;
      return {"text of " + id, {"tokens/" + id}};
    }
    case 3:
      config.mel.fmin += 1;
      return {"mel_fmin", all("mel")};
    case 4:
      config.add_blank = !config.add_blank;
      return {"add_blank", all("tokens")};
    case 5:
      config.cache_type = CacheType::float16;
      return {"cache_type", all("mel")};
    default:
      config.batch_size = 3;
      config.mel_pad_value = 1;
      config.seed = random();
      return {"nothing that is cached", {}};
  }
}

TEST(Cache, ExactlyWhatAChangeTouchesIsRebuilt) {
  std::mt19937 random(5);
  for (int round = 0; round < cases(14, 300); ++round) {
    MadeDataset made(20, 100 + static_cast<std::uint64_t>(round), 9000);
    // A symbol table of its own: else a text with a new character changes everybody's tokens.
    SymbolTable(std::u32string_view(U"abcdefghijklmnopqrstuvwxyz ,.سلامدنیا"))
        .save(made.folder() / "symbols.txt");
    Config config = made.config();
    config.symbols = made.folder() / "symbols.txt";
    build_cache(config, open_current_dataset(config));
    const Change change = change_something(made, config, random);
    SCOPED_TRACE(change.what);
    const CacheBuildReport report = build_cache(config, open_current_dataset(config));
    EXPECT_EQ(report.built, static_cast<std::int64_t>(change.touched.size()));
    EXPECT_EQ(report.kept, 40 - static_cast<std::int64_t>(change.touched.size()));
    // And what is there now is what a fresh build makes.
    const auto after = contents(config);
    Config fresh = config;
    fresh.cache_dir = made.folder() / "fresh";
    build_cache(fresh, open_current_dataset(fresh));
    const Dataset dataset = open_dataset(fresh);
    for (const StoredArray& array : stored_arrays(fresh, dataset)) {
      const Pack pack(array.folder, array.identity);
      for (const PackEntry& entry : pack.entries()) {
        std::vector<std::byte> bytes(entry.bytes);
        pack.read(entry, bytes);
        EXPECT_EQ(after.at(array.identity.array + "/" + pack.id(entry)), bytes);
      }
    }
  }
  fmt::print(
      "EVIDENCE one random change, then a build | exactly the touched records are rebuilt | {} changes\n",
      cases(14, 300));
}

TEST(Cache, EveryKeyThatChangesAMelMakesAnotherPack) {
  const MadeDataset made(6);
  std::map<std::string, std::string> values = other_mel_values();
  values.insert({{"native_loading", "false"}, {"resample", "false"}, {"cache_type", "float16"}});
  const auto load = [&](const std::string& key, const std::string& value) {
    ConfigLoader loader;
    if (key == "n_fft") loader.set("win_length", "512", "test");
    loader.set(key, value, "test");
    return loader.config();
  };
  for (const ConfigKey& key : config_keys()) {
    const bool shapes_a_mel = values.contains(key.name);
    if (!shapes_a_mel) continue;
    EXPECT_NE(mel_pack(load(key.name, values.at(key.name))).fingerprint(), mel_pack(Config()).fingerprint())
        << key.name;
  }
  // The table above is complete: any other key leaves the first mel as it is (keys_test knows what each
  // does).
  const std::set<std::string> others = {"batch_size", "seed",      "mel_pad_value",
                                        "shapes",     "add_blank", "split"};
  for (const std::string& name : others)
    EXPECT_EQ(mel_pack(load(name, name == "split"       ? "val"
                                  : name == "add_blank" ? "true"
                                                        : "2"))
                  .fingerprint(),
              mel_pack(Config()).fingerprint());
}

TEST(Cache, ADamagedRecordIsComputedAgainAndNamed) {
  const MadeDataset made(20);
  for (const bool mapped : {true, false}) {
    Config config = with_mode(made.config(), PreprocessingMode::automatic);
    config.enable_memory_mapping = mapped;
    fs::remove_all(cache_folder(config));
    const auto live = batches(config, 20);
    const Dataset dataset = open_dataset(config);
    build_cache(config, dataset);
    const auto arrays = stored_arrays(config, dataset);
    std::set<std::string> damaged;
    for (std::size_t a = 0; a < 2; ++a) {
      const Pack pack(arrays[a].folder, arrays[a].identity);
      const PackEntry& victim = pack.entries()[a == 0 ? 3 : 11];
      damaged.insert(pack.id(victim));
      flip_byte(only_shard(config, arrays[a].identity), victim.offset + victim.bytes / 2);
    }
    Feed feed(config);
    for (const std::uint64_t expected : live) EXPECT_EQ(fingerprint(feed.next()), expected);
    std::set<std::string> named;
    for (const SkippedSample& s : feed.recomputed()) {
      named.insert(s.id);
      EXPECT_THAT(s.reason, ::testing::HasSubstr("checksum"));
    }
    EXPECT_EQ(named, damaged);
    EXPECT_GT(feed.stats().cache.recomputed, 0);
  }
}

TEST(Cache, WithoutRebuildingADamagedRecordIsABadSample) {
  const MadeDataset made(16);
  for (const bool mel : {true, false}) {
    Config config = with_mode(made.config(), PreprocessingMode::automatic);
    fs::remove_all(cache_folder(config));
    const Dataset dataset = open_dataset(config);
    build_cache(config, dataset);
    const StoredArray array = stored_arrays(config, dataset)[mel ? 0 : 1];
    const Pack pack(array.folder, array.identity);
    const PackEntry& victim = pack.entries()[2];
    flip_byte(only_shard(config, array.identity), victim.offset);
    (mel ? config.auto_rebuild_mel_cache : config.auto_rebuild_token_cache) = false;
    config.on_bad_sample = OnBadSample::skip;
    Feed feed(config);
    for (int i = 0; i < 12; ++i) feed.next();
    const auto skipped = feed.skipped();
    ASSERT_EQ(skipped.size(), 1u);
    EXPECT_EQ(skipped[0].id, pack.id(victim));
    EXPECT_THAT(skipped[0].reason, ::testing::HasSubstr("checksum"));
  }
}

TEST(Cache, WithoutVerificationNothingIsCompared) {
  const MadeDataset made(12);
  Config config = with_mode(made.config(), PreprocessingMode::automatic);
  const Dataset dataset = open_dataset(config);
  build_cache(config, dataset);
  const StoredArray array = stored_arrays(config, dataset)[0];
  const Pack pack(array.folder, array.identity);
  flip_byte(only_shard(config, array.identity), pack.entries()[1].offset + 5);
  config.cache_verification = false;
  CacheStats stats;
  batches(config, 9, &stats);
  EXPECT_EQ(stats.recomputed, 0);
}

TEST(Cache, AShardCutOffUnderARunningFeedCostsRecomputingOnly) {
  const MadeDataset made(60, 4, 30000);
  for (const bool mapped : {true, false}) {
    Config config = with_mode(made.config(), PreprocessingMode::automatic);
    config.enable_memory_mapping = mapped;
    fs::remove_all(cache_folder(config));
    const auto live = batches(config, 60);
    const Dataset dataset = open_dataset(config);
    build_cache(config, dataset);
    const fs::path shard = only_shard(config, mel_pack(config));
    Feed feed(config);
    expect_same_though_cut(feed, shard, live);
  }
}

TEST(Cache, RecordsOfAnotherStateOfTheirSourceAreNotUsed) {
  MadeDataset made(12);
  Config config = with_mode(made.config(), PreprocessingMode::automatic);
  build_cache(config, open_dataset(config));
  made.write(4, made.noise(7000));
  const Dataset dataset = open_current_dataset(config);
  const StoreReader store = open_store(stored_arrays(config, dataset)[0], dataset, {});
  for (std::int64_t m = 0; m < 12; ++m) EXPECT_EQ(store.record(m) == nullptr, m == 4) << m;
  const auto live = batches(with_mode(config, PreprocessingMode::runtime), 9);
  EXPECT_EQ(batches(config, 9), live);
}

TEST(Cache, DatasetsThatShareACacheFolderStayApart) {
  const MadeDataset one(10, 1), two(10, 2);
  const fs::path shared = one.folder() / "shared";
  for (const MadeDataset* made : {&one, &two, &one}) {
    Config config = with_mode(made->config(), PreprocessingMode::precompute);
    const auto live = batches(with_mode(config, PreprocessingMode::runtime), 6);
    config.cache_dir = shared;
    CacheStats stats;
    EXPECT_EQ(batches(config, 6, &stats), live);
    EXPECT_EQ(stats.misses, 0);
  }
  EXPECT_EQ(build_cache(
                [&] {
                  Config c = one.config();
                  c.cache_dir = shared;
                  return c;
                }(),
                open_dataset(one.config()))
                .built,
            0);
}

TEST(Cache, AFolderThatCannotBeWrittenIsAClearError) {
  const MadeDataset made(4);
  Config config = with_mode(made.config(), PreprocessingMode::precompute);
  std::ofstream(made.folder() / "file") << "no folder";
  config.cache_dir = made.folder() / "file";
  try {
    Feed feed(config);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("file"));
  }
}

// ---- .npy trees and extras ----

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST(NpyCache, MelsAndTokensComeFromTheTreeWithItsLengths) {
  const MadeDataset made(12);
  Config config = with_mode(made.config(), PreprocessingMode::automatic);
  config.npy_mels = made.folder() / "m";
  config.npy_tokens = made.folder() / "t";
  config.shapes = 1;
  for (int i = 0; i < 12; ++i) {
    const std::int64_t frames = 5 + i, tokens = 3 + 2 * i;
    std::vector<float> mel(static_cast<std::size_t>(frames * 80));
    for (std::size_t k = 0; k < mel.size(); ++k)
      mel[k] = static_cast<float>(i * 100000 + static_cast<int>(k));
    std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens), i);
    write_npy(made.folder() / "m" / (MadeDataset::id(i) + ".npy"), NpyType::float32,
              std::vector{frames, std::int64_t{80}}, bytes_of(mel));
    write_npy(made.folder() / "t" / (MadeDataset::id(i) + ".npy"), NpyType::int64, std::vector{tokens},
              bytes_of(ids));
  }
  Feed feed(config);
  for (int b = 0; b < 6; ++b) {
    const Batch batch = feed.next();
    for (std::size_t r = 0; r < 4; ++r) {
      const std::int64_t i = batch.utterances[r];
      EXPECT_EQ(batch.mel_lengths[r], 5 + i);
      EXPECT_EQ(batch.token_lengths[r], 3 + 2 * i);
      const auto row = batch.mel.subspan(r * static_cast<std::size_t>(batch.shape.frames) * 80,
                                         static_cast<std::size_t>(batch.shape.frames) * 80);
      for (std::size_t k = 0; k < row.size(); ++k)
        ASSERT_EQ(row[k], k < static_cast<std::size_t>(5 + i) * 80
                              ? static_cast<float>(i * 100000 + static_cast<int>(k))
                              : 0);
      const auto tokens = batch.tokens.subspan(r * static_cast<std::size_t>(batch.shape.tokens),
                                               static_cast<std::size_t>(batch.shape.tokens));
      for (std::size_t k = 0; k < tokens.size(); ++k)
        ASSERT_EQ(tokens[k], k < static_cast<std::size_t>(3 + 2 * i) ? i : 0);
    }
  }
  EXPECT_EQ(feed.stats().cache.misses, 0);
  EXPECT_GT(feed.stats().cache.hits, 0);
  EXPECT_THAT(feed.dataset().notes, ::testing::Contains(::testing::HasSubstr("12 utterances")));
}

TEST(NpyCache, WhatATreeLacksOrHasDamagedIsComputed) {
  const MadeDataset made(12);
  Config config = with_mode(made.config(), PreprocessingMode::automatic);
  const auto live = batches(config, 9);
  export_npy(config, open_dataset(config), made.folder() / "out");
  config.npy_mels = made.folder() / "out/mels";
  config.npy_tokens = made.folder() / "out/tokens";
  CacheStats stats;
  EXPECT_EQ(batches(config, 9, &stats), live);
  EXPECT_EQ(stats.misses, 0);
  fs::remove(fs::path(config.npy_mels) / (MadeDataset::id(2) + ".npy"));
  fs::resize_file(fs::path(config.npy_mels) / (MadeDataset::id(5) + ".npy"), 200);
  std::ofstream(fs::path(config.npy_tokens) / (MadeDataset::id(7) + ".npy")) << "no array";
  EXPECT_EQ(batches(config, 9, &stats), live);
  EXPECT_GT(stats.misses, 0);
  EXPECT_GT(stats.recomputed, 0);
  config.auto_rebuild_mel_cache = false;
  config.on_bad_sample = OnBadSample::skip;
  Feed feed(config);
  for (int i = 0; i < 9; ++i) feed.next();
  ASSERT_EQ(feed.skipped().size(), 1u);
  EXPECT_EQ(feed.skipped()[0].id, MadeDataset::id(5));
}

TEST(NpyCache, ExtrasArePaddedBesideTheMelLiveAndCached) {
  const MadeDataset made(16);
  Config config = made.config();
  const Dataset plain = open_dataset(config);
  for (std::size_t m = 0; m < plain.members.size(); ++m) {
    const std::string name = std::string(plain.index.utterance(plain.members[m]).id) + ".npy";
    const auto [tokens, frames] = plain.lengths[m];
    const auto base = static_cast<int>(m) * 1000 + 1;
    std::vector<double> f0(static_cast<std::size_t>(frames));
    std::vector<std::int64_t> durations(static_cast<std::size_t>(tokens));
    std::vector<float> speaker(6), two(static_cast<std::size_t>(frames) * 2);
    for (std::size_t k = 0; k < f0.size(); ++k) f0[k] = base + static_cast<int>(k);
    for (std::size_t k = 0; k < durations.size(); ++k) durations[k] = base + static_cast<int>(k);
    for (std::size_t k = 0; k < speaker.size(); ++k)
      speaker[k] = static_cast<float>(base + static_cast<int>(k));
    // [2, frames]: the other way round
    for (std::size_t k = 0; k < two.size(); ++k) two[k] = static_cast<float>(base + static_cast<int>(k));
    write_npy(made.folder() / "f0" / name, NpyType::float64, std::vector<std::int64_t>{frames}, bytes_of(f0));
    write_npy(made.folder() / "d" / name, NpyType::int64, std::vector<std::int64_t>{tokens},
              bytes_of(durations));
    write_npy(made.folder() / "s" / name, NpyType::float32, std::vector<std::int64_t>{6}, bytes_of(speaker));
    write_npy(made.folder() / "e" / name, NpyType::float32, std::vector<std::int64_t>{2, frames},
              bytes_of(two));
  }
  for (const char* name : {"f0", "d", "s", "e"}) config.extra.push_back({name, made.folder() / name});
  for (const PreprocessingMode mode :
       {PreprocessingMode::runtime, PreprocessingMode::precompute, PreprocessingMode::automatic}) {
    Feed feed(with_mode(config, mode));
    for (int b = 0; b < 8; ++b) {
      const Batch batch = feed.next();
      ASSERT_EQ(batch.extras.size(), 4u);
      EXPECT_EQ(batch.extras[0].name, "f0");
      EXPECT_EQ(batch.extras[0].along, Along::frames);
      EXPECT_EQ(batch.extras[0].type, ElementType::float32);
      EXPECT_EQ(batch.extras[1].along, Along::tokens);
      EXPECT_EQ(batch.extras[1].type, ElementType::int32);
      EXPECT_EQ(batch.extras[2].along, Along::nothing);
      EXPECT_EQ(batch.extras[2].width, 6);
      EXPECT_EQ(batch.extras[3].width, 2);
      const auto* f0 = reinterpret_cast<const float*>(batch.extras[0].data.data());
      const auto* d = reinterpret_cast<const std::int32_t*>(batch.extras[1].data.data());
      const auto* s = reinterpret_cast<const float*>(batch.extras[2].data.data());
      const auto* e = reinterpret_cast<const float*>(batch.extras[3].data.data());
      ASSERT_EQ(batch.extras[3].data.size(),
                static_cast<std::size_t>(batch.shape.rows * batch.shape.frames * 2) * 4);
      for (std::int32_t r = 0; r < batch.shape.rows; ++r) {
        const auto base = static_cast<int>(batch.utterances[static_cast<std::size_t>(r)]) * 1000 + 1;
        const std::int32_t frames = batch.mel_lengths[static_cast<std::size_t>(r)],
                           tokens = batch.token_lengths[static_cast<std::size_t>(r)];
        for (std::int32_t f = 0; f < batch.shape.frames; ++f) {
          ASSERT_EQ(f0[r * batch.shape.frames + f], f < frames ? static_cast<float>(base + f) : 0);
          for (int w = 0; w < 2; ++w)
            ASSERT_EQ(e[(r * batch.shape.frames + f) * 2 + w],
                      f < frames ? static_cast<float>(base + w * frames + f) : 0);
        }
        for (std::int32_t t = 0; t < batch.shape.tokens; ++t)
          ASSERT_EQ(d[r * batch.shape.tokens + t], t < tokens ? base + t : 0);
        for (int k = 0; k < 6; ++k) ASSERT_EQ(s[r * 6 + k], static_cast<float>(base + k));
      }
    }
  }
  // One that does not fit is a bad sample by name; one that nobody understands is refused.
  write_npy(made.folder() / "f0" / (MadeDataset::id(3) + ".npy"), NpyType::float32,
            std::vector<std::int64_t>{1}, bytes_of(std::vector<float>{1}));
  Config skipping = with_mode(config, PreprocessingMode::automatic);
  skipping.on_bad_sample = OnBadSample::skip;
  Feed feed(skipping);
  for (int i = 0; i < 12; ++i) feed.next();
  ASSERT_EQ(feed.skipped().size(), 1u);
  EXPECT_EQ(feed.skipped()[0].id, MadeDataset::id(3));
  config.extra = {{"f0", made.folder() / "nowhere"}};
  EXPECT_THROW(Feed{config}, Error);
}

}  // namespace
}  // namespace penstock
