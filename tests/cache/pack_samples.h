// Records to write into packs, and folders to write them to.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "penstock/cache/pack.h"
#include "penstock/cache/pack_writer.h"
#include "tests/temp_folder.h"

namespace penstock {

class PackFolder {
 public:
  PackFolder() = default;
  explicit PackFolder(const std::filesystem::path& parent) : cache_(parent) {}

  [[nodiscard]] const std::filesystem::path& cache() const { return cache_.path(); }
  [[nodiscard]] std::filesystem::path pack() const { return cache_ / identity.folder_name(); }
  [[nodiscard]] std::filesystem::path shard(int number) const {
    return pack() / fmt::format("{:05}.pack", number);
  }
  /// Names of its files but the lock, sorted.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(pack()))
      names.push_back(file.path().filename());
    std::erase(names, "lock");
    std::ranges::sort(names);
    return names;
  }

  PackIdentity identity{.array = "mel", .parameters = "bins: 80\ntype: float32\n"};

 private:
  TempFolder cache_;
};

/// A record that owns its bytes.
struct Sample {
  std::string id;
  SourceKey source;
  ElementType type = ElementType::float32;
  std::int32_t rows = 0, columns = 0;
  std::vector<std::byte> payload;

  [[nodiscard]] PackRecord record() const { return {id, source, type, rows, columns, payload}; }
};

inline std::vector<std::byte> random_bytes(std::size_t n, std::mt19937_64& random) {
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

/// Any type and shape, 1 row and none included; the payload is up to about `most` bytes.
inline Sample make_sample(std::string id, std::mt19937_64& random, std::int32_t most = 4000) {
  Sample s{.id = std::move(id)};
  s.source = {
      random(), {static_cast<std::int64_t>(random() >> 1), static_cast<std::int64_t>(random() >> 1)}, 44};
  s.source.name = xxh3(s.id);
  s.type = static_cast<ElementType>(1 + random() % 3);
  if (s.type == ElementType::float16 && s.source.stamp.size % 2 == 0) s.type = ElementType::int16;
  s.columns = std::array{1, 1, 80, 7}[random() % 4];
  s.rows = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(1 + most / (4 * s.columns)));
  if (random() % 8 == 0) s.rows = s.columns = 1;
  s.payload = random_bytes(static_cast<std::size_t>(s.rows) * s.columns * element_bytes(s.type), random);
  return s;
}

inline std::vector<Sample> make_samples(int n, std::uint64_t seed, std::int32_t most = 4000) {
  std::mt19937_64 random(seed);
  std::vector<Sample> samples;
  for (int i = 0; i < n; ++i)
    samples.push_back(make_sample(fmt::format("گفتار/LJ{:03}-{}", i, seed), random, most));
  return samples;
}

inline void write_pack(const PackFolder& folder, std::span<const Sample> samples,
                       const PackWriterOptions& options = {}) {
  PackWriter writer(folder.pack(), folder.identity, options);
  for (const Sample& s : samples) writer.append(s.record());
  writer.finish();
}

inline std::vector<std::byte> payload_of(const Pack& pack, const PackEntry& entry) {
  std::vector<std::byte> bytes(entry.bytes);
  pack.read(entry, bytes);
  return bytes;
}

/// Every field and byte, by both ways of reading, and check() agrees.
inline void expect_holds(const Pack& pack, const Sample& s) {
  const PackEntry* e = pack.find(s.id, s.source.name);
  ASSERT_NE(e, nullptr) << s.id;
  EXPECT_EQ(pack.id(*e), s.id);
  EXPECT_EQ(e->source, s.source);
  EXPECT_EQ(e->type, s.type);
  EXPECT_EQ(e->rows, s.rows);
  EXPECT_EQ(e->columns, s.columns);
  EXPECT_EQ(e->offset % 64, 0u);
  EXPECT_TRUE(pack.live(*e));
  EXPECT_EQ(payload_of(pack, *e), s.payload);
  Scratch<std::byte> scratch;
  bool same = false;
  pack.read(*e, scratch,
            [&](std::span<const std::byte> payload) { same = std::ranges::equal(payload, s.payload); });
  EXPECT_TRUE(same) << s.id;
  EXPECT_EQ(pack.check(*e, scratch), "");
}

/// A record may be missing or refused, but what is served is what was written. Returns how many were.
inline int expect_nothing_wrong(const Pack& pack, std::span<const Sample> samples) {
  int served = 0;
  for (const Sample& s : samples) {
    const PackEntry* e = pack.find(s.id, s.source.name);
    if (e == nullptr) continue;
    for (int twice = 0; twice < 2; ++twice) {
      std::vector<std::byte> bytes(e->bytes, std::byte{0x55});
      try {
        pack.read(*e, bytes);
        EXPECT_EQ(bytes, s.payload) << s.id;
        EXPECT_EQ(e->source, s.source) << s.id;
        served += twice;
      } catch (const RecordError&) {  // also an answer
      }
    }
  }
  return served;
}

inline std::vector<std::byte> file_bytes(const std::filesystem::path& path) {
  const std::string text = read_text(path);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// In place: the file keeps its inode.
inline void overwrite(const std::filesystem::path& path, std::size_t at, std::span<const std::byte> bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.flush());
}

/// What `body` throws, as text; "nothing" when it does not.
template <typename Thrown = Error, typename Body>
std::string thrown_by(Body&& body) {
  try {
    body();
    return "nothing";
  } catch (const Thrown& e) {
    return e.what();
  }
}

}  // namespace penstock
