#include "penstock/source/index.h"

#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/source/dataset.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

class IndexTest : public testing::Test {
 protected:
  Index open(bool rescan = false) { return open_with(dataset_.paths(), rescan); }
  Index open_with(const DatasetPaths& paths, bool rescan = false) {
    fake_.probes = 0;
    return Index::open(paths, index_folder(), fake_.inputs, rescan);
  }
  [[nodiscard]] fs::path index_folder() const { return dataset_.folder() / ".penstock"; }

  [[nodiscard]] fs::path only_index_file() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(index_folder())) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    return files.at(0);
  }

  /// Three good rows of two speakers.
  void write_small() {
    dataset_.write("metadata.csv", "s01-1|ab\ns02-1|bcd\ns01-2|d\n");
    dataset_.write("wavs/s01-1.wav", "1000 22050 1");
    dataset_.write("wavs/s02-1.wav", "2000 16000 2");
    dataset_.write("wavs/s01-2.flac", "3000 48000 1");
  }

  Dataset dataset_;
  FakeInputs fake_;
};

std::string characters_of(const Index& index) {
  std::string result;
  for (const CharacterCount& c : index.characters())
    result += fmt::format("{}{} ", static_cast<char>(c.character), c.count);
  return result;
}

/// Every field of every utterance as text.
std::string dump(const Index& index) {
  std::string result = characters_of(index) + "\n";
  for (const std::string_view name : index.speakers()) result += fmt::format("speaker {}\n", name);
  for (std::int64_t i = 0; i < index.size(); ++i) {
    const Utterance u = index.utterance(i);
    result += fmt::format("{}|{}|{}|{}|{}|{}|{}|{} {} {}|{} {}|{}|{}\n", u.id, u.text, u.path, u.speaker,
                          u.line, u.characters, u.validation, u.audio.samples, u.audio.sample_rate,
                          u.audio.channels, u.stamp.size, u.stamp.mtime_ns, u.problem, index.where(i));
  }
  return result;
}

TEST_F(IndexTest, HasEveryFieldAfterBuildingAndAfterReopening) {
  write_small();
  DatasetPaths paths = dataset_.paths();
  paths.val_fraction = 0.5;
  for (const bool first : {true, false}) {
    const Index index = open_with(paths);
    EXPECT_EQ(index.rebuilt(), first);
    EXPECT_EQ(index.note(), "");
    EXPECT_EQ(index.root(), dataset_.folder());
    ASSERT_EQ(index.size(), 3);
    const Utterance u = index.utterance(1);
    EXPECT_EQ(u.id, "s02-1");
    EXPECT_EQ(u.text, "bcd");
    EXPECT_EQ(u.path, "wavs/s02-1.wav");
    EXPECT_EQ(u.path.data()[u.path.size()], '\0');
    EXPECT_EQ(u.speaker, 1);
    EXPECT_EQ(u.line, 2);
    EXPECT_EQ(u.characters, 3);
    EXPECT_EQ(u.validation, in_validation("s02-1", 0.5));
    EXPECT_EQ(u.audio.samples, 2000);
    EXPECT_EQ(u.audio.sample_rate, 16000);
    EXPECT_EQ(u.audio.channels, 2);
    EXPECT_EQ(u.stamp, File::open((dataset_.folder() / "wavs/s02-1.wav").c_str()).stamp());
    EXPECT_EQ(u.problem, "");
    EXPECT_EQ(index.where(1), "metadata.csv:2");
    ASSERT_EQ(index.speakers().size(), 2u);
    EXPECT_EQ(index.speakers()[0], "s01");
    EXPECT_EQ(index.speakers()[1], "s02");
    EXPECT_EQ(index.utterance(2).speaker, 0);
    EXPECT_EQ(characters_of(index), "a1 b2 c1 d2 ");
  }
}

TEST_F(IndexTest, OpensWithoutReadingTextsOrAudioAgain) {
  write_small();
  open();
  fake_.cleaned = 0;
  EXPECT_FALSE(open().rebuilt());
  EXPECT_EQ(fake_.probes, 0);
  EXPECT_EQ(fake_.cleaned, 0);
}

TEST_F(IndexTest, IsTheSameForAnyNumberOfThreads) {
  std::string metadata;
  for (int i = 0; i < 500; ++i) {
    metadata += fmt::format("s{:02}-{}|text number {}\n", i % 7, i, i);
    if (i % 11 > 0) dataset_.write(fmt::format("wavs/s{:02}-{}.wav", i % 7, i), fmt::format("{} 22050 1", i));
  }
  dataset_.write("metadata.csv", metadata);
  fake_.inputs.threads = 1;
  const std::string one = dump(open());
  fake_.inputs.threads = 8;
  EXPECT_EQ(dump(open(true)), one);
}

TEST_F(IndexTest, ProgressGrowsUpToTheTotal) {
  std::string metadata;
  for (int i = 0; i < 300; ++i) metadata += fmt::format("{}|x\n", i);
  dataset_.write("metadata.csv", metadata);
  std::vector<std::size_t> seen;
  fake_.inputs.progress = [&](std::size_t done, std::size_t total) {
    EXPECT_EQ(total, 300u);
    seen.push_back(done);
  };
  open();
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 300u);
}

// ---- Problems

TEST_F(IndexTest, WhatIsWrongWithARowIsItsProblem) {
  dataset_.write("metadata.csv",
                 "good|ab\nmissing|a\nnoise|a\nempty|a\nfolder|a\ntext|abc!\nsilent| \nnone|\n");
  for (const char* id : {"good", "text", "silent", "none"})
    dataset_.write(fmt::format("wavs/{}.wav", id), "10 22050 1");
  dataset_.write("wavs/noise.wav", "?");
  dataset_.write("wavs/empty.wav", "0 22050 1");
  fs::create_directories(dataset_.folder() / "wavs/folder.wav");
  const auto clean = fake_.inputs.clean;
  fake_.inputs.clean = [&](std::string_view text) { return text == " " ? std::u32string() : clean(text); };
  const Index index = open();
  std::vector<std::string> problems;
  for (std::int64_t i = 0; i < index.size(); ++i) problems.emplace_back(index.utterance(i).problem);
  EXPECT_EQ(problems, (std::vector<std::string>{
                          "", "read: wavs/missing.wav: No such file or directory",
                          "decode: wavs/noise.wav: expected audio, but found something else",
                          "decode: wavs/empty.wav: expected audio, but found no samples",
                          "read: wavs/folder.wav: Is a directory",
                          "metadata.csv:6: byte 4 of the text is not valid UTF-8",
                          "metadata.csv:7: the text is empty", "metadata.csv:8: the text is empty"}));
  EXPECT_EQ(characters_of(index), "a1 b1 ") << "of the good row alone";
}

TEST_F(IndexTest, AShortageOfTheMachineIsNotRememberedAsAFilesProblem) {
  write_small();
  const auto probe = fake_.inputs.probe;
  fake_.inputs.probe = [](const File&, std::string_view) -> AudioInfo {
    throw std::system_error(EMFILE, std::generic_category());
  };
  EXPECT_NE(error_of([&] { open(); }).find("Too many open files"), std::string::npos);
  fake_.inputs.probe = probe;
  EXPECT_EQ(open().utterance(0).problem, "");
}

TEST_F(IndexTest, AFileThatIsRepairedIsReadAgainWhenTheManifestChanges) {
  write_small();
  dataset_.write("wavs/s02-1.wav", "?");
  EXPECT_NE(open().utterance(1).problem, "");
  dataset_.write("wavs/s02-1.wav", "2000 16000 2");
  dataset_.write("metadata.csv", "s01-1|ab\ns02-1|bcd\n");
  EXPECT_EQ(open().utterance(1).problem, "");
}

// ---- When it is rebuilt

TEST_F(IndexTest, AChangedManifestRebuildsItButReadsOnlyNewAudio) {
  write_small();
  open();
  EXPECT_EQ(fake_.probes, 3);
  dataset_.write("wavs/s03-1.wav", "4000 22050 1");
  dataset_.write("wavs/s01-1.wav", "1001 22050 1 changed");
  dataset_.write("metadata.csv", "s03-1|new\ns02-1|other text\ns01-1|ab\n");
  const Index index = open();
  EXPECT_TRUE(index.rebuilt());
  EXPECT_EQ(fake_.probes, 2) << "the new file and the changed one";
  EXPECT_EQ(index.utterance(0).audio.samples, 4000);
  EXPECT_EQ(index.utterance(1).audio.samples, 2000);
  EXPECT_EQ(index.utterance(1).text, "other text");
  EXPECT_EQ(index.utterance(2).audio.samples, 1001);
}

TEST_F(IndexTest, AManifestOfTheSameSizeAndAnotherTimeRebuildsIt) {
  write_small();
  open();
  fs::last_write_time(dataset_.folder() / "metadata.csv",
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(open().rebuilt());
  EXPECT_EQ(fake_.probes, 0);
  EXPECT_FALSE(open().rebuilt());
}

TEST_F(IndexTest, AnotherCleaningRebuildsTextsButReadsNoAudio) {
  write_small();
  open();
  fake_.inputs.clean = [](std::string_view) { return std::u32string(U"xyz"); };
  EXPECT_EQ(open().utterance(0).characters, 2);
  fake_.inputs.clean_version = 2;
  const Index index = open();
  EXPECT_TRUE(index.rebuilt());
  EXPECT_EQ(fake_.probes, 0);
  EXPECT_EQ(index.utterance(0).characters, 3);
}

TEST_F(IndexTest, RescanReadsEveryHeaderAgain) {
  write_small();
  open();
  EXPECT_TRUE(open(true).rebuilt());
  EXPECT_EQ(fake_.probes, 3);
}

TEST_F(IndexTest, AnotherFractionSplitsTheSameFile) {
  std::string metadata;
  for (int i = 0; i < 100; ++i) metadata += fmt::format("u{}|x\n", i);
  dataset_.write("metadata.csv", metadata);
  const auto validation = [&](double fraction, bool rebuilt) {
    DatasetPaths paths = dataset_.paths();
    paths.val_fraction = fraction;
    const Index index = open_with(paths);
    EXPECT_EQ(index.rebuilt(), rebuilt);
    int n = 0;
    for (std::int64_t i = 0; i < index.size(); ++i) {
      EXPECT_EQ(index.utterance(i).validation, in_validation(index.utterance(i).id, fraction));
      n += index.utterance(i).validation;
    }
    return n;
  };
  EXPECT_EQ(validation(0, true), 0);
  EXPECT_GT(validation(0.5, false), 20);
  EXPECT_EQ(validation(1, false), 100);
}

TEST_F(IndexTest, ValidationDataOfItsOwnIsKeptWhateverTheFraction) {
  dataset_.write("train/metadata.csv", "a|x\nb|x\n");
  dataset_.write("val/metadata.csv", "a|x\n");
  DatasetPaths paths = dataset_.paths();
  paths.train_data = "train";
  paths.val_data = "val";
  for (const double fraction : {0.0, 1.0}) {
    paths.val_fraction = fraction;
    const Index index = open_with(paths);
    ASSERT_EQ(index.size(), 3);
    EXPECT_FALSE(index.utterance(0).validation);
    EXPECT_FALSE(index.utterance(1).validation);
    EXPECT_TRUE(index.utterance(2).validation);
    EXPECT_EQ(index.where(2), "val/metadata.csv:1");
  }
}

TEST_F(IndexTest, ConfigurationsOfOneDatasetCoexist) {
  write_small();
  dataset_.write("few.csv", "s01-1|ab\n");
  DatasetPaths few = dataset_.paths();
  few.metadata_train_file = "few.csv";
  EXPECT_TRUE(open().rebuilt());
  EXPECT_TRUE(open_with(few).rebuilt());
  EXPECT_FALSE(open().rebuilt());
  EXPECT_FALSE(open_with(few).rebuilt());
  EXPECT_EQ(open_with(few).size(), 1);
}

TEST_F(IndexTest, DatasetsCoexistInOneIndexFolder) {
  write_small();
  const Dataset other;
  other.write("metadata.csv", "x|y\n");
  EXPECT_TRUE(open().rebuilt());
  EXPECT_TRUE(open_with(other.paths()).rebuilt());
  EXPECT_FALSE(open().rebuilt());
  EXPECT_FALSE(open_with(other.paths()).rebuilt());
}

TEST_F(IndexTest, MovesWithItsDataset) {
  dataset_.write("here/metadata.csv", "a|x\n");
  dataset_.write("here/wavs/a.wav", "10 22050 1");
  const auto open_at = [&](const char* name) {
    DatasetPaths paths;
    paths.folder = dataset_.folder() / name;
    return Index::open(paths, paths.folder / ".penstock", fake_.inputs);
  };
  EXPECT_TRUE(open_at("here").rebuilt());
  fs::rename(dataset_.folder() / "here", dataset_.folder() / "there");
  const Index index = open_at("there");
  EXPECT_FALSE(index.rebuilt());
  EXPECT_EQ(index.root(), dataset_.folder() / "there");
}

TEST_F(IndexTest, AFolderThatCannotBeWrittenGivesAnIndexInMemoryAndANote) {
  write_small();
  const std::string reference = dump(open());
  dataset_.write("file", "");
  const Index index = Index::open(dataset_.paths(), dataset_.folder() / "file/x", fake_.inputs);
  EXPECT_TRUE(index.rebuilt());
  EXPECT_EQ(
      index.note(),
      fmt::format("the index is kept in memory and will be built again next time: {}/file/x: Not a directory",
                  dataset_.folder().string()));
  EXPECT_EQ(dump(index), reference);
}

TEST_F(IndexTest, StaysReadableWhileItIsReplaced) {
  write_small();
  const Index old = open();
  const std::string before = dump(old);
  dataset_.write("metadata.csv", "s01-1|other\n");
  EXPECT_EQ(open().size(), 1);
  EXPECT_EQ(dump(old), before);
}

TEST_F(IndexTest, ThreadsAndProcessesThatBuildAtOnceAllEndWell) {
  write_small();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      fake_.inputs.threads = 1;
      bool good = true;
      for (int n = 0; n < 20; ++n) good = good && open(n % 2 == 0).size() == 3;
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_FALSE(open().rebuilt());
  EXPECT_TRUE(fs::exists(only_index_file())) << "and no temporary is left beside it";
}

// ---- Damage

TEST_F(IndexTest, AFlippedByteAnywhereIsRebuiltRefusedOrInAStringOnly) {
  write_small();
  const std::string reference = dump(open());
  const fs::path file = only_index_file();
  const std::string intact = read_text(file);
  const std::size_t strings = intact.find("s01-1");  // the ids are nowhere else
  ASSERT_NE(strings, std::string::npos);
  std::map<std::string, int> outcomes;
  for (std::size_t at = 0; at < intact.size(); ++at) {
    for (const int bit : {0, 7}) {
      std::string damaged = intact;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      { std::ofstream(file, std::ios::binary) << damaged; }
      try {
        const Index index = open();
        const std::string now = dump(index);
        ++outcomes[index.rebuilt() ? "rebuilt" : now == reference ? "unchanged" : "string"];
        if (index.rebuilt())
          EXPECT_EQ(now, reference) << at;
        else
          EXPECT_GE(at, strings) << "a change outside of the strings went unnoticed";
      } catch (const Error& e) {
        ++outcomes["refused"];
        EXPECT_NE(std::string(e.what()).find(file.filename().string()), std::string::npos);
        EXPECT_NE(
            std::string(e.what()).find(fmt::format("penstock info {} --rescan", dataset_.folder().string())),
            std::string::npos);
        EXPECT_EQ(dump(open(true)), reference) << "rescan repairs it";
      }
    }
  }
  EXPECT_GT(outcomes["rebuilt"], 0);
  EXPECT_GT(outcomes["refused"], 0);
  EXPECT_GT(outcomes["string"], 0);
}

TEST_F(IndexTest, ATruncatedFileIsRebuilt) {
  write_small();
  const std::string reference = dump(open());
  const fs::path file = only_index_file();
  const std::string intact = read_text(file);
  for (std::size_t size = 0; size < intact.size(); ++size) {
    { std::ofstream(file, std::ios::binary) << intact.substr(0, size); }
    const Index index = open();
    EXPECT_TRUE(index.rebuilt()) << size;
    EXPECT_EQ(dump(index), reference);
  }
  { std::ofstream(file, std::ios::binary) << intact << '\0'; }
  EXPECT_TRUE(open().rebuilt()) << "too long";
}

TEST_F(IndexTest, AnotherDatasetsFileUnderItsNameIsRebuilt) {
  write_small();
  open();
  const fs::path file = only_index_file();
  const Dataset other;
  other.write("metadata.csv", "x|y\n");
  open_with(other.paths());
  for (const auto& entry : fs::directory_iterator(index_folder()))
    if (entry.path() != file) fs::rename(entry.path(), file);
  EXPECT_TRUE(open().rebuilt());
}

TEST_F(IndexTest, RebuildingKeepsNothingOfADamagedEntry) {
  write_small();
  open();
  const fs::path file = only_index_file();
  std::string bytes = read_text(file);
  const std::size_t first_record = bytes.find("s01-1") - 3 * 88;
  bytes[first_record + 60] = static_cast<char>(bytes[first_record + 60] ^ 1);
  { std::ofstream(file, std::ios::binary) << bytes; }
  dataset_.write("metadata.csv", "s01-1|x\ns02-1|x\n");
  const Index index = open();
  EXPECT_EQ(fake_.probes, 1);
  EXPECT_EQ(index.utterance(0).audio.samples, 1000);
}

TEST_F(IndexTest, RefusesNumbersThatItDoesNotHave) {
  write_small();
  const Index index = open();
  for (const std::int64_t number : {-1, 3})
    EXPECT_NE(error_of([&] { (void)index.utterance(number); }).find("utterance must be 0 to 2"),
              std::string::npos);
}

TEST_F(IndexTest, IsReadByManyThreadsAtOnce) {
  write_small();
  const Index index = open();
  const std::string reference = dump(index);
  std::vector<std::jthread> threads;
  threads.reserve(4);
  std::atomic<int> equal = 0;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { equal += dump(index) == reference; });
  threads.clear();
  EXPECT_EQ(equal, 4);
}

}  // namespace
}  // namespace penstock
