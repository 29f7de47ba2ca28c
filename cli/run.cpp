#include "cli/run.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/terminal.h"
#include "penstock/core/config.h"
#include "penstock/core/error.h"

namespace penstock::cli {
namespace {

constexpr int found_a_problem = 1, misuse = 2;

/// Says which argument was not understood, and which flag may have been meant.
std::string unexpected(const CLI::App& app) {
  std::string argument = app.remaining(true).front();
  for (const std::string& a : app.remaining(true))
    if (a.starts_with("--")) argument = a;
  std::string key = argument.substr(std::min<std::size_t>(2, argument.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  std::string nearest = argument.starts_with("--") ? nearest_key(key) : "";
  if (nearest == key) nearest.clear();  // it exists, and another command has it
  std::replace(nearest.begin(), nearest.end(), '_', '-');
  return nearest.empty() ? argument + ": not expected here; --help lists what is"
                         : fmt::format("{}: unknown flag; did you mean --{}?", argument, nearest);
}

}  // namespace

int run(CLI::App& app, int argc, char** argv, const Action& action) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), unexpected(app));
    return misuse;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : misuse;
  }
  try {
    catch_interrupts();
    return action();
  } catch (const Interrupted&) {
    fmt::print(stderr, "interrupted\n");
    return 128 + interrupt_signal();
  } catch (const SampleError& e) {
    fmt::print(stderr, "{}: {}\n  utterance {}; to go on without bad samples: --on-bad-sample skip\n",
               app.get_name(), e.what(), e.utterance);
    return found_a_problem;
  } catch (const Error& e) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), e.what());
    return misuse;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "{}: out of memory: lower batch_size, prefetch_buffer_size or max_mel_frames\n",
               app.get_name());
    return found_a_problem;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), e.what());
    return found_a_problem;
  }
}

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
