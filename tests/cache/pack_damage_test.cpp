// Flipped bits and missing ends: found, named, repaired, never served.
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "penstock/cache/pack_format.h"
#include "tests/cache/pack_samples.h"
#include "tests/long_run.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

bool something_found(const Pack& pack) {
  Scratch<std::byte> scratch;
  return !pack.problems().empty() || std::ranges::any_of(pack.entries(), [&](const PackEntry& e) {
    return !pack.check(e, scratch).empty();
  });
}

/// Drops what is bad, adds what is missing then, and expects the pack to be as new.
void repair_and_expect(const PackFolder& folder, std::span<const Sample> samples) {
  {
    PackWriter writer(folder.pack(), folder.identity);
    const Pack pack(folder.pack(), folder.identity);
    Scratch<std::byte> scratch;
    writer.rewrite(pack, [&](const PackEntry& e) { return pack.check(e, scratch).empty(); });
    const Pack rewritten(folder.pack(), folder.identity);
    EXPECT_FALSE(something_found(rewritten));
    for (const Sample& s : samples)
      if (rewritten.find(s.id, s.source.name) == nullptr) writer.append(s.record());
    writer.finish();
  }
  const Pack pack(folder.pack(), folder.identity);
  EXPECT_EQ(pack.entries().size(), samples.size());
  EXPECT_FALSE(something_found(pack));
  for (const Sample& s : samples) expect_holds(pack, s);
}

/// Three small records, one of them empty: a shard of a kilobyte.
std::vector<Sample> tiny_samples() {
  std::mt19937_64 random(5);
  std::vector<Sample> samples;
  for (const std::int32_t rows : {3, 0, 20}) {
    Sample s = make_sample(fmt::format("id{}", rows), random);
    s.type = ElementType::float16;
    s.rows = rows, s.columns = 1;
    s.payload = random_bytes(static_cast<std::size_t>(rows) * 2, random);
    samples.push_back(std::move(s));
  }
  return samples;
}

TEST(PackDamage, EveryFlippedBitIsFoundAndNeverServed) {
  const PackFolder folder;
  const auto samples = tiny_samples();
  write_pack(folder, samples);
  const auto whole = file_bytes(folder.shard(0));
  ASSERT_LT(whole.size(), 2000u);
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    const std::byte flipped = whole[bit / 8] ^ std::byte{1} << bit % 8;
    overwrite(folder.shard(0), bit / 8, std::span(&flipped, 1));
    for (const bool mapped : {true, false}) {
      const Pack pack(folder.pack(), folder.identity, {.mapped = mapped});
      const int served = expect_nothing_wrong(pack, samples);
      EXPECT_GE(served, 2) << "only the record that has the bit may be lost; bit " << bit;
      EXPECT_TRUE(something_found(pack)) << "bit " << bit;
    }
    overwrite(folder.shard(0), bit / 8, std::span(&whole[bit / 8], 1));
  }
  EXPECT_FALSE(something_found(Pack(folder.pack(), folder.identity)));
}

TEST(PackDamage, RewritingRepairsAFlipAnywhere) {
  const auto samples = tiny_samples();
  std::mt19937_64 random(1);
  const PackFolder model;
  write_pack(model, samples);
  const auto whole = file_bytes(model.shard(0));
  for (std::size_t at = 0; at < whole.size(); at += cases(5, 1)) {
    const PackFolder folder;
    fs::create_directories(folder.pack());
    fs::copy_file(model.shard(0), folder.shard(0));
    const std::byte flipped = whole[at] ^ std::byte{1} << random() % 8;
    overwrite(folder.shard(0), at, std::span(&flipped, 1));
    repair_and_expect(folder, samples);
    ASSERT_FALSE(HasFailure()) << "byte " << at;
  }
  fmt::print("EVIDENCE a bit flipped in every byte of a shard | found, never served, repaired | {} bytes\n",
             whole.size() / static_cast<std::size_t>(cases(5, 1)));
}

TEST(PackDamage, AFlipUnderAnOpenPackIsNotServed) {
  for (const bool mapped : {true, false})
    for (const bool verify : {true, false}) {
      const PackFolder folder;
      const auto samples = make_samples(20, 1);
      write_pack(folder, samples);
      fs::last_write_time(folder.shard(0), fs::file_time_type::clock::now() - std::chrono::hours(1));
      const Pack pack(folder.pack(), folder.identity, {.mapped = mapped, .verify = verify});
      for (const Sample& s : samples) expect_holds(pack, s);
      for (const PackEntry& e : pack.entries()) {
        if (e.bytes == 0) continue;
        const std::byte flipped = ~payload_of(pack, e)[e.bytes / 2];
        overwrite(folder.shard(0), e.offset + e.bytes / 2, std::span(&flipped, 1));
        std::vector<std::byte> bytes(e.bytes);
        EXPECT_THAT(thrown_by<RecordError>([&] { pack.read(e, bytes); }),
                    HasSubstr("is damaged: its checksum must be"));
      }
    }
}

TEST(PackDamage, AShardWhoseTimeAloneHasChangedIsStillServed) {
  for (const bool mapped : {true, false}) {
    const PackFolder folder;
    const auto samples = make_samples(20, 1);
    write_pack(folder, samples);
    const Pack pack(folder.pack(), folder.identity, {.mapped = mapped});
    fs::last_write_time(folder.shard(0), fs::file_time_type::clock::now() - std::chrono::hours(1));
    for (int twice = 0; twice < 2; ++twice)
      for (const Sample& s : samples) expect_holds(pack, s);
  }
}

TEST(PackDamage, WithoutVerificationOnlyTheStampIsLookedAt) {
  const PackFolder folder;
  const auto samples = tiny_samples();
  write_pack(folder, samples);
  const PackEntry e = *Pack(folder.pack(), folder.identity).find(samples[2].id, samples[2].source.name);
  const std::byte flipped = ~samples[2].payload[0];
  overwrite(folder.shard(0), e.offset, std::span(&flipped, 1));
  for (const bool mapped : {true, false}) {
    std::vector<std::byte> bytes(e.bytes);
    Pack(folder.pack(), folder.identity, {.mapped = mapped, .verify = false}).read(e, bytes);
    EXPECT_EQ(bytes[0], flipped);
    const Pack careful(folder.pack(), folder.identity, {.mapped = mapped});
    EXPECT_THAT(thrown_by<RecordError>([&] { careful.read(e, bytes); }),
                HasSubstr("00000.pack: the record at byte"));
  }
}

/// Every kind of place, and random ones.
std::vector<std::uint64_t> places_to_cut(const Pack& pack, std::uint64_t size, int random_ones) {
  std::vector<std::uint64_t> places{0,
                                    1,
                                    sizeof(ShardHeader),
                                    size - 1,
                                    size - sizeof(ShardFooter),
                                    size - sizeof(ShardFooter) - 1,
                                    size - sizeof(ShardFooter) - pack.entries().size() * sizeof(IndexEntry)};
  for (const PackEntry& e : pack.entries().first(3))
    for (const std::uint64_t at : {e.offset - 64, e.offset - 1, e.offset, e.offset + 1,
                                   e.offset + e.bytes / 2, e.offset + e.bytes, e.offset + e.bytes + 1})
      places.push_back(at);
  std::mt19937_64 random(3);
  for (int i = 0; i < random_ones; ++i) places.push_back(random() % size);
  return places;
}

TEST(PackDamage, AShardCutOffBeforeOpeningServesWhatIsLeft) {
  const PackFolder model;
  const auto samples = make_samples(20, 1);
  write_pack(model, samples);
  const Pack pack(model.pack(), model.identity);
  for (const std::uint64_t size : places_to_cut(pack, fs::file_size(model.shard(0)), cases(20, 300))) {
    const PackFolder folder;
    fs::create_directories(folder.pack());
    fs::copy_file(model.shard(0), folder.shard(0));
    fs::resize_file(folder.shard(0), size);
    const auto left = std::ranges::count_if(
        pack.entries(), [&](const PackEntry& e) { return aligned_to_64(e.offset + e.bytes) <= size; });
    for (const bool mapped : {true, false}) {
      const Pack cut(folder.pack(), folder.identity, {.mapped = mapped});
      EXPECT_EQ(expect_nothing_wrong(cut, samples), left) << size;
      EXPECT_FALSE(cut.problems().empty());
    }
    repair_and_expect(folder, samples);
    ASSERT_FALSE(testing::Test::HasFailure()) << size;
  }
}

TEST(PackDamage, AShardCutOffUnderAnOpenPackServesWhatIsLeft) {
  const auto samples = make_samples(20, 1, 40'000);
  for (const bool mapped : {true, false})
    for (const bool read_before : {true, false}) {
      const PackFolder model;
      write_pack(model, samples);
      const Pack pack(model.pack(), model.identity);
      for (const std::uint64_t size : places_to_cut(pack, fs::file_size(model.shard(0)), cases(10, 100))) {
        const PackFolder folder;
        write_pack(folder, samples);
        const Pack cut(folder.pack(), folder.identity, {.mapped = mapped});
        if (read_before) {
          EXPECT_EQ(expect_nothing_wrong(cut, samples), 20);
        }
        fs::resize_file(folder.shard(0), size);
        const auto left = std::ranges::count_if(
            pack.entries(), [&](const PackEntry& e) { return e.offset + e.bytes <= size || e.bytes == 0; });
        EXPECT_EQ(expect_nothing_wrong(cut, samples), left) << size;
      }
    }
}

TEST(PackDamage, UseIsNotTrustedWhenTheShardIsCutOff) {
  const PackFolder folder;
  const auto samples = make_samples(20, 1, 40'000);
  write_pack(folder, samples);
  const Pack pack(folder.pack(), folder.identity);
  fs::resize_file(folder.shard(0), fs::file_size(folder.shard(0)) / 2);
  Scratch<std::byte> scratch;
  int served = 0, refused = 0;
  for (const Sample& s : samples) {
    std::vector<std::byte> copy(s.payload.size());
    try {
      pack.read(*pack.find(s.id, s.source.name), scratch,
                [&](std::span<const std::byte> p) { std::ranges::copy(p, copy.begin()); });
      EXPECT_EQ(copy, s.payload);
      ++served;
    } catch (const RecordError&) {
      ++refused;
    }
  }
  EXPECT_GT(served, 0);
  EXPECT_GT(refused, 0);
}

TEST(PackDamage, ReadersSurviveCutsAtAnyMomentAndNeverServeAWrongByte) {
  const auto samples = make_samples(30, 1, 100'000);
  for (int round = 0; round < cases(10, 200); ++round) {
    const PackFolder folder;
    write_pack(folder, samples);
    const Pack pack(folder.pack(), folder.identity, {.mapped = round % 4 != 3});
    std::atomic<int> readings = 0;
    std::vector<std::jthread> readers;
    for (int t = 0; t < 2; ++t)
      readers.emplace_back([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          expect_nothing_wrong(pack, samples);
          ++readings;
        }
      });
    std::mt19937_64 random(static_cast<std::uint64_t>(round));
    std::uint64_t size = fs::file_size(folder.shard(0));
    while (readings == 0) std::this_thread::yield();
    while (size > 0) {
      size = random() % size;
      fs::resize_file(folder.shard(0), size);
      const int seen = readings;
      if (random() % 2 == 0)
        while (readings == seen) std::this_thread::yield();
    }
    readers.clear();
    EXPECT_EQ(expect_nothing_wrong(pack, samples),
              std::ranges::count_if(samples, [](const Sample& s) { return s.payload.empty(); }));
  }
}

TEST(PackDamage, CheckSaysWhatIsWrong) {
  const PackFolder folder;
  const auto samples = tiny_samples();
  write_pack(folder, samples);
  const Pack pack(folder.pack(), folder.identity);
  const PackEntry& e = *pack.find(samples[2].id, samples[2].source.name);
  Scratch<std::byte> scratch;
  const auto check_with_flip = [&](std::uint64_t at) {
    const std::byte old = file_bytes(folder.shard(0))[at], flipped = ~old;
    overwrite(folder.shard(0), at, std::span(&flipped, 1));
    std::string found = pack.check(e, scratch);
    overwrite(folder.shard(0), at, std::span(&old, 1));
    return found;
  };
  EXPECT_THAT(check_with_flip(e.offset), HasSubstr("its checksum must be"));
  EXPECT_THAT(check_with_flip(e.offset - 128), HasSubstr("its header is damaged"));
  EXPECT_THAT(check_with_flip(e.offset - 1), HasSubstr("its padding is not zero"));
  EXPECT_THAT(check_with_flip(e.offset + e.bytes), HasSubstr("its padding is not zero"));
  EXPECT_EQ(pack.check(e, scratch), "");
  fs::resize_file(folder.shard(0), e.offset + 3);
  EXPECT_THAT(pack.check(e, scratch), HasSubstr("it is cut off"));
  EXPECT_EQ(pack.id(e), samples[2].id);
  fs::resize_file(folder.shard(0), e.offset - 64);
  EXPECT_THROW((void)pack.id(e), RecordError);
}

}  // namespace
}  // namespace penstock
