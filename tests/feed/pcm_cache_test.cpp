// `cache_kind`: samples in the cache instead of mels, and what `auto` makes of it.
#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/cache_kind.h"
#include "penstock/feed/feed.h"
#include "penstock/feed/store.h"
#include "tests/decode/files.h"
#include "tests/feed/made_dataset.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;
using Kind = CacheFinding::Kind;

Config with_kind(Config config, CacheKind kind) {
  config.cache_kind = kind;
  return config;
}

Config pcm_of(const MadeDataset& made, PreprocessingMode mode = PreprocessingMode::automatic) {
  return with_mode(with_kind(made.config(), CacheKind::pcm), mode);
}

std::vector<std::uint64_t> live_batches(const Config& config, int count) {
  return batches(with_mode(config, PreprocessingMode::runtime), count);
}

CacheBuildReport build(const Config& config, const CacheBuildOptions& options = {}) {
  return build_cache(config, open_current_dataset(config), options);
}

/// Flips a bit in the middle of the n-th record of samples; its id.
std::string damage(const Config& config, std::size_t n) {
  const Dataset dataset = open_dataset(config);
  const StoredArray array = stored_arrays(config, dataset)[0];
  const Pack pack(array.folder, array.identity);
  const PackEntry& entry = pack.entries()[n];
  std::fstream file(array.folder / "00000.pack", std::ios::binary | std::ios::in | std::ios::out);
  const auto at = static_cast<std::streamoff>(entry.offset + entry.bytes / 2);
  file.seekg(at);
  const auto byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(at).put(byte);
  return pack.id(entry);
}

void write(const MadeDataset& made, int clip, const test::Bytes& bytes) {
  made.write(clip, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// Clips of everything that is decoded, at the wanted rate and at others; loud floats too.
void write_formats(const MadeDataset& made, int clips) {
  test::WavFile loud{.tag = 3, .bits = 32};
  loud.data = test::bytes_of(std::vector<float>{});
  for (float x : test::tones(7000, 22050)) test::append(loud.data, 4 * x);
  constexpr int formats[] = {SF_FORMAT_WAV | SF_FORMAT_PCM_16,         SF_FORMAT_WAV | SF_FORMAT_PCM_24,
                             SF_FORMAT_WAV | SF_FORMAT_FLOAT,          SF_FORMAT_FLAC | SF_FORMAT_PCM_16,
                             SF_FORMAT_FLAC | SF_FORMAT_PCM_24,        SF_FORMAT_OGG | SF_FORMAT_VORBIS,
                             SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III};
  for (int i = 0; i < clips; ++i)
    write(made, i,
          i == 0 ? loud.bytes()
                 : test::encode(formats[i % 7], 6000 + 411 * static_cast<std::size_t>(i),
                                i % 3 == 0   ? 44100
                                : i % 3 == 1 ? 22050
                                             : 16000,
                                1 + i % 2));
}

// ---- the bytes of a batch ----

TEST(PcmCache, LiveCachedAndMixedBatchesAreEqualBitForBitInEveryFormat) {
  const MadeDataset made(28);
  write_formats(made, 28);
  for (const bool mapped : {true, false})
    for (const MelLayout layout : {MelLayout::frames_first, MelLayout::bins_first}) {
      Config config = pcm_of(made);
      fs::remove_all(cache_folder(config));
      config.enable_memory_mapping = mapped;
      config.mel.layout = layout;
      config.mel_pad_value = -3;
      if (!mapped) config.cache_type = CacheType::float16;
      const auto live = live_batches(config, 14);
      EXPECT_EQ(batches(config, 14), live) << "nothing is cached";
      Config some = config;
      some.split = Split::train;
      some.val_fraction = 0.4;
      build(some);
      CacheStats stats;
      EXPECT_EQ(batches(config, 14, &stats), live) << "some of it is cached";
      EXPECT_GT(stats.hits, 0);
      EXPECT_GT(stats.misses, 0);
      EXPECT_EQ(batches(with_mode(config, PreprocessingMode::precompute), 14, &stats), live);
      EXPECT_GE(stats.hits, 2 * 14 * 4);
      EXPECT_EQ(stats.misses + stats.recomputed, 0);
      EXPECT_GT(stats.bytes_read, 0u);
    }
}

TEST(PcmCache, AudioOf16BitsAtItsRateIsUnchangedAndOtherIsRounded) {
  const MadeDataset made(12);
  const auto mels = [&](CacheKind kind) {
    fs::remove_all(cache_folder(made.config()));  // the index too: the files are others now
    return live_batches(with_kind(made.config(), kind), 9);
  };
  EXPECT_EQ(mels(CacheKind::pcm), mels(CacheKind::mel));
  for (int i = 0; i < 12; ++i)
    write(made, i,
          test::encode(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 5000 + 300 * static_cast<std::size_t>(i), 22050));
  EXPECT_EQ(mels(CacheKind::pcm), mels(CacheKind::mel));
  for (int i = 0; i < 12; ++i) write(made, i, test::encode(SF_FORMAT_WAV | SF_FORMAT_PCM_24, 5000, 22050));
  EXPECT_NE(mels(CacheKind::pcm), mels(CacheKind::mel));
}

TEST(PcmCache, ARecordHoldsTheSamplesOfItsFile) {
  const MadeDataset made(6);
  const Config config = pcm_of(made);
  build(config);
  const Dataset dataset = open_dataset(config);
  const StoredArray array = stored_arrays(config, dataset)[0];
  EXPECT_EQ(array.identity.array, "pcm");
  const Pack pack(array.folder, array.identity);
  ASSERT_EQ(pack.entries().size(), 6u);
  for (int i = 0; i < 6; ++i) {
    const std::string wav = read_text(made.wav(i));
    const auto& entries = pack.entries();
    const auto entry =
        std::ranges::find_if(entries, [&](const PackEntry& e) { return pack.id(e) == MadeDataset::id(i); });
    ASSERT_NE(entry, entries.end());
    EXPECT_EQ(entry->type, ElementType::int16);
    EXPECT_EQ(entry->columns, 1);
    std::string samples(entry->bytes, '\0');
    pack.read(*entry, std::as_writable_bytes(std::span(samples)));
    EXPECT_EQ(samples, wav.substr(44));
  }
}

// ---- what a change costs ----

TEST(PcmCache, AChangeOfTheMelReusesThePack) {
  const MadeDataset made(16);
  build(pcm_of(made));
  const std::map<std::string, std::string> changes = {{"n_mels", "40"},
                                                      {"mel_fmin", "50"},
                                                      {"mel_fmax", "7000"},
                                                      {"hop_length", "200"},
                                                      {"mel_scale", "htk"},
                                                      {"mel_norm", "none"},
                                                      {"mel_power", "2"},
                                                      {"mel_log", "log10"},
                                                      {"mel_floor", "0.5"},
                                                      {"mel_framing", "centered"},
                                                      {"cache_type", "float16"},
                                                      {"mel_precision", "exact"},
                                                      {"mel_layout", "bins_first"}};
  for (const auto& [key, value] : changes) {
    SCOPED_TRACE(key);
    ConfigLoader loader;
    loader.set(key, value, "test");
    Config config = pcm_of(made, PreprocessingMode::precompute);
    config.mel = loader.config().mel;
    config.cache_type = loader.config().cache_type;
    const CacheBuildReport report = build(config);
    EXPECT_EQ(report.built, 0);
    EXPECT_EQ(report.kept, 32);
    CacheStats stats;
    EXPECT_EQ(batches(config, 5, &stats), live_batches(config, 5));
    EXPECT_EQ(stats.misses, 0);
  }
}

TEST(PcmCache, AnotherSampleRateMakesAnotherPackAndMelsLiveBeside) {
  const MadeDataset made(10);
  const Config config = pcm_of(made);
  EXPECT_EQ(build(config).built, 20);
  Config other = config;
  other.mel.sample_rate = 16000;
  EXPECT_EQ(build(other).built, 10);
  const Config mel = with_kind(config, CacheKind::mel);
  EXPECT_EQ(build(mel).built, 10);
  std::map<std::string, int> arrays;
  for (const PackSummary& pack : list_packs(cache_folder(config))) ++arrays[pack.identity.array];
  EXPECT_EQ(arrays, (std::map<std::string, int>{{"mel", 1}, {"pcm", 2}, {"tokens", 1}}));
  for (const Config& c : {config, other, mel}) {
    EXPECT_EQ(build(c).built, 0);
    CacheStats stats;
    EXPECT_EQ(batches(c, 5, &stats), live_batches(c, 5));
    EXPECT_EQ(stats.misses, 0);
  }
}

TEST(PcmCache, AChangedFileRebuildsItsRecordAlone) {
  MadeDataset made(12);
  const Config config = pcm_of(made, PreprocessingMode::precompute);
  build(config);
  made.write(4, made.noise(7000));
  const CacheBuildReport report = build(config);
  EXPECT_EQ(report.built, 1);
  EXPECT_EQ(report.kept, 23);
  EXPECT_EQ(batches(config, 6), live_batches(config, 6));
}

TEST(PcmCache, AnInterruptedBuildKeepsWhatWasFinished) {
  const MadeDataset made(30);
  const Config config = pcm_of(made);
  struct Stop {};
  const auto stop = [](std::size_t done, std::size_t, std::uint64_t) {
    if (done >= 10) throw Stop();
  };
  EXPECT_THROW(build(config, {.progress = stop}), Stop);
  const CacheBuildReport report = build(config);
  EXPECT_GE(report.kept, 20);
  EXPECT_EQ(report.built + report.kept, 60);
  EXPECT_EQ(batches(config, 9), live_batches(config, 9));
}

// ---- damage ----

TEST(PcmCache, ADamagedRecordIsDecodedAgainAndNamed) {
  const MadeDataset made(20);
  for (const bool mapped : {true, false}) {
    Config config = pcm_of(made);
    config.enable_memory_mapping = mapped;
    fs::remove_all(cache_folder(config));
    const auto live = live_batches(config, 20);
    build(config);
    const std::string victim = damage(config, 3);
    {
      Feed feed(config);
      for (const std::uint64_t expected : live) EXPECT_EQ(fingerprint(feed.next()), expected);
      ASSERT_EQ(feed.recomputed().size(), 1u);
      EXPECT_EQ(feed.recomputed()[0].id, victim);
      EXPECT_THAT(feed.recomputed()[0].reason, HasSubstr("checksum"));
      EXPECT_GT(feed.stats().cache.recomputed, 0);
    }
    config.auto_rebuild_mel_cache = false;
    config.on_bad_sample = OnBadSample::skip;
    Feed feed(config);
    for (int i = 0; i < 20; ++i) feed.next();
    ASSERT_EQ(feed.skipped().size(), 1u);
    EXPECT_EQ(feed.skipped()[0].id, victim);
  }
}

TEST(PcmCache, AShardCutOffUnderARunningFeedCostsRecomputingOnly) {
  const MadeDataset made(60, 4, 30000);
  const Config config = pcm_of(made);
  const auto live = live_batches(config, 45);
  build(config);
  const fs::path shard = cache_folder(config) / pcm_pack(config).folder_name() / "00000.pack";
  Feed feed(config);
  expect_same_though_cut(feed, shard, live);
}

TEST(PcmCache, VerifyFindsAndFixes) {
  MadeDataset made(12);
  const Config config = pcm_of(made);
  const auto verify = [&](bool fix = false) {
    return verify_cache(config, open_current_dataset(config), {.fix = fix});
  };
  build(config);
  EXPECT_EQ(verify().checked, 24);
  EXPECT_TRUE(verify().findings.empty());
  const std::string bad = damage(config, 7);
  const int stale = bad == MadeDataset::id(2) ? 3 : 2;
  made.write(stale, made.noise(4321));
  std::ofstream(made.folder() / "metadata.csv", std::ios::app) << "new|The wheel turns.\n";
  fs::copy(made.wav(5), made.folder() / "wavs/new.wav");
  const CacheCheck check = verify();
  std::map<std::string, std::string> found;  // of the samples
  for (const CacheFinding& f : check.findings)
    if (f.array == "pcm")
      found[f.id] = f.kind == Kind::bad ? "bad" : f.kind == Kind::stale ? "stale" : "missing";
  EXPECT_EQ(found, (std::map<std::string, std::string>{
                       {bad, "bad"}, {MadeDataset::id(stale), "stale"}, {"new", "missing"}}));
  const CacheCheck fixed = verify(true);
  EXPECT_TRUE(fixed.clean());
  EXPECT_EQ(fixed.fixed, check.bad + check.stale + check.missing);
  EXPECT_TRUE(verify().findings.empty());
  EXPECT_EQ(batches(config, 6), live_batches(config, 6));
}

TEST(PcmCache, ExportWritesMelsTheSameLiveAndCached) {
  const MadeDataset made(6);
  write_formats(made, 6);
  const Config config = pcm_of(made);
  const auto exported = [&](PreprocessingMode mode, const char* name) {
    export_npy(with_mode(config, mode), open_dataset(config), made.folder() / name);
    std::map<std::string, std::string> files;
    for (const auto& file : fs::recursive_directory_iterator(made.folder() / name))
      if (file.is_regular_file())
        files[file.path().lexically_relative(made.folder() / name)] = read_text(file.path());
    return files;
  };
  const auto live = exported(PreprocessingMode::runtime, "out/live");
  EXPECT_EQ(live.size(), 12u);
  build(config);
  EXPECT_EQ(exported(PreprocessingMode::automatic, "out/cached"), live);
}

TEST(PcmCache, ATreeOfMelsComesFirstAndIsStillChecked) {
  const MadeDataset made(8);
  Config config = pcm_of(made, PreprocessingMode::precompute);
  export_npy(config, open_dataset(config), made.folder() / "out");
  config.npy_mels = made.folder() / "out/mels";
  const fs::path one = fs::path(config.npy_mels) / (MadeDataset::id(1) + ".npy");
  const std::vector<float> other(9 * 80, 5.0F);
  write_npy(one, NpyType::float32, std::vector<std::int64_t>{9, 80}, std::as_bytes(std::span(other)));
  fs::remove(fs::path(config.npy_mels) / (MadeDataset::id(2) + ".npy"));
  EXPECT_EQ(build(config).built, 1 + 8);  // what the tree lacks, and the tokens
  Feed feed(config);
  bool seen = false;
  for (int b = 0; b < 4; ++b) {
    const Batch batch = feed.next();
    for (std::size_t r = 0; r < 4; ++r)
      if (batch.utterances[r] == 1) {
        seen = true;
        EXPECT_EQ(batch.mel_lengths[r], 9);
        EXPECT_EQ(batch.mel[r * static_cast<std::size_t>(batch.shape.frames) * 80], 5.0F);
      }
  }
  EXPECT_TRUE(seen);
  EXPECT_EQ(feed.stats().cache.misses, 0);
  fs::resize_file(fs::path(config.npy_mels) / (MadeDataset::id(3) + ".npy"), 300);
  const CacheCheck check = verify_cache(config, open_dataset(config));
  EXPECT_TRUE(std::ranges::any_of(check.findings, [](const CacheFinding& f) {
    return f.array == "mel" && f.kind == Kind::bad && f.id == MadeDataset::id(3);
  }));
}

TEST(PcmCache, PruneDropsWhatNobodyReadsAndOtherVersions) {
  MadeDataset made(8);
  const Config config = pcm_of(made);
  build(config);
  const auto prune = [&](const Config& c, bool remove) {
    return prune_cache(c, open_current_dataset(c), {.remove = remove});
  };
  EXPECT_TRUE(prune(config, false).empty());
  EXPECT_TRUE(prune(with_kind(config, CacheKind::mel), false).empty()) << "in use by another configuration";
  made.write(3, made.noise(5000));
  build(config);
  ASSERT_EQ(prune(config, true).size(), 1u);
  EXPECT_TRUE(prune(config, false).empty());
  EXPECT_EQ(build(config).built, 0);
  const PackIdentity old{.array = "pcm",
                         .parameters = "sample_rate: 22050\nresample: true\ndecode_version: 0\n"};
  {
    PackWriter writer(cache_folder(config) / old.folder_name(), old);
    writer.append({.id = "x", .type = ElementType::int16});
    writer.finish();
  }
  for (const CacheKind kind : {CacheKind::mel, CacheKind::pcm}) {
    const auto items = prune(with_kind(config, kind), false);
    ASSERT_EQ(items.size(), 1u);
    EXPECT_THAT(items[0].reason, HasSubstr("decode_version: 0"));
  }
}

// ---- auto ----

CacheCosts costs(double decode_ms, double mel_ms, std::uint64_t free_bytes = 41'000'000'000) {
  return {.samples = 48,
          .decode_ms = decode_ms,
          .mel_ms = mel_ms,
          .pcm_bytes = 3'100'000'000,
          .mel_bytes = 1'900'000'000,
          .free_bytes = free_bytes};
}

TEST(CacheKind, PcmNeedsThreeQuartersOfTheWorkAndTheRoom) {
  const auto chosen = [](const CacheCosts& c) { return choose_cache_kind(c).kind; };
  EXPECT_EQ(chosen(costs(1.9, 0.3)), CacheKind::pcm);
  EXPECT_EQ(chosen(costs(0.9, 0.3)), CacheKind::pcm);
  EXPECT_EQ(chosen(costs(0.89, 0.3)), CacheKind::mel);
  EXPECT_EQ(chosen(costs(1.9, 0.3, 3'487'500'000)), CacheKind::pcm);
  EXPECT_EQ(chosen(costs(1.9, 0.3, 3'487'499'999)), CacheKind::mel);
  EXPECT_EQ(chosen(costs(1.9, 0.3, 1'900'000'000)), CacheKind::mel);
  EXPECT_TRUE(choose_cache_kind(costs(1.9, 0.3, 1'900'000'000)).final);
  EXPECT_EQ(chosen(costs(1.9, 0.3, 1'899'999'999)), CacheKind::mel);
  EXPECT_FALSE(choose_cache_kind(costs(1.9, 0.3, 1'899'999'999)).final);
  EXPECT_FALSE(choose_cache_kind({}).final);
  CacheCosts small_pcm = costs(0.1, 0.3, 1'000'000'000);
  small_pcm.pcm_bytes = 500'000'000;
  EXPECT_EQ(chosen(small_pcm), CacheKind::pcm);
}

TEST(CacheKind, TheReasonIsASentenceWithTheFigures) {
  EXPECT_EQ(choose_cache_kind(costs(1.9, 0.3)).reason,
            "pcm: decoding takes 1.90 of 2.20 ms a sample, and 3.1 GB fit (41.0 GB free)");
  EXPECT_EQ(choose_cache_kind(costs(0.04, 0.3)).reason, "mel: decoding takes only 0.04 of 0.34 ms a sample");
  EXPECT_EQ(choose_cache_kind(costs(1.9, 0.3, 3'000'000'000)).reason,
            "mel: decoding takes 1.90 of 2.20 ms a sample, but 3.1 GB of samples do not fit (3.0 GB free)");
  EXPECT_EQ(choose_cache_kind(costs(1.9, 0.3, 2'000'000)).reason,
            "mel: neither 3.1 GB of samples nor 1.9 GB of mels fit (2.0 MB free)");
}

TEST(CacheKind, AutoIsMelUntilABuildDecidesAndStaysAsItWasDecided) {
  const MadeDataset made(12);
  for (int i = 0; i < 12; ++i) write(made, i, test::encode(SF_FORMAT_WAV | SF_FORMAT_PCM_24, 5000, 22050));
  const Config config = with_kind(made.config(), CacheKind::automatic);
  const auto mel = live_batches(with_kind(config, CacheKind::mel), 5),
             pcm = live_batches(with_kind(config, CacheKind::pcm), 5);
  ASSERT_NE(mel, pcm);
  EXPECT_EQ(live_batches(config, 5), mel);
  EXPECT_EQ(batches(config, 5), mel) << "without a decision";
  EXPECT_EQ(build(config, {.mel = false}).kind.kind, CacheKind::mel);
  EXPECT_FALSE(fs::exists(cache_kind_file(config, open_dataset(config)))) << "tokens decide nothing";

  EXPECT_EQ(build(config, {.costs = costs(1.9, 0.3)}).kind.kind, CacheKind::pcm);
  const CacheBuildReport again = build(config, {.costs = costs(0.1, 0.3)});
  EXPECT_EQ(again.kind.kind, CacheKind::pcm) << "it is kept";
  EXPECT_EQ(again.kind.reason, choose_cache_kind(costs(1.9, 0.3)).reason);
  EXPECT_EQ(again.built, 0);
  EXPECT_EQ(live_batches(config, 5), pcm);
  for (const PreprocessingMode mode : {PreprocessingMode::automatic, PreprocessingMode::precompute}) {
    CacheStats stats;
    EXPECT_EQ(batches(with_mode(config, mode), 5, &stats), pcm);
    EXPECT_EQ(stats.misses, 0);
  }
  Feed feed(config);
  EXPECT_THAT(feed.dataset().notes,
              testing::Contains(HasSubstr("cache_kind auto is pcm: decoding takes 1.90")));
  EXPECT_EQ(verify_cache(config, open_dataset(config)).checked, 24);
  EXPECT_TRUE(prune_cache(config, open_dataset(config)).empty());
  EXPECT_EQ(batches(with_kind(config, CacheKind::mel), 5), mel) << "the configuration's word counts";
}

TEST(CacheKind, PrecomputeMeasuresAndKeeps) {
  const MadeDataset made(12);
  const Config config =
      with_mode(with_kind(made.config(), CacheKind::automatic), PreprocessingMode::precompute);
  CacheStats stats;
  EXPECT_EQ(batches(config, 4, &stats), live_batches(config, 4));
  EXPECT_EQ(stats.misses, 0);
  const Dataset dataset = open_dataset(config);
  const CacheKindChoice choice = cache_kind_of(config, dataset);
  EXPECT_TRUE(choice.final);
  EXPECT_THAT(choice.reason,
              StartsWith(choice.kind == CacheKind::pcm ? "pcm: decoding takes" : "mel: decoding takes"));
  const std::string text = read_text(cache_kind_file(config, dataset));
  EXPECT_THAT(text, HasSubstr("samples: 12\n"));
  EXPECT_THAT(text, HasSubstr("free_bytes: "));
}

TEST(CacheKind, ADatasetWithoutAUsableSampleIsNotDecided) {
  MadeDataset made(3);
  const Config config = with_kind(made.config(), CacheKind::automatic);
  const Dataset dataset = open_dataset(config);
  for (int i = 0; i < 3; ++i) made.write(i, "gone");
  const CacheKindChoice choice = decide_cache_kind(config, dataset);
  EXPECT_EQ(choice.reason, "mel: no sample could be measured");
  EXPECT_FALSE(fs::exists(cache_kind_file(config, dataset)));
}

TEST(CacheKind, AFullDiskMeansMelAndNothingIsKeptWhereNeitherFits) {
  const MadeDataset made(6);
  const Config config = with_kind(made.config(), CacheKind::automatic);
  EXPECT_EQ(build(config, {.costs = costs(1.9, 0.3, 1'000'000)}).kind.reason,
            choose_cache_kind(costs(1.9, 0.3, 1'000'000)).reason);
  EXPECT_FALSE(fs::exists(cache_kind_file(config, open_dataset(config)))) << "the next build may find room";
  EXPECT_EQ(build(config, {.costs = costs(1.9, 0.3, 2'500'000'000)}).kind.kind, CacheKind::mel);
  EXPECT_TRUE(fs::exists(cache_kind_file(config, open_dataset(config))));
  EXPECT_EQ(build(config, {.costs = costs(1.9, 0.3)}).kind.kind, CacheKind::mel);
}

TEST(CacheKind, AGarbledDecisionIsAnErrorThatNamesTheFile) {
  const MadeDataset made(6);
  const Config config = with_kind(made.config(), CacheKind::automatic);
  build(config, {.costs = costs(1.9, 0.3)});
  const Dataset dataset = open_dataset(config);
  const fs::path path = cache_kind_file(config, dataset);
  const std::string whole = read_text(path);
  for (const std::string& text :
       {std::string(), std::string("\0\0\0", 3), whole.substr(0, whole.find("reason")),
        std::string("#\nkind: wav\nreason: \"x\"\n"), whole.substr(0, whole.find(" fit"))}) {
    std::ofstream(path) << text;
    for (const auto& use :
         {std::function<void()>([&] { Feed feed(config); }), std::function<void()>([&] { build(config); }),
          std::function<void()>([&] { verify_cache(config, dataset); })})
      try {
        use();
        FAIL() << text;
      } catch (const Error& e) {
        EXPECT_THAT(e.what(), HasSubstr("cache_kind.yaml: must say which cache_kind"));
      }
  }
  EXPECT_NO_THROW(Feed{with_kind(config, CacheKind::pcm)}) << "who names the kind needs no decision";
  fs::remove(path);
  EXPECT_EQ(build(config, {.costs = costs(0.1, 0.3)}).kind.kind, CacheKind::mel) << "decided anew";
}

TEST(CacheKind, BuildsSideBySideDecideOnce) {
  const MadeDataset made(4);
  const Config config = with_kind(made.config(), CacheKind::automatic);
  const Dataset dataset = open_dataset(config);
  for (int round = 0; round < 20; ++round) {
    fs::remove(cache_kind_file(config, dataset));
    std::vector<CacheKind> kinds(4);
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < kinds.size(); ++i)
        threads.emplace_back([&, i] {
          kinds[i] = decide_cache_kind(config, dataset, costs(i % 2 == 0 ? 1.9 : 0.1, 0.3)).kind;
        });
    }
    EXPECT_EQ(std::set<CacheKind>(kinds.begin(), kinds.end()).size(), 1u);
    EXPECT_EQ(cache_kind_of(config, dataset).kind, kinds[0]);
  }
}

TEST(CacheKind, AFolderThatCannotBeWrittenIsAClearError) {
  const MadeDataset made(4);
  Config config = with_kind(made.config(), CacheKind::automatic);
  const Dataset dataset = open_dataset(config);
  std::ofstream(made.folder() / "file") << "no folder";
  config.cache_dir = made.folder() / "file";
  try {
    build_cache(config, dataset);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("file"));
  }
}

}  // namespace
}  // namespace penstock
