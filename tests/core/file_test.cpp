#include "penstock/core/file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <gtest/gtest.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

class FileTest : public ::testing::Test {
 protected:
  TempFolder temp_{std::filesystem::temp_directory_path()};
  std::filesystem::path folder_ = temp_.path();
};

TEST_F(FileTest, WhatIsWrittenIsReadMappedAndStamped) {
  const auto path = folder_ / "a";
  write_file(path, std::string_view("hello"));
  EXPECT_EQ(read_text(path), "hello");
  const MappedFile mapped(path);
  EXPECT_EQ(std::memcmp(mapped.bytes().data(), "hello", 5), 0);
  const File folder = File::open_folder(folder_);
  const File file = File::open("a", folder.fd());
  EXPECT_EQ(file.stamp().size, 5);
  std::array<std::byte, 9> bytes{};
  EXPECT_EQ(file.read_at(2, bytes), 3u);
}

TEST_F(FileTest, WritingReplacesWholeAndLeavesNoTemporary) {
  const auto path = folder_ / "a";
  write_file(path, std::string_view("first"));
  write_file(path, std::string_view("second"));
  EXPECT_EQ(read_text(path), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, AFailedWriteNamesThePathAndKeepsTheOldFile) {
  const auto folder = folder_ / "occupied";
  std::filesystem::create_directories(folder / "inside");
  try {
    write_file(folder, std::string_view("x"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("occupied"), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_directory(folder / "inside"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_THROW(write_file(folder_ / "missing/a", std::string_view("x")), Error);
}

TEST_F(FileTest, WhatIsNotARegularFileIsRefused) {
  EXPECT_THROW(File::open((folder_ / "none").c_str()), std::system_error);
  EXPECT_THROW((void)File::open(folder_.c_str()).stamp(), std::system_error);
  EXPECT_THROW(MappedFile{folder_}, Error);
  EXPECT_THROW(read_text(folder_), Error);
  EXPECT_THROW(File::open_folder(folder_ / "none"), Error);
}

TEST_F(FileTest, AnEmptyFileMapsToNothing) {
  write_file(folder_ / "empty", std::string_view());
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
}

TEST(Scratch, GrowsAndThenStaysWhereItIs) {
  Scratch<float> s;
  const float* first = s.of(100).data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(s.of(50).data(), first);
  EXPECT_EQ(s.of(50).size(), 50u);
  EXPECT_EQ(s.of(1000).size(), 1000u);
}

}  // namespace
}  // namespace penstock
