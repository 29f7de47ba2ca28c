// penstock scan: run by Python, whose parser knows Python best; its sources come with the program.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/run.h"
#include "penstock/core/error.h"

namespace penstock::cli {
namespace {

/// Where the sources of penstock.scan are: in a build folder beside the program, in an installed package
/// above it. Empty when they are in neither.
std::filesystem::path scan_folder() {
  for (const char* place : {"python/penstock/scan", "../scan"}) {
    std::filesystem::path folder = program_folder() / place;
    if (std::filesystem::exists(folder / "__main__.py")) return folder;
  }
  return {};
}

}  // namespace

void add_scan(const Command& app, Action& action) {
  const Command c = app.add_command("scan", "what starves a device in Python sources, by file and line");
  c.take_everything();  // the scanner has a --help of its own
  c.runs(action, [c]() -> int {
    const std::filesystem::path folder = scan_folder();
    std::vector<std::string> arguments = {"python3"};
    if (folder.empty())  // another package may be on Python's own path
      arguments.insert(arguments.end(), {"-m", "penstock.scan"});
    else  // the folder alone: any Python can run it, also one that has no package of ours
      arguments.push_back(folder.string());
    for (std::string& argument : c.everything()) arguments.push_back(std::move(argument));
    become(std::move(arguments));
    throw Error(
        "python3 is neither beside this program nor on PATH: penstock scan needs Python 3.9 or later");
  });
}

}  // namespace penstock::cli
