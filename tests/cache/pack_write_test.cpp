// Builds that are killed, meet, run out of disk or may not write; and rewriting.
#include <csignal>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "penstock/cache/pack_format.h"
#include "tests/cache/pack_samples.h"
#include "tests/long_run.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

/// Runs `body` in a process of its own, which then ends with what it returns.
template <typename Body>
pid_t start_process(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& e) {
      fmt::print(stderr, "in the child: {}\n", e.what());
    }
    ::_exit(code);
  }
  return child;
}

int exit_code(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// The record number `i` of a build: its bytes follow from the number.
Sample numbered(int i, std::int32_t most) {
  std::mt19937_64 random(static_cast<std::uint64_t>(i));
  return make_sample(fmt::format("کلیپ-{}", i), random, most);
}

/// Appends in two threads for ever, and reports every record that append() has returned for.
[[noreturn]] void build_for_ever(const PackFolder& folder, int from, int report, std::uint64_t shard_bytes) {
  PackWriter writer(folder.pack(), folder.identity, {.shard_bytes = shard_bytes});
  std::atomic<int> next = from;
  const auto work = [&] {
    for (;;) {
      const int i = next++;
      writer.append(numbered(i, 20'000).record());
      if (::write(report, &i, sizeof i) != sizeof i) ::_exit(1);
    }
  };
  const std::jthread other(work);
  work();
  ::_exit(1);
}

/// Kills such a build after it has reported some more records, and returns all reported ones.
std::vector<int> build_and_kill(const PackFolder& folder, int from, std::uint64_t shard_bytes, int records,
                                int us) {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = start_process([&]() -> int { build_for_ever(folder, from, pipe[1], shard_bytes); });
  ::close(pipe[1]);
  std::vector<int> reported;
  int i = 0;
  const auto next = [&] { return ::read(pipe[0], &i, sizeof i) == sizeof i; };
  while (static_cast<int>(reported.size()) < records && next()) reported.push_back(i);
  ::usleep(static_cast<useconds_t>(us));
  ::kill(child, SIGKILL);
  while (next()) reported.push_back(i);
  ::close(pipe[0]);
  EXPECT_EQ(exit_code(child), -SIGKILL);
  return reported;
}

TEST(PackKilled, AKilledBuildKeepsEveryCompleteRecordAndTheNextGoesOn) {
  std::mt19937_64 random(7);
  for (int round = 0; round < cases(20, 200); ++round) {
    const PackFolder folder;
    const std::uint64_t shard_bytes = random() % 2 == 0 ? 100'000 : 10'000'000;
    std::vector<int> reported;
    for (int builds = 0; builds < 2; ++builds) {
      const int records = static_cast<int>(random() % 60), us = static_cast<int>(random() % 1000);
      const auto more = build_and_kill(folder, 1000 * builds, shard_bytes, records, us);
      reported.insert(reported.end(), more.begin(), more.end());
    }
    PackWriter(folder.pack(), folder.identity).finish();
    for (const std::string& name : folder.files()) EXPECT_THAT(name, testing::EndsWith(".pack"));
    const Pack pack(folder.pack(), folder.identity);
    EXPECT_TRUE(pack.problems().empty());
    for (const int i : reported) expect_holds(pack, numbered(i, 20'000));
    // Two threads were at work in each build: so many records may be whole though nobody was told.
    EXPECT_LE(pack.entries().size(), reported.size() + 4);
    Scratch<std::byte> scratch;
    for (const PackEntry& e : pack.entries()) {
      EXPECT_EQ(pack.check(e, scratch), "");
      EXPECT_EQ(payload_of(pack, e),
                numbered(std::stoi(pack.id(e).substr(std::string("کلیپ-").size())), 20'000).payload);
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
  fmt::print(
      "EVIDENCE writers killed (kill -9) at random moments | every complete record kept, none else | {}\n",
      2 * cases(20, 200));
}

TEST(PackKilled, AnUnsealedShardCutOffAnywhereGivesItsWholeRecords) {
  const auto samples = make_samples(12, 1);
  const PackFolder model;
  {
    PackWriter writer(model.pack(), model.identity);
    for (const Sample& s : samples) writer.append(s.record());
  }
  const auto part = file_bytes(model.pack() / "00000.pack.part");
  PackWriter(model.pack(), model.identity).finish();
  const Pack pack(model.pack(), model.identity);
  std::mt19937_64 random(1);
  for (int round = 0; round < cases(60, 1000); ++round) {
    const PackFolder folder;
    fs::create_directories(folder.pack());
    const std::size_t size = random() % (part.size() + 1);
    // After a lost machine an end that was never written reads as zeros.
    const std::size_t zeros = random() % 2 == 0 ? 0 : random() % 5000;
    std::vector<std::byte> bytes(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(size));
    bytes.resize(size + zeros);
    write_file(folder.pack() / "00000.pack.part", bytes);
    PackWriter(folder.pack(), folder.identity).finish();
    const Pack recovered(folder.pack(), folder.identity);
    EXPECT_TRUE(recovered.problems().empty());
    const auto whole = std::ranges::count_if(pack.entries(), [&](const PackEntry& e) {
      const std::size_t from = e.offset - aligned_to_64(sizeof(RecordHeader) + e.id_bytes);
      const std::size_t bytes_of_it = aligned_to_64(e.offset + e.bytes) - from;
      return from + bytes_of_it <= bytes.size() &&
             std::memcmp(part.data() + from, bytes.data() + from, bytes_of_it) == 0;
    });
    EXPECT_EQ(static_cast<std::ptrdiff_t>(recovered.entries().size()), whole) << size << " + " << zeros;
    EXPECT_EQ(expect_nothing_wrong(recovered, samples), whole);
    EXPECT_EQ(folder.files().empty(), whole == 0);
  }
}

TEST(PackKilled, AnUnsealedShardWithADamagedHeaderIsRecovered) {
  const auto samples = make_samples(5, 1);
  const PackFolder folder;
  {
    PackWriter writer(folder.pack(), folder.identity);
    for (const Sample& s : samples) writer.append(s.record());
  }
  overwrite(folder.pack() / "00000.pack.part", 0, std::vector<std::byte>(50));
  PackWriter(folder.pack(), folder.identity).finish();
  const Pack pack(folder.pack(), folder.identity);
  EXPECT_TRUE(pack.problems().empty());
  for (const Sample& s : samples) expect_holds(pack, s);
}

TEST(PackKilled, ARecoveredShardNeverTakesAnothersName) {
  const auto first = make_samples(3, 1), second = make_samples(3, 2);
  const PackFolder folder;
  write_pack(folder, first);
  {
    PackWriter writer(folder.pack(), folder.identity);
    for (const Sample& s : second) writer.append(s.record());
  }
  fs::rename(folder.pack() / "00001.pack.part", folder.pack() / "00000.pack.part");
  PackWriter(folder.pack(), folder.identity).finish();
  EXPECT_THAT(folder.files(), ElementsAre("00000.pack", "00001.pack"));
  const Pack pack(folder.pack(), folder.identity);
  for (const auto* samples : {&first, &second})
    for (const Sample& s : *samples) expect_holds(pack, s);
}

TEST(PackLock, ASecondWriterIsRefusedWithTheFirstOnesNumber) {
  const PackFolder folder;
  PackWriter first(folder.pack(), folder.identity);
  first.append(make_samples(1, 1)[0].record());
  const auto second = [&] { PackWriter(folder.pack(), folder.identity); };
  EXPECT_EQ(thrown_by(second), fmt::format("process {} is building this pack ({}): wait for it or stop it",
                                           ::getpid(), folder.identity.folder_name()));
  const pid_t child = start_process(
      [&] { return thrown_by(second).find(fmt::format("process {} is", ::getppid())) == 0 ? 7 : 8; });
  EXPECT_EQ(exit_code(child), 7);
  first.finish();
  EXPECT_EQ(Pack(folder.pack(), folder.identity).entries().size(), 1u) << "the second one disturbed nothing";
  PackFolder other;
  other.identity.array = "tokens";
  EXPECT_EQ(thrown_by([&] { PackWriter(folder.cache() / other.identity.folder_name(), other.identity); }),
            "nothing");
}

TEST(PackLock, AWaitingWriterGoesOnWhereTheFirstEnds) {
  const PackFolder folder;
  const auto samples = make_samples(2, 1);
  auto first = std::make_unique<PackWriter>(folder.pack(), folder.identity);
  std::atomic<bool> has_it = false;
  std::jthread second([&] {
    PackWriter writer(folder.pack(), folder.identity, {.wait = true});
    has_it = true;
    writer.append(samples[1].record());
    writer.finish();
  });
  first->append(samples[0].record());
  EXPECT_FALSE(has_it);
  first.reset();
  second.join();
  const Pack pack(folder.pack(), folder.identity);
  for (const Sample& s : samples) expect_holds(pack, s);
}

TEST(PackLock, AWriterThatWaitedForARemovedPackMakesANewOne) {
  const PackFolder folder;
  auto first = std::make_unique<PackWriter>(folder.pack(), folder.identity);
  std::jthread second([&] {
    PackWriter writer(folder.pack(), folder.identity, {.wait = true});
    writer.append(make_samples(1, 1)[0].record());
    writer.finish();
  });
  fs::remove(folder.pack() / "lock");
  std::error_code not_empty;
  fs::remove(folder.pack(), not_empty);
  first.reset();
  second.join();
  EXPECT_EQ(Pack(folder.pack(), folder.identity).entries().size(), 1u);
}

TEST(PackLock, APackIsRemovedWhenNobodyBuildsIt) {
  const PackFolder folder;
  const auto samples = make_samples(5, 1);
  write_pack(folder, samples);
  const Pack pack(folder.pack(), folder.identity);
  {
    const PackWriter writer(folder.pack(), folder.identity);
    EXPECT_THAT(thrown_by([&] { remove_pack(folder.pack()); }), HasSubstr("is building this pack"));
  }
  remove_pack(folder.pack());
  EXPECT_FALSE(fs::exists(folder.pack()));
  remove_pack(folder.pack());
  for (const Sample& s : samples) expect_holds(pack, s);
}

TEST(PackLock, BuildsAndRemovalsAtTheSameTimeEndInAWholePack) {
  const PackFolder folder;
  const auto samples = make_samples(2, 1);
  std::jthread remover([&](const std::stop_token& stop) {
    for (; !stop.stop_requested(); ::usleep(1000)) (void)thrown_by([&] { remove_pack(folder.pack()); });
  });
  for (int round = 0; round < cases(50, 1000); ++round) {
    PackWriter writer(folder.pack(), folder.identity, {.wait = true});
    for (const Sample& s : samples) writer.append(s.record());
    writer.finish();
    const Pack pack(folder.pack(), folder.identity);
    for (const Sample& s : samples) expect_holds(pack, s);
  }
}

/// Writes until it fails; the message. `written` counts what append() returned for.
std::string write_until_it_fails(PackWriter& writer, int& written) {
  return thrown_by([&] {
    for (; written < 100'000; ++written) writer.append(numbered(written, 20'000).record());
  });
}

/// What must be true after a write has failed, with `sealed` records in shards that were sealed before.
void expect_failed_cleanly(const PackFolder& folder, PackWriter& writer, int written,
                           const std::string& failure) {
  EXPECT_EQ(thrown_by([&] { writer.append(numbered(0, 100).record()); }), failure) << "in every later call";
  EXPECT_EQ(thrown_by([&] { writer.finish(); }), failure);
  for (const std::string& name : folder.files()) EXPECT_THAT(name, testing::EndsWith(".pack"));
  const Pack pack(folder.pack(), folder.identity);
  EXPECT_TRUE(pack.problems().empty());
  EXPECT_LE(pack.entries().size(), static_cast<std::size_t>(written));
  Scratch<std::byte> scratch;
  for (std::size_t i = 0; i < pack.entries().size(); ++i) {
    EXPECT_EQ(pack.check(pack.entries()[i], scratch), "");
    expect_holds(pack, numbered(static_cast<int>(i), 20'000));
  }
}

TEST(PackDisk, AFileThatMayNotGrowIsAClearErrorAndSealedShardsStay) {
  // A limit on the size of files stands for a full disk: it needs no rights.
  const PackFolder folder;
  write_pack(folder, std::vector{numbered(0, 20'000), numbered(1, 20'000)});
  const pid_t child = start_process([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{200'000, 200'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    PackWriter writer(folder.pack(), folder.identity);
    int written = 2;
    const std::string failure = write_until_it_fails(writer, written);
    EXPECT_THAT(failure, HasSubstr("00001.pack.part: cannot be written: File too large"));
    EXPECT_GT(written, 10);
    expect_failed_cleanly(folder, writer, written, failure);
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(exit_code(child), 0);
  const Pack pack(folder.pack(), folder.identity);
  EXPECT_EQ(pack.entries().size(), 2u) << "the cache as it was";
  write_pack(folder, std::vector{numbered(2, 20'000)});
  expect_holds(Pack(folder.pack(), folder.identity), numbered(2, 20'000));
}

TEST(PackDisk, AnIndexThatFindsNoRoomIsAClearErrorToo) {
  // The records fit, and sealing fails: with finish(), and beside the next shard's writing.
  for (const int records : {500, 1200}) {
    const PackFolder folder;
    const pid_t child = start_process([&] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{100'000, 100'000};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      PackWriter writer(folder.pack(), folder.identity, {.shard_bytes = 120'000});
      const Sample empty{.id = "no bytes at all"};  // a record of 128 bytes, and 80 in the index
      const std::string failure = thrown_by([&] {
        for (int i = 0; i < records; ++i) writer.append(empty.record());
        EXPECT_EQ(records, 500);
        writer.finish();
      });
      EXPECT_THAT(failure, HasSubstr("00000.pack.part: cannot be written: File too large"));
      expect_failed_cleanly(folder, writer, 0, failure);
      return testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(exit_code(child), 0);
    EXPECT_TRUE(folder.files().empty());
  }
}

TEST(PackDisk, AFullDiskIsAClearErrorAndSealedShardsStay) {
  const PackFolder folder;
  if (::mount("tmpfs", folder.cache().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP()
        << "mounting a small disk needs root; a limit on file sizes stands for it in the other tests";
  struct Unmount {
    const fs::path& path;
    ~Unmount() { ::umount2(path.c_str(), MNT_DETACH); }
  } const unmount{folder.cache()};
  PackWriter writer(folder.pack(), folder.identity, {.shard_bytes = 300'000});
  int written = 0;
  const std::string failure = write_until_it_fails(writer, written);
  EXPECT_THAT(failure, HasSubstr("cannot be written: No space left on device"));
  expect_failed_cleanly(folder, writer, written, failure);
  EXPECT_GT(Pack(folder.pack(), folder.identity).entries().size(), 20u);
}

TEST(PackDisk, AFolderThatMayNotBeWrittenIsAClearErrorAndStillRead) {
  const PackFolder folder;
  const auto samples = make_samples(3, 1);
  write_pack(folder, samples);
  fs::permissions(folder.cache(), fs::perms(0555));
  fs::permissions(folder.pack(), fs::perms(0555));
  fs::permissions(folder.pack() / "lock", fs::perms(0444));
  const pid_t child = start_process([&] {
    if (::getuid() == 0 && ::setuid(65534) != 0) return 2;
    EXPECT_THAT(thrown_by([&] { PackWriter(folder.pack(), folder.identity); }),
                HasSubstr("cannot be written: Permission denied"));
    EXPECT_THAT(thrown_by([&] { PackWriter(folder.cache() / "new", folder.identity); }),
                HasSubstr("cannot be written: Permission denied"));
    for (const Sample& s : samples) expect_holds(Pack(folder.pack(), folder.identity), s);
    mark_used(folder.pack());
    EXPECT_EQ(list_packs(folder.cache())[0].records, 3);
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(exit_code(child), 0);
  for (const fs::path& path : {folder.cache(), folder.pack()}) fs::permissions(path, fs::perms(0755));
}

TEST(PackDisk, AFileInTheFoldersPlaceIsAClearError) {
  const PackFolder folder;
  write_file(folder.pack(), std::string_view("x"));
  EXPECT_THAT(thrown_by([&] { PackWriter(folder.pack(), folder.identity); }), HasSubstr("cannot be written"));
  EXPECT_THAT(thrown_by([&] { Pack(folder.pack(), folder.identity); }), HasSubstr("cannot be opened"));
  EXPECT_TRUE(list_packs(folder.cache()).empty());
}

TEST(PackRewrite, DropsWhatIsRefusedOrReplacedAndLeavesOtherShardsAlone) {
  const PackFolder folder;
  const auto samples = make_samples(30, 1), changed = make_samples(1, 1, 100);
  write_pack(folder, samples, {.shard_bytes = 20'000});
  Sample newer = samples[0];
  newer.source.offset = 1;
  write_pack(folder, std::vector{newer});
  const auto before = folder.files();
  ASSERT_GT(before.size(), 3u);
  PackWriter writer(folder.pack(), folder.identity, {.shard_bytes = 20'000});
  const std::uint64_t refused = xxh3(samples[1].id);
  const auto keep = [&](const PackEntry& e) { return e.key != refused; };
  EXPECT_EQ(writer.rewrite(Pack(folder.pack(), folder.identity), keep), 2);

  const Pack pack(folder.pack(), folder.identity);
  EXPECT_EQ(pack.entries().size(), 29u);
  EXPECT_EQ(pack.find(samples[1].id, samples[1].source.name), nullptr);
  expect_holds(pack, newer);
  for (std::size_t i = 2; i < samples.size(); ++i) expect_holds(pack, samples[i]);
  const auto after = folder.files();
  EXPECT_THAT(after, testing::Not(testing::Contains(before[0])));
  for (std::size_t i = 1; i < before.size(); ++i) EXPECT_THAT(after, testing::Contains(before[i]));

  EXPECT_EQ(writer.rewrite(Pack(folder.pack(), folder.identity), keep), 0) << "nothing is left to do";
  EXPECT_EQ(folder.files(), after);
  EXPECT_EQ(writer.rewrite(Pack(folder.pack(), folder.identity), [](const PackEntry&) { return false; }), 29);
  EXPECT_TRUE(folder.files().empty());
}

TEST(PackRewrite, NeverPutsAnOldRecordInFrontOfANewOne) {
  const PackFolder folder;
  const auto samples = make_samples(3, 1);
  write_pack(folder, samples);
  PackWriter writer(folder.pack(), folder.identity);
  const Pack before(folder.pack(), folder.identity);
  writer.append(samples[0].record());
  const auto rewrite = [&](const Pack& pack) {
    return thrown_by([&] { writer.rewrite(pack, [](const PackEntry&) { return true; }); });
  };
  EXPECT_THAT(rewrite(before), HasSubstr("must be opened after the last finish()"));
  writer.finish();
  EXPECT_THAT(rewrite(before), HasSubstr("must be opened after the last finish()"));
  EXPECT_EQ(rewrite(Pack(folder.pack(), folder.identity)), "nothing");
  EXPECT_EQ(Pack(folder.pack(), folder.identity).entries().size(), 3u);
  EXPECT_THAT(rewrite(Pack(folder.cache(), folder.identity)), HasSubstr("must be the pack in"));
}

TEST(PackRewrite, SurvivesBeingKilled) {
  std::mt19937_64 random(3);
  const auto samples = make_samples(200, 1);
  for (int round = 0; round < cases(20, 200); ++round) {
    const PackFolder folder;
    write_pack(folder, samples, {.shard_bytes = 60'000});
    write_pack(folder, std::span(samples).first(100),
               {.shard_bytes = 60'000});  // so there is something to drop
    const pid_t child = start_process([&] {
      PackWriter writer(folder.pack(), folder.identity, {.shard_bytes = 40'000});
      writer.rewrite(Pack(folder.pack(), folder.identity), [](const PackEntry&) { return true; });
      return 0;
    });
    ::usleep(static_cast<useconds_t>(random() % 8000));
    ::kill(child, SIGKILL);
    (void)exit_code(child);
    PackWriter writer(folder.pack(), folder.identity);
    const Pack killed(folder.pack(), folder.identity);
    EXPECT_TRUE(killed.problems().empty());
    for (const Sample& s : samples) expect_holds(killed, s);
    writer.rewrite(killed, [](const PackEntry&) { return true; });
    const Pack again(folder.pack(), folder.identity);
    EXPECT_EQ(again.entries().size(), samples.size());
    for (const Sample& s : samples) expect_holds(again, s);
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace penstock
