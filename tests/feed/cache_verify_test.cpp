#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/features/half.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/store.h"
#include "tests/feed/made_dataset.h"
#include "tests/long_run.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Kind = CacheFinding::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int clips = 12;

std::string read(const fs::path& path) { return read_text(path); }
void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

class CacheVerifyTest : public testing::Test {
 protected:
  [[nodiscard]] fs::path out() const { return out_ / "npy"; }
  Dataset dataset() const { return open_current_dataset(config); }
  CacheBuildReport build(std::uint64_t shard_bytes = PackWriterOptions{}.shard_bytes) const {
    const Dataset data = dataset();
    return build_cache(config, data, {.shard_bytes = shard_bytes});
  }
  CacheCheck verify(bool fix = false) const { return verify_cache(config, dataset(), {.fix = fix}); }
  std::vector<PruneItem> prune(bool remove, double unused_days = 30) const {
    return prune_cache(config, dataset(), {.remove = remove, .unused_days = unused_days});
  }
  /// Every exported file by its name.
  [[nodiscard]] std::map<std::string, std::string> exported() const {
    fs::remove_all(out());
    export_npy(config, dataset(), out());
    std::map<std::string, std::string> files;
    for (const auto& file : fs::recursive_directory_iterator(out()))
      if (file.is_regular_file()) files[file.path().lexically_relative(out()).string()] = read(file.path());
    return files;
  }
  [[nodiscard]] fs::path folder_of(const std::string& array) const {
    const Dataset data = dataset();
    for (const StoredArray& a : stored_arrays(config, data))
      if (a.identity.array == array) return a.folder;
    throw Error("no such array");
  }
  /// Changes a byte of an id's record, `at` bytes from the start of its payload.
  void damage(const std::string& array, const std::string& id, std::int64_t at = 0) const {
    const Dataset data = dataset();
    for (const StoredArray& a : stored_arrays(config, data)) {
      if (a.identity.array != array) continue;
      const Pack pack(a.folder, a.identity);
      const auto entry = std::ranges::find_if(
          pack.entries(), [&](const PackEntry& e) { return pack.live(e) && pack.id(e) == id; });
      ASSERT_NE(entry, pack.entries().end());
      const fs::path shard = a.folder / pack.shards()[entry->shard];
      std::string bytes = read(shard);
      bytes[static_cast<std::size_t>(static_cast<std::int64_t>(entry->offset) + at)] ^= 0x10;
      write(shard, bytes);
    }
  }
  void edit_manifest(const std::function<void(std::vector<std::string>&)>& edit) const {
    std::istringstream in(read(made.folder() / "metadata.csv"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    edit(lines);
    std::ofstream file(made.folder() / "metadata.csv");
    for (const std::string& line : lines) file << line << "\n";
  }

  MadeDataset made{clips};
  Config config = made.config();

 private:
  TempFolder out_;
};

std::vector<std::string> named(const CacheCheck& check) {
  static constexpr const char* kinds[] = {"bad", "stale", "missing", "orphaned"};
  std::vector<std::string> out;
  for (const CacheFinding& f : check.findings)
    out.push_back(std::string(kinds[static_cast<std::size_t>(f.kind)]) + " " + f.array + " " + f.id);
  return out;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// ---- packs ----

TEST_F(CacheVerifyTest, WhatWasJustBuiltIsAllGood) {
  build();
  const CacheCheck check = verify();
  EXPECT_THAT(named(check), IsEmpty());
  EXPECT_EQ(check.checked, 2 * clips);
  EXPECT_TRUE(check.clean());
}

TEST_F(CacheVerifyTest, WithoutACacheItSaysWhatMakesOne) {
  const std::string error = error_of([&] { verify(); });
  EXPECT_THAT(error, HasSubstr("penstock cache build"));
  EXPECT_THAT(error, HasSubstr(".penstock"));
}

TEST_F(CacheVerifyTest, AFlippedByteIsNamedAndFixed) {
  build();
  const auto before = exported();
  damage("mel", MadeDataset::id(3), 100);
  damage("tokens", MadeDataset::id(5));
  EXPECT_THAT(named(verify()),
              ElementsAre("bad mel " + MadeDataset::id(3), "bad tokens " + MadeDataset::id(5)));
  EXPECT_FALSE(verify().clean());
  EXPECT_THAT(verify().findings[0].reason, HasSubstr("mel-"));
  EXPECT_THAT(verify().findings[0].reason, HasSubstr("00000.pack"));

  const CacheCheck fixed = verify(true);
  EXPECT_EQ(fixed.bad, 2);
  EXPECT_EQ(fixed.fixed, 2);
  EXPECT_TRUE(fixed.clean());
  EXPECT_TRUE(fixed.findings[0].fixed);
  EXPECT_THAT(named(verify()), IsEmpty());
  EXPECT_EQ(exported(), before);
}

TEST_F(CacheVerifyTest, AChangedClipIsStaleAndNothingElse) {
  build();
  made.write(2, made.noise(5000));
  EXPECT_THAT(named(verify()), ElementsAre("stale mel " + MadeDataset::id(2)));
  EXPECT_THAT(verify().findings[0].reason, HasSubstr("wavs/" + MadeDataset::id(2) + ".wav"));
  EXPECT_TRUE(verify(true).clean());
  EXPECT_THAT(named(verify()), IsEmpty());
  const auto cached = exported();
  config.preprocessing_mode = PreprocessingMode::runtime;
  EXPECT_EQ(exported(), cached);
}

TEST_F(CacheVerifyTest, AChangedLineIsStaleInTheTokensAlone) {
  build();
  edit_manifest([](auto& lines) { lines[4] = MadeDataset::id(4) + "|The wheel turns ."; });
  EXPECT_THAT(named(verify()), ElementsAre("stale tokens " + MadeDataset::id(4)));
  EXPECT_THAT(verify().findings[0].reason, HasSubstr("metadata.csv:5"));
  EXPECT_TRUE(verify(true).clean());
  EXPECT_THAT(named(verify()), IsEmpty());
}

TEST_F(CacheVerifyTest, WhatIsNewIsMissingAndWhatIsGoneIsOrphaned) {
  build();
  std::string first;
  edit_manifest([&](auto& lines) {
    first = lines.front();
    lines.erase(lines.begin());
    lines.push_back("s10-000099" + lines.front().substr(lines.front().find('|')));
  });
  fs::copy(made.wav(1), made.folder() / "wavs/s10-000099.wav");
  const std::string gone = MadeDataset::id(0);
  EXPECT_THAT(named(verify()), ElementsAre("missing mel s10-000099", "orphaned mel " + gone,
                                           "missing tokens s10-000099", "orphaned tokens " + gone));
  const CacheCheck fixed = verify(true);
  EXPECT_EQ(fixed.fixed, 4);
  EXPECT_THAT(named(verify()), IsEmpty());
}

TEST_F(CacheVerifyTest, TheOtherSplitIsNoOrphan) {
  build();
  for (const Split split : {Split::train, Split::val}) {
    config.split = split;
    EXPECT_THAT(named(verify()), IsEmpty());
    EXPECT_EQ(verify().checked, 2 * clips);
  }
}

TEST_F(CacheVerifyTest, ARecordOfAnUnusableClipIsStale) {
  build();
  fs::remove(made.wav(6));
  EXPECT_THAT(named(verify()), ElementsAre("stale mel " + MadeDataset::id(6)));
  EXPECT_TRUE(verify(true).clean());
}

TEST_F(CacheVerifyTest, WhatCannotBeMadeAgainStaysAndSaysWhy) {
  build();
  damage("mel", MadeDataset::id(7));
  const std::string wav = read(made.wav(7));
  const auto time = fs::last_write_time(made.wav(7));
  std::string broken = wav;
  std::fill(broken.begin(), broken.begin() + 12,
            'x');  // same size and time, so that nobody notices at opening
  write(made.wav(7), broken);
  fs::last_write_time(made.wav(7), time);
  const CacheCheck check = verify(true);
  EXPECT_EQ(check.bad, 1);
  EXPECT_EQ(check.fixed, 0);
  EXPECT_FALSE(check.clean());
  EXPECT_THAT(check.findings[0].reason,
              HasSubstr("cannot be made again: decode: wavs/" + MadeDataset::id(7)));
}

TEST_F(CacheVerifyTest, ADamagedIndexIsFoundAndFixed) {
  build();
  const auto before = exported();
  const fs::path shard = folder_of("mel") / "00000.pack";
  std::string bytes = read(shard);
  bytes[bytes.size() - 100] ^= 1;
  write(shard, bytes);
  const CacheCheck check = verify();
  ASSERT_EQ(check.bad, 1);
  EXPECT_EQ(check.findings[0].id, "");
  EXPECT_THAT(check.findings[0].reason, HasSubstr("/00000.pack: "));
  EXPECT_TRUE(verify(true).clean());
  EXPECT_THAT(named(verify()), IsEmpty());
  EXPECT_EQ(exported(), before);
}

TEST_F(CacheVerifyTest, ATruncatedShardIsFoundAndFixed) {
  build();
  const auto before = exported();
  const fs::path shard = folder_of("mel") / "00000.pack";
  fs::resize_file(shard, fs::file_size(shard) / 2);
  const CacheCheck check = verify();
  EXPECT_EQ(check.bad, 1);      // the shard
  EXPECT_GT(check.missing, 0);  // its records behind the cut
  EXPECT_LT(check.missing, clips);
  EXPECT_TRUE(verify(true).clean());
  EXPECT_THAT(named(verify()), IsEmpty());
  EXPECT_EQ(exported(), before);
}

TEST_F(CacheVerifyTest, OfOneRandomChangeExactlyWhatItTouchedIsFound) {
  std::mt19937_64 random(7);
  build(20'000);  // many shards
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < cases(12, 300); ++i) {
    const std::string id = MadeDataset::id(pick(clips));
    std::string expected;
    switch (pick(4)) {
      case 0:
        damage("mel", id, pick(80));
        expected = "bad mel " + id;
        break;
      case 1:
        damage("tokens", id);
        expected = "bad tokens " + id;
        break;
      case 2:
        made.write(std::stoi(id.substr(4)), made.noise(400 + pick(9000)));
        expected = "stale mel " + id;
        break;
      default:
        edit_manifest([&](auto& lines) {
          auto& line = *std::ranges::find_if(lines, [&](const auto& l) { return l.starts_with(id); });
          line.insert(line.size() - 1, "water ");
        });
        expected = "stale tokens " + id;
    }
    EXPECT_THAT(named(verify()), ElementsAre(expected));
    ASSERT_TRUE(verify(true).clean());
  }
  const auto cached = exported();
  config.preprocessing_mode = PreprocessingMode::runtime;
  EXPECT_EQ(exported(), cached);
}

TEST_F(CacheVerifyTest, ProgressReachesItsEndAndMayStopTheWork) {
  build();
  std::size_t last = 0, most = 0;
  std::uint64_t read_bytes = 0;
  const Dataset data = dataset();
  verify_cache(config, data, {.progress = [&](std::size_t done, std::size_t total, std::uint64_t bytes) {
                 EXPECT_LE(last, done);
                 last = done, most = total, read_bytes = bytes;
               }});
  EXPECT_EQ(most, 2 * clips);
  EXPECT_GT(read_bytes, 0);
  struct Stop {};
  const CacheVerifyOptions stopping{.progress = [](auto...) { throw Stop(); }};
  EXPECT_THROW(verify_cache(config, data, stopping), Stop);
}

TEST_F(CacheVerifyTest, TwoRepairsAtOnceAreRefused) {
  build();
  const Dataset data = dataset();
  const StoredArray array = stored_arrays(config, data)[0];
  const PackWriter busy(array.folder, array.identity);
  EXPECT_THAT(error_of([&] { verify(true); }), HasSubstr("process"));
}

// ---- trees ----

class TreeVerifyTest : public CacheVerifyTest {
 protected:
  /// The dataset's mels and tokens as trees: float16 with bins first, and int64.
  TreeVerifyTest() {
    Config made_with = config;
    made_with.cache_type = CacheType::float16;
    made_with.mel.layout = MelLayout::bins_first;
    export_npy(made_with, open_dataset(made_with), out());
    for (const auto& file : fs::directory_iterator(out() / "tokens")) {
      const std::string bytes = read(file.path());
      const NpyHeader header = parse_npy_header(std::as_bytes(std::span(bytes)));
      std::vector<std::int64_t> wide(static_cast<std::size_t>(header.shape[0]));
      const auto* narrow = reinterpret_cast<const std::int32_t*>(bytes.data() + header.data_offset);
      std::copy_n(narrow, wide.size(), wide.begin());
      write_npy(file.path(), NpyType::int64, std::span(header.shape).first(1),
                std::as_bytes(std::span(wide)));
    }
    config.npy_mels = mels = (out() / "mels").string();
    config.npy_tokens = tokens = (out() / "tokens").string();
  }
  [[nodiscard]] fs::path mel(int i) const { return fs::path(mels) / (MadeDataset::id(i) + ".npy"); }
  [[nodiscard]] fs::path token(int i) const { return fs::path(tokens) / (MadeDataset::id(i) + ".npy"); }
  std::string mels, tokens;
};

TEST_F(TreeVerifyTest, AGoodTreeHasNoFindings) {
  const CacheCheck check = verify();
  EXPECT_THAT(named(check), IsEmpty());
  EXPECT_EQ(check.checked, 2 * clips);
}

TEST_F(TreeVerifyTest, BadStaleAndMissingFilesAreWrittenAgainAsTheOthersAre) {
  const std::string good_mel = read(mel(1)), stale_mel = read(mel(2)), good_tokens = read(token(4));
  fs::resize_file(mel(1), 200);
  write(mel(2), std::string(stale_mel.size(), '\0').replace(0, 128, stale_mel, 0, 128));
  fs::last_write_time(mel(2), fs::last_write_time(made.wav(2)) - std::chrono::hours(1));
  fs::remove(mel(3));
  write(token(4), "no array");
  EXPECT_THAT(named(verify()),
              ElementsAre("bad mel " + MadeDataset::id(1), "stale mel " + MadeDataset::id(2),
                          "missing mel " + MadeDataset::id(3), "bad tokens " + MadeDataset::id(4)));
  EXPECT_THAT(verify().findings[0].reason, HasSubstr(mel(1).string()));
  const CacheCheck fixed = verify(true);
  EXPECT_EQ(fixed.fixed, 4);
  EXPECT_TRUE(fixed.clean());
  EXPECT_THAT(named(verify()), IsEmpty());
  EXPECT_EQ(read(mel(1)), good_mel);
  EXPECT_EQ(read(mel(2)), stale_mel);
  EXPECT_TRUE(fs::exists(mel(3)));
  EXPECT_EQ(read(token(4)), good_tokens);
}

TEST_F(TreeVerifyTest, OrphansOfAUsersTreeAreNamedAndNeverDeleted) {
  fs::copy(mel(1), fs::path(mels) / "stranger.npy");
  const CacheCheck check = verify(true);
  EXPECT_THAT(named(check), ElementsAre("orphaned mel stranger"));
  EXPECT_THAT(check.findings[0].reason, HasSubstr("yours to delete"));
  EXPECT_EQ(check.fixed, 0);
  EXPECT_FALSE(check.clean());
  EXPECT_TRUE(fs::exists(fs::path(mels) / "stranger.npy"));
}

TEST_F(TreeVerifyTest, ATreeInsideAnotherIsNoOrphan) {
  fs::rename(tokens, fs::path(mels) / "tokens");
  config.npy_tokens = (fs::path(mels) / "tokens").string();
  EXPECT_THAT(named(verify()), IsEmpty());
}

TEST_F(TreeVerifyTest, WhatThePackHasIsNotMissingFromTheTree) {
  fs::remove(mel(3));
  build();
  EXPECT_THAT(named(verify()), IsEmpty());
  damage("mel", MadeDataset::id(3));
  EXPECT_THAT(named(verify()), ElementsAre("bad mel " + MadeDataset::id(3)));
  EXPECT_TRUE(verify(true).clean());
  EXPECT_FALSE(fs::exists(mel(3)));  // it belongs into the pack
}

TEST_F(TreeVerifyTest, AMelOfOtherBinsIsBad) {
  const std::vector<float> wrong(5 * 7);
  const std::int64_t shape[] = {5, 7};
  write_npy(mel(0), NpyType::float32, shape, std::as_bytes(std::span(wrong)));
  ASSERT_THAT(named(verify()), ElementsAre("bad mel " + MadeDataset::id(0)));
  EXPECT_THAT(verify().findings[0].reason, HasSubstr("80 bins, but has the shape (5, 7)"));
  EXPECT_TRUE(verify(true).clean());
}

class ExtraVerifyTest : public CacheVerifyTest {
 protected:
  ExtraVerifyTest() {
    const Dataset data = dataset();
    for (std::size_t m = 0; m < data.members.size(); ++m) {
      const std::string_view id = data.index.utterance(data.members[m]).id;
      std::vector<float> f0(static_cast<std::size_t>(data.lengths[m].frames), static_cast<float>(m));
      const std::int64_t shape[] = {data.lengths[m].frames};
      write_npy(out() / "f0" / (std::string(id) + ".npy"), NpyType::float32, shape,
                std::as_bytes(std::span(f0)));
    }
    config.extra = {{"f0", (out() / "f0").string()}};
  }
  [[nodiscard]] fs::path f0(int i) const { return out() / "f0" / (MadeDataset::id(i) + ".npy"); }
};

TEST_F(ExtraVerifyTest, AnExtraThatIsGoneCannotBeMadeAgain) {
  EXPECT_THAT(named(verify()), IsEmpty());
  fs::remove(f0(2));
  write(f0(3), "no array");
  const CacheCheck check = verify(true);
  EXPECT_THAT(named(check), ElementsAre("missing f0 " + MadeDataset::id(2), "bad f0 " + MadeDataset::id(3)));
  EXPECT_EQ(check.fixed, 0);
  EXPECT_FALSE(fs::exists(f0(2)));
}

TEST_F(ExtraVerifyTest, AChangedExtraIsStaleInItsPackAlone) {
  build();
  EXPECT_THAT(named(verify()), IsEmpty());
  const std::string bytes = read(f0(4));
  write(f0(4), std::string(bytes).replace(bytes.size() - 4, 4, "abcd"));
  EXPECT_THAT(named(verify()), ElementsAre("stale f0 " + MadeDataset::id(4)));
  EXPECT_TRUE(verify(true).clean());
  EXPECT_THAT(named(verify()), IsEmpty());
}

TEST_F(ExtraVerifyTest, ExportGivesBackWhatWasRead) {
  const std::map<std::string, std::string> live = [&] {
    std::map<std::string, std::string> files;
    for (int i = 0; i < clips; ++i) files["f0/" + MadeDataset::id(i) + ".npy"] = read(f0(i));
    return files;
  }();
  build();
  const fs::path elsewhere = out() / "exported";
  const CacheExportReport report = export_npy(config, dataset(), elsewhere);
  EXPECT_EQ(report.arrays, 3 * clips);
  for (const auto& [name, bytes] : live) EXPECT_EQ(read(elsewhere / name), bytes);
}

// ---- export ----

TEST_F(CacheVerifyTest, ExportIsTheSameFromTheCacheAndComputed) {
  for (const CacheType type : {CacheType::float32, CacheType::float16})
    for (const MelLayout layout : {MelLayout::frames_first, MelLayout::bins_first}) {
      config.cache_type = type;
      config.mel.layout = layout;
      const auto computed = exported();
      EXPECT_EQ(computed.size(), 2 * clips);
      build();
      EXPECT_EQ(exported(), computed);
    }
}

TEST_F(CacheVerifyTest, ExportLeavesOutBadSamplesByName) {
  dataset();  // indexed while all is well
  const auto time = fs::last_write_time(made.wav(1));
  std::string bytes = read(made.wav(1));
  std::fill(bytes.begin(), bytes.begin() + 12, 'x');
  write(made.wav(1), bytes);
  fs::last_write_time(made.wav(1), time);
  EXPECT_THAT(error_of([&] { export_npy(config, dataset(), out()); }), HasSubstr(MadeDataset::id(1)));
  config.on_bad_sample = OnBadSample::skip;
  const CacheExportReport report = export_npy(config, dataset(), out());
  EXPECT_EQ(report.arrays, 2 * (clips - 1));
  ASSERT_EQ(report.bad.size(), 1);
  EXPECT_EQ(report.bad[0].utterance, MadeDataset::id(1));
}

TEST_F(CacheVerifyTest, ExportKeepsSplitsApartThatUseTheSameIds) {
  const MadeDataset validation(3, 2);
  config.train_data = made.folder().string();
  config.val_data = validation.folder().string();
  config.dataset_path.clear();
  EXPECT_THAT(error_of([&] { export_npy(config, dataset(), out()); }), HasSubstr("--split val"));
  EXPECT_FALSE(fs::exists(out()));
  config.split = Split::val;
  EXPECT_EQ(export_npy(config, dataset(), out()).arrays, 2 * 3);
}

TEST_F(CacheVerifyTest, SplitsThatUseTheSameIdsHaveRecordsOfTheirOwn) {
  const MadeDataset validation(3, 2);
  config.train_data = made.folder().string();
  config.val_data = validation.folder().string();
  config.dataset_path.clear();
  build();
  EXPECT_EQ(build_cache(config, dataset()).built, 0);
  EXPECT_THAT(named(verify()), IsEmpty());
}

// ---- prune ----

std::vector<std::string> paths(const std::vector<PruneItem>& items) {
  std::vector<std::string> out;
  for (const PruneItem& item : items) out.push_back(item.path.string());
  return out;
}

TEST_F(CacheVerifyTest, PruneLeavesWhatIsInUse) {
  build();
  EXPECT_THAT(prune(true, 0), IsEmpty());
  EXPECT_THAT(named(verify()), IsEmpty());
}

TEST_F(CacheVerifyTest, PruneTakesOtherConfigurationsThatNobodyUses) {
  build();
  const fs::path ours = folder_of("mel");
  config.mel.n_mels = 40;
  build();
  const fs::path other = folder_of("mel");
  config.mel.n_mels = 80;
  EXPECT_THAT(prune(true, 30), IsEmpty());
  const auto planned = prune(false, 0);
  EXPECT_THAT(paths(planned), ElementsAre(other.string()));
  EXPECT_THAT(planned[0].reason, HasSubstr("not of this configuration"));
  EXPECT_GT(planned[0].bytes, 0);
  EXPECT_TRUE(fs::exists(other));
  EXPECT_THAT(paths(prune(true, 0)), ElementsAre(other.string()));
  EXPECT_FALSE(fs::exists(other));
  EXPECT_TRUE(fs::exists(ours));
}

TEST_F(CacheVerifyTest, PruneDoesNotTakeAPackThatIsBeingBuilt) {
  const PackIdentity other{.array = "mel", .parameters = "n_mels: 3\n"};
  const fs::path folder = made.folder() / ".penstock" / other.folder_name();
  {
    PackWriter writer(folder, other);
    EXPECT_THAT(error_of([&] { prune(true, 0); }), HasSubstr("process"));
  }
  EXPECT_TRUE(fs::exists(folder));
}

TEST_F(CacheVerifyTest, PruneTakesWhatAnotherVersionMadeAndLeavesNewerFormats) {
  build();
  PackIdentity old = mel_pack(config);
  old.parameters.replace(old.parameters.find("mel_version: "), 13, "mel_version: 9");
  const fs::path cache = made.folder() / ".penstock";
  {
    PackWriter writer(cache / old.folder_name(), old);
    writer.append({.id = "x", .rows = 0, .columns = 80});
    writer.finish();
  }
  const auto items = prune(true);
  EXPECT_THAT(paths(items), ElementsAre((cache / old.folder_name()).string()));
  EXPECT_THAT(items[0].reason, HasSubstr("mel_version: 9"));
  EXPECT_FALSE(fs::exists(cache / old.folder_name()));

  const fs::path shard = folder_of("mel") / "00000.pack";
  std::string bytes = read(shard);
  bytes[16] = 2;  // the format's version, behind magic and checksum
  std::uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + 20, sizeof header_bytes);
  const std::uint64_t checksum = xxh3(std::string_view(bytes).substr(16, header_bytes - 16));
  std::memcpy(bytes.data() + 8, &checksum, sizeof checksum);
  write(shard, bytes);
  EXPECT_THAT(prune(true, 0), IsEmpty());
  EXPECT_EQ(read(shard), bytes);
}

TEST_F(CacheVerifyTest, PruneTakesWhatCannotBeRead) {
  build();
  const fs::path folder = folder_of("tokens");
  write(folder / "00000.pack", "nothing like a shard");
  EXPECT_THAT(paths(prune(true)), ElementsAre(folder.string()));
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(fs::exists(folder_of("mel")));
}

TEST_F(CacheVerifyTest, PruneLeavesAPackWhoseRecordsCanBeSaved) {
  build();
  const fs::path shard = folder_of("mel") / "00000.pack";
  fs::resize_file(shard, fs::file_size(shard) - 10);
  EXPECT_THAT(prune(true), IsEmpty());
  EXPECT_EQ(verify().missing, 0);  // they are found by scanning
  EXPECT_TRUE(verify(true).clean());
}

TEST_F(CacheVerifyTest, PruneTakesAPackThatWasNeverFinished) {
  const PackIdentity other{.array = "mel", .parameters = "n_mels: 3\n"};
  const fs::path folder = made.folder() / ".penstock" / other.folder_name();
  PackWriter(folder, other).append({.id = "x", .rows = 0, .columns = 3});
  const auto items = prune(true);
  EXPECT_THAT(paths(items), ElementsAre(folder.string()));
  EXPECT_THAT(items.at(0).reason, HasSubstr("only unfinished files"));
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(CacheVerifyTest, PruneRewritesAPackWithoutItsStaleRecords) {
  build();
  made.write(2, made.noise(5000));
  build();  // leaves the old record behind
  edit_manifest([](auto& lines) { lines.erase(lines.begin()); });
  const auto before = exported();
  const auto planned = prune(false);
  EXPECT_THAT(paths(planned), ElementsAre(folder_of("mel").string(), folder_of("tokens").string()));
  EXPECT_THAT(planned[0].reason, HasSubstr("2 of its 13 records"));
  EXPECT_THAT(planned[1].reason, HasSubstr("1 of its 12 records"));
  EXPECT_EQ(prune(true).size(), 2);
  EXPECT_THAT(prune(false), IsEmpty());
  EXPECT_THAT(named(verify()), IsEmpty());
  EXPECT_EQ(exported(), before);
}

TEST_F(CacheVerifyTest, PruneTakesInTheLeftOversOfAKilledBuild) {
  build();
  const Dataset data = dataset();
  const StoredArray array = stored_arrays(config, data)[1];
  const std::string id = MadeDataset::id(1);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(array.want(1).rows), 5);
  {
    PackWriter writer(array.folder, array.identity);
    writer.append({.id = id,
                   .source = array.want(1).source,
                   .type = ElementType::int32,
                   .rows = array.want(1).rows,
                   .columns = 1,
                   .payload = std::as_bytes(std::span(tokens))});
  }  // no finish(): as if it were killed
  const auto part = [&] {
    const auto files = fs::directory_iterator(array.folder);
    return std::any_of(begin(files), end(files),
                       [](const auto& f) { return f.path().extension() == ".part"; });
  };
  ASSERT_TRUE(part());
  EXPECT_THAT(prune(false).at(0).reason, HasSubstr("unfinished"));
  ASSERT_TRUE(part());
  prune(true);
  EXPECT_FALSE(part());
  EXPECT_THAT(named(verify()), IsEmpty());
  EXPECT_EQ(Pack(array.folder, array.identity).entries().size(), clips);
}

}  // namespace
}  // namespace penstock
