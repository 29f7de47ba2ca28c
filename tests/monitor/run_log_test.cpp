#include "penstock/monitor/run_log.h"

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

class RunLogTest : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> lines() const {
    std::ifstream file(folder / "log.jsonl");
    std::vector<std::string> out;
    for (std::string line; std::getline(file, line);) out.push_back(line);
    return out;
  }

 private:
  TempFolder temp_;

 protected:
  std::filesystem::path folder = temp_ / "run";
};

TEST_F(RunLogTest, LinesHaveTheirTimeAndKindInFront) {
  RunLog(folder).add("feed", R"({"hits":3})");
  RunLog(folder).add("event", "{}");  // a log goes on where it was
  ASSERT_EQ(lines().size(), 2);
  EXPECT_THAT(lines()[0], MatchesRegex(R"(\{"t":[0-9]+\.[0-9]+,"kind":"feed","hits":3\})"));
  EXPECT_THAT(lines()[1], MatchesRegex(R"(\{"t":[0-9]+\.[0-9]+,"kind":"event"\})"));
}

TEST_F(RunLogTest, LinesOfManyWritersStayWhole) {
  constexpr int writers = 4, each = 200;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < writers; ++t)
      threads.emplace_back([&] {
        RunLog log(folder);
        for (int i = 0; i < each; ++i) log.add("step", R"({"text":")" + std::string(i, 'x') + R"("})");
      });
  }
  ASSERT_EQ(lines().size(), writers * each);
  for (const std::string& line : lines())
    EXPECT_THAT(line, MatchesRegex(R"(\{"t":[0-9]+\.[0-9]+,"kind":"step","text":"x*"\})"));
}

TEST_F(RunLogTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(folder) << "a file";
  try {
    RunLog log(folder / "run");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr(folder.string()));
  }
}

}  // namespace
}  // namespace penstock
