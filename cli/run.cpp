#include "cli/run.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "penstock/core/error.h"

namespace penstock::cli {

std::vector<std::string> take_command(int& argc, char** argv, std::string_view subcommand) {
  if (argc < 2 || argv[1] != subcommand) return {};
  char** mark = std::find(argv, argv + argc, std::string_view("--"));
  if (mark == argv + argc) return {};
  std::vector<std::string> command(mark + 1, argv + argc);
  argc = static_cast<int>(mark - argv);
  return command;
}

std::filesystem::path program_folder() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
}

void become(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv((program_folder() / arguments.front()).c_str(), argv.data());
  if (errno == ENOENT) ::execvp(argv.front(), argv.data());
  if (errno != ENOENT)
    throw Error(
        fmt::format("{}: cannot be started: {}", arguments.front(), std::generic_category().message(errno)));
}

}  // namespace penstock::cli
