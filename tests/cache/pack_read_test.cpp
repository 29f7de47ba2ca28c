// What is written is read back, and packs are listed.
#include <numeric>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>

#include "penstock/cache/pack_format.h"
#include "tests/cache/pack_samples.h"
#include "tests/long_run.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class PackRead : public testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] Pack open(const PackOptions& options) const {
    return {folder_.pack(), folder_.identity, options};
  }
  [[nodiscard]] Pack open() const { return open({.mapped = GetParam()}); }
  PackFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(, PackRead, testing::Bool(),
                         [](const auto& which) { return which.param ? "Mapped" : "NotMapped"; });

TEST_P(PackRead, BytesBackAreBytesInForRandomRecordsInAnyShards) {
  for (int seed = 0; seed < cases(20, 400); ++seed) {
    const PackFolder folder;
    const auto samples = make_samples(1 + seed * 7 % 60, static_cast<std::uint64_t>(seed));
    write_pack(folder, samples, {.shard_bytes = std::uint64_t{1} << (10 + seed % 8)});
    const Pack pack(folder.pack(), folder.identity, {.mapped = GetParam()});
    EXPECT_EQ(pack.entries().size(), samples.size());
    EXPECT_TRUE(pack.problems().empty());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      expect_holds(pack, samples[i]);
      EXPECT_EQ(pack.id(pack.entries()[i]), samples[i].id) << "in the order of writing";
    }
    EXPECT_EQ(pack.find("another", 1), nullptr);
  }
}

TEST_P(PackRead, RecordsOfOneIdFromTwoSourcesStandBesideEachOther) {
  std::mt19937_64 random(1);
  Sample one = make_sample("id", random), two = make_sample("id", random);
  two.source.name = 7;
  {
    PackWriter writer(folder_.pack(), folder_.identity);
    for (const Sample* s : {&one, &two}) writer.append(s->record());
    writer.finish();
  }
  const Pack pack = open();
  for (const Sample* s : {&one, &two}) expect_holds(pack, *s);
}

TEST_P(PackRead, ANewRecordOfAnIdReplacesTheOldOne) {
  std::mt19937_64 random(1);
  std::map<std::string, Sample> newest;
  for (int run = 0; run < 3; ++run) {
    PackWriter writer(folder_.pack(), folder_.identity, {.shard_bytes = 8000});
    for (int i = 0; i < 40; ++i) {
      Sample s = make_sample(fmt::format("id-{}", random() % 20), random);
      writer.append(s.record());
      newest[s.id] = std::move(s);
    }
    writer.finish();
  }
  const Pack pack = open();
  EXPECT_EQ(pack.entries().size(), 120u);
  for (const auto& [id, sample] : newest) expect_holds(pack, sample);
  EXPECT_EQ(std::ranges::count_if(pack.entries(), [&](const PackEntry& e) { return pack.live(e); }),
            static_cast<std::ptrdiff_t>(newest.size()));
}

TEST_P(PackRead, AFolderThatIsNotThereIsAnEmptyPack) {
  const Pack pack = open();
  EXPECT_EQ(pack.find("a", 1), nullptr);
  EXPECT_TRUE(pack.entries().empty());
  EXPECT_TRUE(pack.problems().empty());
  EXPECT_EQ(Pack().find("a", 1), nullptr);
}

TEST_P(PackRead, AWriterThatWroteNothingLeavesNoShard) {
  write_pack(folder_, {});
  EXPECT_TRUE(folder_.files().empty());
  EXPECT_TRUE(open().entries().empty());
}

TEST_P(PackRead, IdsMayBeEmptyOrLong) {
  std::mt19937_64 random(1);
  const std::vector<Sample> samples{make_sample("", random), make_sample(std::string(4096, 'x'), random)};
  write_pack(folder_, samples);
  for (const Sample& s : samples) expect_holds(open(), s);
}

TEST_P(PackRead, RecordsThatDoNotFitTogetherAreRefusedAndTheWriterGoesOn) {
  const auto samples = make_samples(2, 1);
  PackWriter writer(folder_.pack(), folder_.identity);
  writer.append(samples[0].record());
  PackRecord wrong = samples[1].record();
  wrong.rows += 1;
  wrong.columns += 1;
  EXPECT_THAT(thrown_by([&] { writer.append(wrong); }), HasSubstr("must be"));
  const std::string id(4097, 'x');
  wrong = samples[1].record();
  wrong.id = id;
  EXPECT_THAT(thrown_by([&] { writer.append(wrong); }), HasSubstr("at most 4096 bytes"));
  writer.append(samples[1].record());
  writer.finish();
  for (const Sample& s : samples) expect_holds(open(), s);
}

TEST_P(PackRead, ThreadsAppendTogether) {
  constexpr int threads = 4, each = 60;
  std::vector<std::vector<Sample>> samples;
  for (int t = 0; t < threads; ++t) samples.push_back(make_samples(each, static_cast<std::uint64_t>(t)));
  PackWriter writer(folder_.pack(), folder_.identity, {.shard_bytes = 30'000});
  {
    std::vector<std::jthread> running;
    for (const auto& mine : samples)
      running.emplace_back([&] {
        for (const Sample& s : mine) writer.append(s.record());
      });
  }
  writer.finish();
  const Pack pack = open();
  EXPECT_EQ(pack.entries().size(), std::size_t{threads * each});
  for (const auto& mine : samples)
    for (const Sample& s : mine) expect_holds(pack, s);
  EXPECT_EQ(std::accumulate(pack.shards().begin(), pack.shards().end(), std::uint64_t{0},
                            [&](std::uint64_t n, const auto& name) {
                              return n + fs::file_size(folder_.pack() / name);
                            }) > writer.bytes_written(),
            true);
}

TEST_P(PackRead, ABuildBesideAnOpenPackDoesNotDisturbIt) {
  const auto first = make_samples(10, 1), second = make_samples(10, 2);
  write_pack(folder_, first);
  const Pack before = open();
  PackWriter writer(folder_.pack(), folder_.identity);
  for (const Sample& s : second) writer.append(s.record());
  EXPECT_EQ(open().entries().size(), 10u) << "what is not sealed is not seen";
  writer.finish();
  for (const Sample& s : first) expect_holds(before, s);
  EXPECT_EQ(open().entries().size(), 20u);
  writer.append(first[0].record());  // a writer goes on after finish()
  writer.finish();
  EXPECT_EQ(open().entries().size(), 21u);
  EXPECT_EQ(before.entries().size(), 10u);
}

TEST_P(PackRead, WillNeedIsAlwaysAllowed) {
  const auto samples = make_samples(10, 1);
  write_pack(folder_, samples);
  const Pack pack = open();
  for (const PackEntry& e : pack.entries()) pack.will_need(e);
  fs::resize_file(folder_.shard(0), 0);
  for (const PackEntry& e : pack.entries()) pack.will_need(e);
}

TEST_P(PackRead, RecordsThatHaveLeftMemoryAreReadFromDisk) {
  const PackFolder folder(fs::temp_directory_path());
  const auto samples = make_samples(40, 1, 100'000);
  write_pack(folder, samples);
  const Pack pack(folder.pack(), folder.identity, {.mapped = GetParam()});
  for (const bool ask : {false, true, false, true}) {
    const File file = File::open(folder.shard(0).c_str());
    ASSERT_EQ(::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
    for (const PackEntry& e : pack.entries())
      if (ask) pack.will_need(e);
    for (const Sample& s : samples) expect_holds(pack, s);
  }
}

TEST_P(PackRead, ReadingIntoTheWrongSizeIsRefused) {
  write_pack(folder_, make_samples(1, 1));
  const Pack pack = open();
  std::vector<std::byte> bytes(pack.entries()[0].bytes + 1);
  EXPECT_THAT(thrown_by([&] { pack.read(pack.entries()[0], bytes); }), HasSubstr("is read into"));
}

TEST_P(PackRead, AShardOfAnotherPackIsNamedAndNotServed) {
  const auto samples = make_samples(4, 1);
  write_pack(folder_, samples);
  PackFolder other;
  other.identity.parameters = "bins: 100\n";
  write_pack(other, make_samples(4, 1));
  fs::copy_file(other.shard(0), folder_.shard(7));
  const Pack pack = open();
  EXPECT_EQ(pack.entries().size(), 4u);
  EXPECT_THAT(pack.problems(), ElementsAre(HasSubstr("00007.pack: belongs to another pack")));
  EXPECT_THAT(pack.damaged_shards(), ElementsAre("00007.pack"));
}

/// The shard's header as a later version could have it.
void make_newer(const fs::path& path) {
  std::vector<std::byte> bytes = file_bytes(path);
  ShardHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.version = 2;
  std::memcpy(bytes.data(), &header, sizeof header);
  header.checksum =
      xxh3(std::span<const std::byte>(bytes).subspan(checksum_from, header.header_bytes - checksum_from));
  std::memcpy(bytes.data(), &header, sizeof header);
  overwrite(path, 0, std::span(bytes).first(sizeof header));
}

TEST_P(PackRead, AShardOfANewerVersionIsNamedAndLeftAlone) {
  write_pack(folder_, make_samples(4, 1));
  make_newer(folder_.shard(0));
  fs::copy_file(folder_.shard(0), folder_.pack() / "00001.pack.part");
  const auto bytes = file_bytes(folder_.shard(0));
  write_pack(folder_, make_samples(4, 2));
  Pack pack = open();
  EXPECT_EQ(pack.entries().size(), 4u);
  EXPECT_THAT(pack.problems(),
              ElementsAre(HasSubstr("00000.pack: was written by a newer version (format 2")));
  EXPECT_TRUE(pack.damaged_shards().empty());
  {
    PackWriter writer(folder_.pack(), folder_.identity);
    EXPECT_EQ(writer.rewrite(open(), [](const PackEntry&) { return false; }), 4);
  }
  EXPECT_THAT(folder_.files(), ElementsAre("00000.pack", "00001.pack.part"));
  EXPECT_EQ(file_bytes(folder_.shard(0)), bytes);
  EXPECT_EQ(file_bytes(folder_.pack() / "00001.pack.part"), bytes);
  EXPECT_THAT(list_packs(folder_.cache())[0].problem, HasSubstr("newer version"));
}

TEST(PackList, ShowsWhatIsThere) {
  PackFolder folder;
  const auto samples = make_samples(30, 1);
  write_pack(folder, samples, {.shard_bytes = 20'000});
  const PackIdentity mel = folder.identity;
  folder.identity = {.array = "f0_hz", .parameters = ""};
  write_pack(folder, samples);
  fs::create_directories(folder.cache() / "mel-123");
  fs::create_directories(folder.cache() / "npy");

  const auto packs = list_packs(folder.cache());
  ASSERT_EQ(packs.size(), 2u);
  EXPECT_EQ(packs[0].identity, folder.identity);
  EXPECT_EQ(packs[1].identity, mel);
  EXPECT_EQ(packs[1].fingerprint, mel.fingerprint());
  EXPECT_EQ(packs[1].records, 30);
  EXPECT_GT(packs[1].shards, 1);
  EXPECT_EQ(packs[1].problem, "");
  EXPECT_TRUE(packs[1].leftovers.empty());
  std::uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(packs[1].folder))
    if (file.path().filename() != "lock") bytes += file.file_size();
  EXPECT_EQ(packs[1].bytes, bytes);
  EXPECT_GT(packs[1].written_ns, 0);
  EXPECT_TRUE(list_packs(folder.cache() / "nothing").empty());
}

TEST(PackList, LeftoversAreFilesThatNobodyWrites) {
  const PackFolder folder;
  {
    PackWriter writer(folder.pack(), folder.identity);
    writer.append(make_samples(1, 1)[0].record());
    EXPECT_TRUE(list_packs(folder.cache())[0].leftovers.empty());
  }
  EXPECT_THAT(list_packs(folder.cache())[0].leftovers, ElementsAre("00000.pack.part"));
  PackWriter(folder.pack(), folder.identity).finish();
  EXPECT_TRUE(list_packs(folder.cache())[0].leftovers.empty());
  EXPECT_EQ(list_packs(folder.cache())[0].records, 1);
}

TEST(PackList, MarkUsedMovesTheTimeOfUse) {
  const PackFolder folder;
  write_pack(folder, make_samples(1, 1));
  fs::last_write_time(folder.pack() / "lock", fs::file_time_type::clock::now() - std::chrono::hours(1));
  const std::int64_t before = list_packs(folder.cache())[0].used_ns;
  mark_used(folder.pack());
  EXPECT_GT(list_packs(folder.cache())[0].used_ns, before);
  mark_used(folder.cache() / "nothing");
  EXPECT_FALSE(fs::exists(folder.cache() / "nothing"));
}

TEST(PackList, ADamagedPackSaysWhy) {
  const PackFolder folder;
  write_pack(folder, make_samples(5, 1));
  fs::resize_file(folder.shard(0), fs::file_size(folder.shard(0)) - 1);
  EXPECT_THAT(list_packs(folder.cache())[0].problem, HasSubstr("00000.pack: its footer is damaged"));
  fs::resize_file(folder.shard(0), 10);
  EXPECT_THAT(list_packs(folder.cache())[0].problem, HasSubstr("00000.pack: its header is damaged"));
  EXPECT_EQ(list_packs(folder.cache())[0].identity.array, "mel");
  fs::remove(folder.shard(0));
  fs::create_directory(folder.shard(0));
  EXPECT_THAT(list_packs(folder.cache())[0].problem, HasSubstr("00000.pack: cannot be read"));
}

TEST(PackIdentity, NamesAFolderAndAChangeMakesAnotherOne) {
  const PackIdentity mel{.array = "mel", .parameters = "bins: 80\n"};
  EXPECT_EQ(mel.folder_name(), fmt::format("mel-{:016x}", mel.fingerprint()));
  EXPECT_NE(mel.fingerprint(), (PackIdentity{"mel", "bins: 81\n"}.fingerprint()));
  EXPECT_NE(mel.fingerprint(), (PackIdentity{"mels", "bins: 80\n"}.fingerprint()));
}

TEST(PackHash, IsXxh3) {
  EXPECT_EQ(xxh3(std::string_view()),
            0x2d06800538d394c2u);  // from XXH3's own documentation of the empty input
  const std::string text(1000, 'a');
  EXPECT_EQ(xxh3(text), xxh3(std::as_bytes(std::span(text))));
}

}  // namespace
}  // namespace penstock
