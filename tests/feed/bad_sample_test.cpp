// Every way in which a sample can be bad: found by the index, or only when it is read.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "penstock/core/error.h"
#include "penstock/feed/feed.h"
#include "tests/feed/made_dataset.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int bad = 7;

struct Damage {
  const char* name;
  std::function<void(const MadeDataset&)> apply;
};

std::string nan_wav() {
  std::string bytes = wav_bytes(std::vector<std::int16_t>(8000));
  bytes[20] = 3;  // IEEE float
  bytes[34] = 32;
  bytes[32] = 4;
  for (std::size_t i = 44; i + 4 <= bytes.size(); i += 4) bytes.replace(i, 4, "\x00\x00\xc0\x7f", 4);
  return bytes;
}

std::vector<Damage> damages() {
  const auto replace = [](const std::string& bytes) {
    return [bytes](const MadeDataset& made) { made.write(bad, bytes); };
  };
  const std::string good = wav_bytes(std::vector<std::int16_t>(5000, 100));
  return {
      {"empty", replace("")},
      {"no RIFF", replace("JUNK" + good.substr(4))},
      {"header only", replace(good.substr(0, 44))},
      {"cut in the header", replace(good.substr(0, 30))},
      {"cut in the data", replace(good.substr(0, 600))},
      {"text", replace("this is not audio at all, whatever its name says")},
      {"not a number", replace(nan_wav())},
      {"missing", [](const MadeDataset& made) { std::filesystem::remove(made.wav(bad)); }},
      {"a folder",
       [](const MadeDataset& made) {
         std::filesystem::remove(made.wav(bad));
         std::filesystem::create_directory(made.wav(bad));
       }},
      {"a dangling link",
       [](const MadeDataset& made) {
         std::filesystem::remove(made.wav(bad));
         std::filesystem::create_symlink("nowhere.wav", made.wav(bad));
       }},
  };
}

/// All batches of some epochs; the feed must go on through them.
std::vector<std::uint64_t> epochs(Feed& feed, int n) {
  std::vector<std::uint64_t> prints;
  for (std::int64_t i = 0; i < n * feed.plan().steps_per_epoch(); ++i) {
    const Batch b = feed.next();
    for (const std::int64_t u : b.utterances) EXPECT_NE(u, bad);
    prints.push_back(fingerprint(b));
  }
  return prints;
}

TEST(BadSample, KnownToTheIndexItStopsTheFeedOrIsLeftOut) {
  for (const Damage& damage : damages()) {
    if (damage.name == std::string("not a number")) continue;  // seen only by decoding
    SCOPED_TRACE(damage.name);
    const MadeDataset made(30);
    damage.apply(made);
    Config config = made.config();
    try {
      const Feed feed(config);
      ADD_FAILURE() << "opened";
    } catch (const SampleError& e) {
      EXPECT_EQ(e.utterance, MadeDataset::id(bad));
      EXPECT_THAT(e.what(), HasSubstr(MadeDataset::id(bad)));
    }
    config.on_bad_sample = OnBadSample::skip;
    Feed feed(config);
    epochs(feed, 2);
    ASSERT_THAT(feed.skipped(), SizeIs(1));
    EXPECT_EQ(feed.skipped()[0].id, MadeDataset::id(bad));
    EXPECT_EQ(feed.skipped()[0].times, 1);
  }
}

TEST(BadSample, DamagedAfterIndexingItStopsTheFeedWithItsName) {
  for (const Damage& damage : damages()) {
    SCOPED_TRACE(damage.name);
    const MadeDataset made(30);
    { const Feed index_it(made.config()); }
    damage.apply(made);
    Feed feed(made.config());
    std::string first;
    std::int64_t delivered = 0;
    for (int i = 0; i < 100 && first.empty(); ++i) try {
        feed.next();
        ++delivered;
      } catch (const SampleError& e) {
        first = e.what();
        EXPECT_EQ(e.utterance, MadeDataset::id(bad));
        EXPECT_THAT(first, HasSubstr("wavs/" + MadeDataset::id(bad) + ".wav"));
        EXPECT_EQ(feed.state().epoch * feed.plan().steps_per_epoch() + feed.state().step, delivered);
      }
    ASSERT_FALSE(first.empty());
    try {
      feed.next();
      ADD_FAILURE() << "went on";
    } catch (const SampleError& e) {
      EXPECT_EQ(e.what(), first);
    }
  }
}

TEST(BadSample, DamagedAfterIndexingItsPlaceIsFilledByRule) {
  for (const Damage& damage : damages()) {
    SCOPED_TRACE(damage.name);
    const MadeDataset made(30);
    { const Feed index_it(made.config()); }
    damage.apply(made);
    std::vector<std::uint64_t> expected;
    for (const int workers : {1, 6}) {
      Config config = made.config();
      config.on_bad_sample = OnBadSample::skip;
      config.num_workers = workers;
      Feed feed(config);
      const auto prints = epochs(feed, 3);
      if (expected.empty()) expected = prints;
      EXPECT_EQ(prints, expected);
      ASSERT_THAT(feed.skipped(), SizeIs(1));
      EXPECT_EQ(feed.skipped()[0].id, MadeDataset::id(bad));
      EXPECT_GE(feed.skipped()[0].times, 1);
    }
  }
}

TEST(BadSample, TheReplacementIsTheOneThatThePlanNames) {
  const MadeDataset made(30);
  { const Feed index_it(made.config()); }
  std::filesystem::remove(made.wav(bad));
  Config config = made.config();
  config.on_bad_sample = OnBadSample::skip;
  Feed feed(config);
  int replaced = 0;
  for (int i = 0; i < 50; ++i) {
    const Batch b = feed.next();
    const BatchPlan plan = feed.plan().batch(b.epoch, b.step);
    for (std::int32_t r = 0; r < b.shape.rows; ++r) {
      const std::int64_t planned = feed.plan().utterance(plan, r);
      ASSERT_EQ(b.replaced[static_cast<std::size_t>(r)], planned == bad);
      if (planned != bad) continue;
      ++replaced;
      std::int64_t expected = bad;
      for (int j = 1; expected == bad; ++j) expected = feed.plan().replacement(plan, r, j);
      EXPECT_EQ(b.utterances[static_cast<std::size_t>(r)], expected);
    }
  }
  EXPECT_GT(replaced, 0);
}

TEST(BadSample, WhereNothingDecodesRowsHaveLengthZero) {
  const MadeDataset made(12);
  { const Feed index_it(made.config()); }
  for (int i = 0; i < 12; ++i) std::filesystem::remove(made.wav(i));
  Config config = made.config();
  config.on_bad_sample = OnBadSample::skip;
  config.mel_pad_value = 3;
  Feed feed(config);
  const Batch b = feed.next();
  for (const std::int32_t n : b.mel_lengths) EXPECT_EQ(n, 0);
  for (const std::int32_t n : b.token_lengths) EXPECT_EQ(n, 0);
  for (const std::uint8_t r : b.replaced) EXPECT_EQ(r, 1);
  for (const float x : b.mel) ASSERT_EQ(x, 3);
  for (const std::int32_t t : b.tokens) ASSERT_EQ(t, 0);
}

TEST(BadSample, AFileWithoutPermissionIsNamed) {
  const MadeDataset made(30);
  { const Feed index_it(made.config()); }
  std::filesystem::permissions(made.wav(bad), std::filesystem::perms::none);
  const auto user = geteuid();
  if (user == 0 && seteuid(65534) != 0) FAIL();  // root may read everything
  Config config = made.config();
  config.on_bad_sample = OnBadSample::skip;
  {
    Feed feed(config);
    epochs(feed, 2);
    EXPECT_THAT(feed.skipped(), SizeIs(1));
    EXPECT_EQ(feed.skipped()[0].reason, "read: wavs/" + MadeDataset::id(bad) + ".wav: Permission denied");
  }
  ASSERT_EQ(seteuid(user), 0);
}

TEST(BadSample, AChangedFileIsTakenAgainAfterARescan) {
  MadeDataset made(30);
  { const Feed index_it(made.config()); }
  made.write(bad, made.noise(9000));
  Config config = made.config();
  config.on_bad_sample = OnBadSample::skip;
  Feed stale(config);
  epochs(stale, 2);
  ASSERT_THAT(stale.skipped(), SizeIs(1));
  EXPECT_THAT(stale.skipped()[0].reason, HasSubstr("penstock info --rescan"));
  Feed fresh(made.config(), {.open = {.rescan = true}});
  EXPECT_EQ(fresh.dataset().index.utterance(bad).audio.samples, 9000);
  for (int i = 0; i < 30; ++i) fresh.next();
  EXPECT_THAT(fresh.skipped(), SizeIs(0));
}

TEST(BadSample, TextThatIsNotUtf8IsNamedWithItsLine) {
  const MadeDataset made(10);
  std::ofstream(made.folder() / "metadata.csv", std::ios::app) << MadeDataset::id(3) + "x|caf\xe9 au lait\n";
  std::filesystem::copy(made.wav(3), made.folder() / "wavs" / (MadeDataset::id(3) + "x.wav"));
  try {
    const Feed feed(made.config());
    FAIL();
  } catch (const SampleError& e) {
    EXPECT_THAT(e.what(), HasSubstr("metadata.csv:11"));
    EXPECT_THAT(e.what(), HasSubstr("UTF-8"));
  }
}

TEST(BadSample, ACharacterOutsideAGivenTableIsASampleError) {
  const MadeDataset made(20);
  const auto table = made.folder() / "symbols.txt";
  SymbolTable(std::u32string_view(U"abcdefghijklmnopqrstuvwxyz ,.")).save(table);
  Config config = made.config();
  config.symbols = table.string();
  Feed feed(config);
  try {
    for (int i = 0; i < 100; ++i) feed.next();
    FAIL();
  } catch (const SampleError& e) {
    EXPECT_EQ(e.stage, "tokens");
    EXPECT_THAT(e.what(),
                ::testing::AllOf(HasSubstr("metadata.csv:"), HasSubstr("is not in the symbol table")));
  }
}

}  // namespace
}  // namespace penstock
