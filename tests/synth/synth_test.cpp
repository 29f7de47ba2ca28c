#include "penstock/synth/synth.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

class Synth : public testing::Test {
 protected:
  /// The names below the test's folder, so that a test can say that nothing was left.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(root_))
      all.push_back(fs::relative(entry.path(), root_).string());
    return all;
  }

  /// A folder with an executable `espeak-ng` of this shell code.
  [[nodiscard]] std::string fake_espeak(const std::string& code) const {
    const fs::path path = root_ / "bin" / "espeak-ng";
    fs::create_directory(path.parent_path());
    std::ofstream(path) << "#!/bin/sh\n" << code << "\n";
    fs::permissions(path, fs::perms(0755));
    return path.parent_path().string();
  }

 private:
  TempFolder folder_;

 protected:
  const fs::path root_ = folder_.path();
};

/// PATH for the length of a scope.
class PathScope {
 public:
  explicit PathScope(const std::string& path) { ::setenv("PATH", path.c_str(), 1); }
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;
  ~PathScope() { ::setenv("PATH", before_.c_str(), 1); }

 private:
  std::string before_ = std::getenv("PATH") != nullptr ? std::getenv("PATH") : "";
};

std::string espeak_path() {
  std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (fs::exists(fs::path(folder) / "espeak-ng")) return (fs::path(folder) / "espeak-ng").string();
  return {};
}

#define NEEDS_ESPEAK \
  if (espeak_path().empty()) GTEST_SKIP() << "espeak-ng is not installed"

/// File name -> bytes.
std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all[fs::relative(entry.path(), folder).string()] = read_text(entry.path());
  return all;
}

std::vector<std::vector<std::string>> rows(const fs::path& folder) {
  std::vector<std::vector<std::string>> all;
  std::istringstream lines(read_text(folder / "metadata.csv"));
  for (std::string line; std::getline(lines, line);) {
    auto& row = all.emplace_back();
    std::istringstream columns(line);
    for (std::string column; std::getline(columns, column, '|');) row.push_back(column);
  }
  return all;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no Error";
}

TEST_F(Synth, WritesTheLayoutOfLjSpeech) {
  const auto result = synthesize(root_ / "a" / "b", {.clips = 12, .voice = "tone", .speakers = 3});
  const auto table = rows(root_ / "a" / "b");
  ASSERT_EQ(table.size(), 12u);
  std::map<std::string, int> speakers;
  for (std::size_t i = 0; i < table.size(); ++i) {
    ASSERT_EQ(table[i].size(), 3u);
    EXPECT_EQ(table[i][0].substr(3), fmt::format("-{:06}", i + 1));
    EXPECT_FALSE(table[i][1].empty());
    EXPECT_FALSE(table[i][2].empty());
    EXPECT_TRUE(fs::is_regular_file(root_ / "a" / "b" / "wavs" / (table[i][0] + ".wav")));
    ++speakers[table[i][0].substr(0, 3)];
  }
  EXPECT_EQ(speakers, (std::map<std::string, int>{{"s01", 4}, {"s02", 4}, {"s03", 4}}));
  EXPECT_EQ(names().size(), 1u + 1 + 2 + 12);  // a, a/b, metadata.csv and wavs, the clips
  EXPECT_EQ(result.clips, 12);
  EXPECT_NEAR(result.hours * 3600, result.mean_seconds * 12, 1e-6);
}

TEST_F(Synth, AFolderIsReadableByOthers) {
  synthesize(root_ / "d", {.clips = 1, .voice = "tone"});
  EXPECT_EQ(fs::status(root_ / "d" / "wavs").permissions(), fs::perms(0755));
}

TEST_F(Synth, TheBytesAreTheSameForAnyNumberOfThreads) {
  for (const char* format : {"wav", "flac", "ogg", "mp3"}) {
    const SynthOptions one{
        .clips = 6, .seed = 5, .voice = "tone", .speakers = 2, .format = format, .sample_rate = 16000};
    SynthOptions four = one;
    four.threads = 4;
    synthesize(root_ / format / "one", one);
    synthesize(root_ / format / "four", four);
    EXPECT_EQ(contents(root_ / format / "one"), contents(root_ / format / "four")) << format;
  }
}

TEST_F(Synth, AnotherSeedGivesOtherClips) {
  synthesize(root_ / "a", {.clips = 3, .seed = 1, .voice = "tone"});
  synthesize(root_ / "b", {.clips = 3, .seed = 2, .voice = "tone"});
  EXPECT_NE(contents(root_ / "a"), contents(root_ / "b"));
}

TEST_F(Synth, ALargerDatasetBeginsWithTheSmallerOne) {
  synthesize(root_ / "a", {.clips = 3, .voice = "tone", .speakers = 2});
  synthesize(root_ / "b", {.clips = 8, .voice = "tone", .speakers = 2});
  const auto small = contents(root_ / "a"), large = contents(root_ / "b");
  for (const auto& [name, bytes] : small) EXPECT_TRUE(large.at(name).starts_with(bytes)) << name;
}

TEST_F(Synth, ProgressCountsEveryClipOnce) {
  std::vector<std::size_t> seen;
  SynthOptions options{.clips = 20, .voice = "tone", .threads = 4};
  options.progress = [&](std::size_t done, std::size_t total) {
    EXPECT_EQ(total, 20u);
    seen.push_back(done);
  };
  synthesize(root_ / "d", options);
  ASSERT_EQ(seen.size(), 20u);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i + 1);
}

TEST_F(Synth, AnExceptionFromProgressStopsTheWorkAndLeavesNothing) {
  struct Interrupted {};
  std::size_t calls = 0;
  SynthOptions options{.clips = 100'000, .voice = "tone", .threads = 4};
  options.progress = [&](std::size_t done, std::size_t) {
    ++calls;
    if (done >= 5) throw Interrupted{};
  };
  EXPECT_THROW(synthesize(root_ / "new" / "d", options), Interrupted);
  EXPECT_EQ(names(), std::vector<std::string>{});
  EXPECT_LT(calls, 20u);
}

TEST_F(Synth, WhatWasInTheFolderBeforeStaysAfterAFailure) {
  write_file(root_ / "notes.txt", "mine");
  SynthOptions options{.clips = 5, .voice = "tone"};
  options.progress = [](std::size_t, std::size_t) { throw Error("stop"); };
  EXPECT_THROW(synthesize(root_, options), Error);
  EXPECT_EQ(names(), std::vector<std::string>{"notes.txt"});
}

TEST_F(Synth, AFolderThatHoldsADatasetIsRefusedAndUntouched) {
  synthesize(root_ / "d", {.clips = 2, .voice = "tone"});
  const auto before = contents(root_ / "d");
  EXPECT_NE(message_of([&] { synthesize(root_ / "d", {.clips = 2, .voice = "tone"}); }).find("metadata.csv"),
            std::string::npos);
  fs::remove(root_ / "d" / "metadata.csv");
  EXPECT_NE(message_of([&] { synthesize(root_ / "d/", {.clips = 2, .voice = "tone"}); }).find("wavs/"),
            std::string::npos);
  EXPECT_EQ(contents(root_ / "d").size(), before.size() - 1);
}

TEST_F(Synth, AnEmptyWavsFolderIsTaken) {
  fs::create_directories(root_ / "d" / "wavs");
  EXPECT_EQ(synthesize(root_ / "d", {.clips = 2, .voice = "tone"}).clips, 2);
}

TEST_F(Synth, AFileInThePlaceOfTheFolderIsAnError) {
  write_file(root_ / "d", "a file");
  EXPECT_THROW(synthesize(root_ / "d", {.clips = 1, .voice = "tone"}), Error);
  EXPECT_THROW(synthesize(root_ / "d" / "below", {.clips = 1, .voice = "tone"}), Error);
  EXPECT_THROW(synthesize("", {.clips = 1, .voice = "tone"}), Error);
  EXPECT_EQ(names(), std::vector<std::string>{"d"});
}

TEST_F(Synth, AFileThatCannotBeWrittenInFullIsAnErrorAndLeavesNothing) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 20'000, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto message = message_of([&] { synthesize(root_ / "d", {.clips = 3, .voice = "tone"}); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("cannot be written"), std::string::npos) << message;
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(Synth, OptionsOutOfRangeAreErrorsThatNameTheOption) {
  const auto refused = [&](const SynthOptions& options, const char* what) {
    const auto message = message_of([&] { synthesize(root_ / "d", options); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  refused({.clips = 0, .voice = "tone"}, "clips must be");
  refused({.clips = 1, .voice = "tone", .speakers = 0}, "speakers must be");
  refused({.clips = 1, .voice = "tone", .speakers = 100}, "speakers must be");
  refused({.clips = 1, .voice = "tone", .format = "aac"}, "format must be");
  refused({.clips = 1, .voice = "tone", .sample_rate = 7999}, "sample_rate must be");
  refused({.clips = 1, .voice = "tone", .sample_rate = 48001}, "sample_rate must be");
  refused({.clips = 1, .voice = "tone", .format = "mp3", .sample_rate = 22000}, "sample_rate must be one of");
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(Synth, WithoutEspeakTheErrorNamesThePackage) {
  const PathScope nowhere(root_.string());
  EXPECT_EQ(message_of([&] { synthesize(root_ / "d", {.clips = 1}); }),
            "espeak-ng was not found: install it (Debian: apt-get install espeak-ng), or use --voice tone");
  EXPECT_EQ(synthesize(root_ / "d", {.clips = 1, .voice = "tone"}).clips, 1);
}

TEST_F(Synth, AVoiceThatEspeakHasNotIsNamed) {
  NEEDS_ESPEAK;
  for (const char* voice : {"klingonese", ""}) {
    const auto message = message_of([&] { synthesize(root_ / "d", {.clips = 1, .voice = voice}); });
    EXPECT_NE(message.find(fmt::format("'{}'", voice)), std::string::npos) << message;
    EXPECT_NE(message.find("espeak-ng --voices"), std::string::npos) << message;
  }
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(Synth, AnEspeakThatFailsLaterIsAnErrorAndLeavesNothing) {
  NEEDS_ESPEAK;
  for (const auto& [failure, expected] : std::map<std::string, std::string>{
           {"exit 3", "exit code 3"}, {"kill -9 $$", "signal 9"}, {"echo hello", "not mono PCM 16"}}) {
    // The last argument is the text; the check of the voice says only "a".
    const std::string code =
        fmt::format("for text; do :; done\n[ \"$text\" = a ] && exec {} \"$@\"\n{}", espeak_path(), failure);
    const PathScope fake(fake_espeak(code));
    const auto message = message_of([&] { synthesize(root_ / "d", {.clips = 4, .threads = 2}); });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(root_ / "d"));
  }
}

TEST_F(Synth, AClipTakesTwoRunsOfEspeakOnAverage) {
  NEEDS_ESPEAK;
  const fs::path log = root_ / "log";
  const PathScope counted(fake_espeak("echo run >> " + log.string() + "\nexec " + espeak_path() + " \"$@\""));
  synthesize(root_ / "d", {.clips = 60, .threads = 2});
  const std::string runs = read_text(log);
  EXPECT_LE(std::count(runs.begin(), runs.end(), '\n'), 1 + 2 * 60);
}

class Speech : public Synth, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Voices, Speech, testing::Values("en", "fa", "de"),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(Speech, IsSpreadLikeLjSpeechAndNeitherSilentNorClipped) {
  NEEDS_ESPEAK;
  const auto result =
      synthesize(root_ / "d", {.clips = 48, .voice = GetParam(), .speakers = 6, .threads = 2});
  EXPECT_GE(result.min_seconds, 1.1);
  EXPECT_LE(result.max_seconds, 10.1);
  EXPECT_NEAR(result.mean_seconds, 6.6, 1.0);
  for (const auto& [name, bytes] : contents(root_ / "d" / "wavs")) {
    double energy = 0;
    int peak = 0;
    const std::size_t samples = (bytes.size() - 44) / 2;
    for (std::size_t i = 0; i < samples; ++i) {
      const auto x =
          static_cast<std::int16_t>(static_cast<unsigned char>(bytes[44 + 2 * i]) | bytes[45 + 2 * i] << 8);
      energy += static_cast<double>(x) * x;
      peak = std::max(peak, std::abs(int{x}));
    }
    EXPECT_GT(std::sqrt(energy / static_cast<double>(samples)), 300) << name;
    EXPECT_LT(peak, 32000) << name;
  }
}

TEST_F(Synth, SpokenBytesAreTheSameForAnyNumberOfThreads) {
  NEEDS_ESPEAK;
  const SynthOptions one{
      .clips = 8, .seed = 3, .voice = "fa", .speakers = 3, .format = "flac", .sample_rate = 24000};
  SynthOptions four = one;
  four.threads = 4;
  synthesize(root_ / "one", one);
  synthesize(root_ / "four", four);
  EXPECT_EQ(contents(root_ / "one"), contents(root_ / "four"));
}

}  // namespace
}  // namespace penstock
