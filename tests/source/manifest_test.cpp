#include "penstock/source/manifest.h"

#include <cmath>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/source/dataset.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Texts = std::map<std::string, std::string>;

Texts texts_of(std::string_view metadata) {
  const Dataset dataset;
  dataset.write("metadata.csv", metadata);
  Texts texts;
  for (const ManifestRow& row : read_manifest(dataset.paths()).rows) texts[row.id] = row.text;
  return texts;
}

std::string error_in(std::string_view metadata) {
  return error_of([&] { texts_of(metadata); });
}

/// The audio path that an id gets in a dataset with these files.
std::string audio_of(std::string_view id, std::initializer_list<const char*> files) {
  const Dataset dataset;
  dataset.write("metadata.csv", fmt::format("{}|text\n", id));
  for (const char* file : files) dataset.write(file, "1 1 1");
  return read_manifest(dataset.paths()).rows.at(0).path;
}

// ---- Columns

TEST(ManifestText, TwoColumnsGiveTheSecond) {
  EXPECT_EQ(texts_of("a|Hello.\nb|World\n"), (Texts{{"a", "Hello."}, {"b", "World"}}));
}

TEST(ManifestText, ThreeColumnsGiveTheNormalisedOne) {
  EXPECT_EQ(texts_of("a|It is 5.|It is five.\nb|Dr. X|Doctor X\n"),
            (Texts{{"a", "It is five."}, {"b", "Doctor X"}}));
}

TEST(ManifestText, AnEmptyNormalisedColumnFallsBackToTheText) {
  EXPECT_EQ(texts_of("a|one|\nb|two|  \nc|three\nd|four|vier\n"),
            (Texts{{"a", "one"}, {"b", "two"}, {"c", "three"}, {"d", "vier"}}));
}

TEST(ManifestText, KeepsBarsInATwoColumnFile) {
  EXPECT_EQ(texts_of("a|x|y\nb|plain\nc|also plain\n"),
            (Texts{{"a", "x|y"}, {"b", "plain"}, {"c", "also plain"}}));
}

TEST(ManifestText, SharesBarsEvenlyBetweenTheColumnsOfAThreeColumnFile) {
  EXPECT_EQ(texts_of("a|x|y|X|Y\nb|p|q\nc|1|2|3|one|two|three\n"),
            (Texts{{"a", "X|Y"}, {"b", "q"}, {"c", "one|two|three"}}));
}

TEST(ManifestText, GivesTheFirstTextOneMoreOfAnOddNumberOfFields) {
  EXPECT_EQ(texts_of("a|x|y|xy\nb|p|q\nc|p|q|r|P|QR\n"), (Texts{{"a", "xy"}, {"b", "q"}, {"c", "P|QR"}}));
}

TEST(ManifestText, FallsBackToATextWithBarsToo) {
  EXPECT_EQ(texts_of("a|x|y|z|\nb|p|q\nc|r|s\n"), (Texts{{"a", "x|y|z"}, {"b", "q"}, {"c", "s"}}));
}

TEST(ManifestText, HeaderDecidesTheColumns) {
  EXPECT_EQ(texts_of("id|text\na|x|y\nb|p|q\n"), (Texts{{"a", "x|y"}, {"b", "p|q"}}));
  EXPECT_EQ(texts_of("id|text|normalized\na|x\nb|y\nc|p|q\n"), (Texts{{"a", "x"}, {"b", "y"}, {"c", "q"}}));
}

TEST(ManifestText, SkipsEveryKindOfHeader) {
  for (const char* name :
       {"id", "ID", "fileid", "FileID", "file_id", "wav_id", " Wav_ID ", "filename", "file_name"})
    EXPECT_EQ(texts_of(fmt::format("{}|text\na|x\n", name)), (Texts{{"a", "x"}})) << name;
}

TEST(ManifestText, KeepsAnIdThatOnlyStartsLikeAHeader) {
  EXPECT_EQ(texts_of("id7|x\n"), (Texts{{"id7", "x"}}));
  EXPECT_EQ(texts_of("a|x\nid|y\n"), (Texts{{"a", "x"}, {"id", "y"}}));
}

TEST(ManifestText, AcceptsByteOrderMarkCrlfBlankLinesAndNoFinalNewline) {
  EXPECT_EQ(texts_of("\xEF\xBB\xBFid|text\r\n\r\na|x\r\n   \n\nb|y"), (Texts{{"a", "x"}, {"b", "y"}}));
  EXPECT_EQ(texts_of("\xEF\xBB\xBF"
                     "a|x\n"),
            (Texts{{"a", "x"}}));
}

TEST(ManifestText, CountsBlankLinesInLineNumbers) {
  const Dataset dataset;
  dataset.write("metadata.csv", "id|text\n\na|x\n\n\nb|y\n");
  const Manifest manifest = read_manifest(dataset.paths());
  ASSERT_EQ(manifest.rows.size(), 2u);
  EXPECT_EQ(manifest.rows[0].line, 3);
  EXPECT_EQ(manifest.rows[1].line, 6);
}

TEST(ManifestText, KeepsPersianAndInvalidBytesAsTheyAre) {
  EXPECT_EQ(texts_of("a|می‌خواهم\nb|caf\xE9\n"),
            (Texts{{"a", "می‌خواهم"}, {"b", "caf\xE9"}}));
}

TEST(ManifestErrors, NameTheLine) {
  EXPECT_EQ(error_in("a|x\nno separator\n"), "metadata.csv:2: expected id|text, but found no '|'");
  EXPECT_EQ(error_in("a|x\n\n |y\n"), "metadata.csv:3: expected id|text, but the id is empty");
  EXPECT_EQ(error_in(std::string_view("a\0b|x\n", 6)),
            "metadata.csv:1: expected id|text, but the id has a NUL byte in it");
  EXPECT_EQ(error_in("id|a|b|c\nx|y\n"), "metadata.csv:1: the header must have 2 or 3 columns, but has 4");
}

TEST(ManifestErrors, NameBothLinesOfARepeatedId) {
  EXPECT_EQ(error_in("a|x\nb|y\nc|z\nb|w\na|v\n"), "metadata.csv:4: id 'b' is already in line 2");
}

TEST(ManifestErrors, SayWhenThereIsNothingToRead) {
  EXPECT_EQ(error_in(""), "metadata.csv: expected rows of id|text, but found none");
  EXPECT_EQ(error_in("id|text\n\n"), "metadata.csv: expected rows of id|text, but found none");
  EXPECT_EQ(error_in(std::string_view("\xFF\xFE"
                                      "a\0|\0",
                                      6)),
            "metadata.csv: expected UTF-8, but found UTF-16");
}

// ---- Audio files

TEST(ManifestAudio, FindsEveryFormat) {
  for (const char* extension : {".wav", ".flac", ".ogg", ".opus", ".mp3", ".WAV", ".FLAC"}) {
    const std::string file = std::string("wavs/a") + extension;
    EXPECT_EQ(audio_of("a", {file.c_str()}), file);
  }
}

TEST(ManifestAudio, PrefersWav) {
  EXPECT_EQ(audio_of("a", {"wavs/a.mp3", "wavs/a.flac", "wavs/a.wav"}), "wavs/a.wav");
  EXPECT_EQ(audio_of("a", {"wavs/a.mp3", "wavs/a.flac"}), "wavs/a.flac");
}

TEST(ManifestAudio, TakesTheFormatThatTheIdNames) {
  EXPECT_EQ(audio_of("a.wav", {"wavs/a.wav"}), "wavs/a.wav");
  EXPECT_EQ(audio_of("a.flac", {"wavs/a.wav", "wavs/a.flac"}), "wavs/a.flac");
  EXPECT_EQ(audio_of("a.wav", {"wavs/a.flac"}), "wavs/a.flac") << "converted since the manifest was written";
}

TEST(ManifestAudio, KeepsDotsThatAreNoExtension) {
  EXPECT_EQ(audio_of("a.b.1", {"wavs/a.b.1.wav"}), "wavs/a.b.1.wav");
}

TEST(ManifestAudio, FollowsSubfolders) {
  EXPECT_EQ(audio_of("speaker1/utt5", {"wavs/speaker1/utt5.ogg"}), "wavs/speaker1/utt5.ogg");
  EXPECT_EQ(audio_of("wavs/a.wav", {"wavs/a.wav"}), "wavs/a.wav")
      << "an id that starts at the manifest's folder";
}

TEST(ManifestAudio, LiesBesideTheManifestWithoutAWavsFolder) {
  EXPECT_EQ(audio_of("a", {"a.flac"}), "a.flac");
  EXPECT_EQ(audio_of("s/a", {"s/a.wav"}), "s/a.wav");
}

TEST(ManifestAudio, AMissingFileKeepsThePathWhereItWasExpected) {
  EXPECT_EQ(audio_of("a", {"wavs/b.wav"}), "wavs/a.wav");
  EXPECT_EQ(audio_of("a.mp3", {"wavs/b.wav"}), "wavs/a.mp3");
  EXPECT_EQ(audio_of("x/a", {"wavs/b.wav"}), "wavs/x/a.wav");
  EXPECT_EQ(audio_of("a", {}), "a.wav");
}

TEST(ManifestAudio, SpeakerComesFromIdsOfTheFormS03Dash000123) {
  const Dataset dataset;
  dataset.write("metadata.csv", "s03-000123|x\nLJ001-0001|x\ns03|x\ns-1|x\ns3-a|x\ns12-7.wav|x\nsx-1|x\n");
  std::vector<std::string> speakers;
  for (const ManifestRow& row : read_manifest(dataset.paths()).rows) speakers.push_back(row.speaker);
  EXPECT_EQ(speakers, (std::vector<std::string>{"s03", "", "", "", "", "s12", ""}));
}

// ---- Layouts

std::string row_of(const Manifest& manifest, std::size_t i) {
  const ManifestRow& row = manifest.rows.at(i);
  return fmt::format("{} {} {}", row.id, row.path, row.validation ? "val" : "train");
}

TEST(ManifestLayout, MetadataTrainAndEvalFilesOfOneFolderAreTheSplits) {
  for (const char* eval : {"metadata_eval.csv", "metadata_val.csv"}) {
    const Dataset dataset;
    dataset.write("metadata_train.csv", "a|x\n");
    dataset.write(eval, "b|y\n");
    dataset.write("wavs/a.wav", "1 1 1");
    dataset.write("wavs/b.wav", "1 1 1");
    const Manifest manifest = read_manifest(dataset.paths());
    ASSERT_EQ(manifest.rows.size(), 2u);
    EXPECT_EQ(row_of(manifest, 0), "a wavs/a.wav train");
    EXPECT_EQ(row_of(manifest, 1), "b wavs/b.wav val");
    EXPECT_FALSE(manifest.split_by_id);
    EXPECT_EQ(manifest.files.at(1).first, dataset.folder() / eval);
    EXPECT_EQ(manifest.rows[1].file, 1);
  }
}

TEST(ManifestLayout, MetadataTrainAloneIsSplitById) {
  const Dataset dataset;
  dataset.write("metadata_train.csv", "a|x\n");
  EXPECT_TRUE(read_manifest(dataset.paths()).split_by_id);
}

TEST(ManifestLayout, MetadataCsvWinsOverSeparateFiles) {
  const Dataset dataset;
  dataset.write("metadata.csv", "a|x\nb|y\n");
  dataset.write("metadata_train.csv", "a|x\n");
  dataset.write("metadata_eval.csv", "b|y\n");
  EXPECT_EQ(read_manifest(dataset.paths()).files.size(), 1u);
}

TEST(ManifestLayout, TrainAndValDataAreFoldersOfTheirOwn) {
  const Dataset train, val;
  train.write("metadata.csv", "1|x\n");
  train.write("wavs/1.wav", "1 1 1");
  val.write("metadata.csv", "1|y\n");
  val.write("wavs/1.flac", "1 1 1");
  DatasetPaths paths;
  paths.train_data = train.folder();
  paths.val_data = val.folder();
  const Manifest manifest = read_manifest(paths);
  EXPECT_EQ(manifest.root, train.folder());
  ASSERT_EQ(manifest.rows.size(), 2u);
  EXPECT_EQ(row_of(manifest, 0), "1 wavs/1.wav train");
  EXPECT_EQ(row_of(manifest, 1), fmt::format("1 {}/wavs/1.flac val", val.folder().string()));
}

TEST(ManifestLayout, RelativeNamesStartAtTheFolder) {
  const Dataset dataset;
  dataset.write("train/metadata.csv", "a|x\n");
  dataset.write("train/wavs/a.wav", "1 1 1");
  dataset.write("lists/eval.csv", "b|y\n");
  dataset.write("audio/b.mp3", "1 1 1");
  DatasetPaths paths = dataset.paths();
  paths.train_data = "train";
  paths.metadata_eval_file = "lists/eval.csv";
  paths.wavs_eval_dir = "audio/";
  const Manifest manifest = read_manifest(paths);
  EXPECT_EQ(manifest.root, dataset.folder());
  EXPECT_EQ(row_of(manifest, 0), "a train/wavs/a.wav train");
  EXPECT_EQ(row_of(manifest, 1), "b audio/b.mp3 val");
}

TEST(ManifestLayout, SeparateFilesWorkWithoutAFolder) {
  const Dataset dataset;
  dataset.write("lists/train.csv", "a|x\n");
  dataset.write("audio/a.wav", "1 1 1");
  DatasetPaths paths;
  paths.metadata_train_file = fs::relative(dataset.folder() / "lists/train.csv");
  paths.wavs_train_dir = fs::relative(dataset.folder() / "audio");
  const Manifest manifest = read_manifest(paths);
  EXPECT_EQ(manifest.root, dataset.folder() / "lists");
  EXPECT_EQ(manifest.rows.at(0).path, (dataset.folder() / "audio/a.wav").string());
  EXPECT_TRUE(manifest.split_by_id);
}

TEST(ManifestLayout, ValDataAloneLeavesTheFolderToTraining) {
  const Dataset dataset, val;
  dataset.write("metadata.csv", "a|x\n");
  val.write("metadata_val.csv", "b|y\n");
  DatasetPaths paths = dataset.paths();
  paths.val_data = val.folder();
  const Manifest manifest = read_manifest(paths);
  EXPECT_EQ(manifest.files.at(0).first, dataset.folder() / "metadata.csv");
  EXPECT_EQ(manifest.files.at(1).first, val.folder() / "metadata_val.csv");
}

TEST(ManifestLayout, FilesCarryTheirStamps) {
  const Dataset dataset;
  dataset.write("metadata.csv", "a|x\n");
  const auto files = manifest_files(dataset.paths());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].second.size, 4);
  EXPECT_EQ(files, read_manifest(dataset.paths()).files);
}

TEST(ManifestLayout, ErrorsSayWhereItLooked) {
  const Dataset dataset;
  const std::string folder = dataset.folder().string();
  const auto error = [](const DatasetPaths& paths) { return error_of([&] { manifest_files(paths); }); };
  DatasetPaths paths = dataset.paths();
  EXPECT_EQ(error(paths), folder + ": expected metadata.csv or metadata_train.csv there, but found none");
  paths.folder /= "nowhere";
  EXPECT_EQ(error(paths), folder + "/nowhere: expected a dataset's folder, but there is none");
  EXPECT_EQ(error({}), "a dataset needs its folder, train_data or metadata_train_file");

  dataset.write("metadata.csv", "a|x\n");
  paths = dataset.paths();
  paths.metadata_train_file = "x.csv";
  EXPECT_EQ(error(paths), "metadata_train_file: " + folder + "/x.csv: no such file");
  paths.train_data = ".";
  EXPECT_NE(error(paths).find("give one of them"), std::string::npos);
  paths = dataset.paths();
  paths.wavs_train_dir = "audio";
  EXPECT_EQ(error(paths), "wavs_train_dir: " + folder + "/audio: no such folder");
  paths = dataset.paths();
  paths.wavs_eval_dir = "audio";
  EXPECT_EQ(error(paths), "wavs_eval_dir (" + folder + "/audio) needs metadata_eval_file or val_data");
}

TEST(ManifestLayout, AnAudioFileInBothSplitsIsAnError) {
  const Dataset dataset;
  dataset.write("metadata_train.csv", "a|x\nb|x\n");
  dataset.write("metadata_eval.csv", "c|y\n\nb.wav|y\n");
  EXPECT_EQ(
      error_of([&] { read_manifest(dataset.paths()); }),
      "metadata_eval.csv:3: validation must not use what training uses, but b.wav of 'b.wav' is also in "
      "metadata_train.csv:2");
}

// ---- The split by id

TEST(ManifestSplit, IsNearItsFraction) {
  for (const double fraction : {0.01, 0.05, 0.2, 0.5}) {
    constexpr int n = 20000;
    int inside = 0;
    for (int i = 0; i < n; ++i)
      inside += in_validation(fmt::format("LJ{:03}-{:04}", i / 200, i % 200), fraction);
    EXPECT_NEAR(inside, n * fraction, 5 * std::sqrt(n * fraction * (1 - fraction))) << fraction;
  }
}

TEST(ManifestSplit, NoneAtZeroAndAllAtOne) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(in_validation(std::to_string(i), 0));
    EXPECT_TRUE(in_validation(std::to_string(i), 1));
  }
}

TEST(ManifestSplit, ALargerFractionKeepsWhatASmallerOneHas) {
  for (int i = 0; i < 1000; ++i)
    EXPECT_LE(in_validation(std::to_string(i), 0.1), in_validation(std::to_string(i), 0.2));
}

TEST(ManifestSplit, IdsKeepTheirSideWhenRowsAreAdded) {
  const auto splits_of = [](const std::string& metadata) {
    const Dataset dataset;
    dataset.write("metadata.csv", metadata);
    DatasetPaths paths = dataset.paths();
    paths.val_fraction = 0.3;
    std::map<std::string, bool> splits;
    for (const ManifestRow& row : read_manifest(paths).rows) splits[row.id] = row.validation;
    return splits;
  };
  std::string few, more = "first|x\n";
  for (int i = 0; i < 200; ++i) {
    few += fmt::format("u{}|x\n", i);
    more += fmt::format("new{}|x\nu{}|x\n", i, i);
  }
  const auto before = splits_of(few), after = splits_of(more);
  for (const auto& [id, validation] : before) EXPECT_EQ(after.at(id), validation) << id;
}

TEST(ManifestSplit, IsTheSameForEver) {
  std::string validation;
  for (int i = 1; i <= 100; ++i)
    if (in_validation(fmt::format("LJ001-{:04}", i), 0.05)) validation += fmt::format("{} ", i);
  EXPECT_EQ(validation, "7 50 72 80 81 ");
}

}  // namespace
}  // namespace penstock
