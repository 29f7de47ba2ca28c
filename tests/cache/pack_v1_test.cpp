// A pack of format 1 as it was written when the format was new. These files never change: every later version
// has to read them.
#include <gmock/gmock.h>

#include "tests/cache/pack_samples.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

const PackIdentity identity{.array = "mel", .parameters = "bins: 2\nlanguage: فارسی\n"};
const fs::path folder = fs::path(PENSTOCK_SOURCE_DIR) / "tests/data/cache-v1" / "mel-e83e15eed42f4654";

template <typename T>
Sample sample_of(std::string_view id, SourceKey source, ElementType type, std::int32_t columns,
                 const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {.id = std::string(id),
          .source = source,
          .type = type,
          .rows = static_cast<std::int32_t>(values.size()) / columns,
          .columns = columns,
          .payload = {bytes.begin(), bytes.end()}};
}

/// What the fixture holds, in its order.
std::vector<Sample> fixture() {
  std::vector<float> ramp(60);
  for (int i = 0; i < 60; ++i) ramp[static_cast<std::size_t>(i)] = 0.5f * static_cast<float>(i) - 7;
  using enum ElementType;
  return {sample_of<float>("replaced", {1, {2, 3}, 4}, float32, 1, {9, 9, 9}),
          sample_of<float>("LJ001-0001", {0x0123456789abcdef, {212'893, 1'700'000'000'123'456'789}, 44},
                           float32, 2, ramp),
          sample_of<std::uint16_t>("نیم", {5, {6, 7}, 0}, float16, 2, {0x3c00, 0xbc00, 0x0001, 0x7bff}),
          sample_of<std::int32_t>("tokens/1", {8, {9, -1}, 0}, int32, 1, {1, -2, 2'147'483'647}),
          sample_of<float>("empty", {}, float32, 2, {}),
          sample_of<float>("replaced", {1, {2, 4}, 4}, float32, 1, {-0.25f})};
}

/// Two shards: the second holds the last record.
void write_fixture(const fs::path& to) {
  const std::vector<Sample> samples = fixture();
  PackWriter writer(to, identity);
  for (const Sample& s : samples) {
    if (&s == &samples.back()) writer.finish();
    writer.append(s.record());
  }
  writer.finish();
}

TEST(PackV1, TheFixtureIsReadElementByElement) {
  for (const bool mapped : {true, false}) {
    const Pack pack(folder, identity, {.mapped = mapped});
    EXPECT_TRUE(pack.problems().empty());
    EXPECT_THAT(pack.shards(), testing::ElementsAre("00000.pack", "00001.pack"));
    ASSERT_EQ(pack.entries().size(), 6u);
    const std::vector<Sample> samples = fixture();
    for (const Sample& s : std::span(samples).subspan(1)) expect_holds(pack, s);
    EXPECT_FALSE(pack.live(pack.entries()[0]));
    EXPECT_EQ(payload_of(pack, pack.entries()[0]), samples[0].payload);
  }
}

TEST(PackV1, TheFixtureDescribesItself) {
  const auto packs = list_packs(folder.parent_path());
  ASSERT_EQ(packs.size(), 1u);
  EXPECT_EQ(packs[0].identity, identity);
  EXPECT_EQ(packs[0].records, 6);
  EXPECT_EQ(packs[0].problem, "");
}

TEST(PackV1, TodaysWriterWritesTheSameBytes) {
  const PackFolder today;
  write_fixture(today.pack());
  for (const int shard : {0, 1})
    EXPECT_EQ(file_bytes(today.shard(shard)), file_bytes(folder / fmt::format("{:05}.pack", shard)));
}

}  // namespace
}  // namespace penstock
