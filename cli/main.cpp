// penstock: one program, a file per subcommand.
#include <algorithm>
#include <exception>
#include <new>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "penstock/core/config.h"
#include "penstock/core/error.h"

namespace {

constexpr int found_a_problem = 1, misuse = 2, interrupted = 130;

/// Says which argument was not understood, and which flag may have been meant.
std::string unexpected(const CLI::App& app) {
  std::string argument = app.remaining(true).front();
  for (const std::string& a : app.remaining(true))
    if (a.starts_with("--")) argument = a;
  std::string key = argument.substr(std::min<std::size_t>(2, argument.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  std::string nearest = argument.starts_with("--") ? penstock::nearest_key(key) : "";
  std::replace(nearest.begin(), nearest.end(), '_', '-');
  return nearest.empty() ? argument + ": not expected here; --help lists what is"
                         : fmt::format("{}: unknown flag; did you mean --{}?", argument, nearest);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace penstock;
  CLI::App app{
      "Penstock feeds speech to an accelerator: a dataset on disk becomes full batches of a few fixed "
      "shapes.",
      "penstock"};
  app.set_version_flag("--version", PENSTOCK_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  cli::Action action;
  cli::add_synth(app, action);
  cli::add_info(app, action);
  cli::add_cache(app, action);
  cli::add_bench(app, action);
  cli::add_tune(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    fmt::print(stderr, "penstock: {}\n", unexpected(app));
    return misuse;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : misuse;
  }
  try {
    cli::catch_interrupts();
    return action();
  } catch (const cli::Interrupted&) {
    fmt::print(stderr, "interrupted\n");
    return interrupted;
  } catch (const SampleError& e) {
    fmt::print(stderr, "penstock: {}\n  utterance {}; to go on without bad samples: --on-bad-sample skip\n",
               e.what(), e.utterance);
    return found_a_problem;
  } catch (const Error& e) {
    fmt::print(stderr, "penstock: {}\n", e.what());
    return misuse;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "penstock: out of memory: lower batch_size, prefetch_buffer_size or max_mel_frames\n");
    return found_a_problem;
  } catch (const std::exception& e) {
    fmt::print(stderr, "penstock: {}\n", e.what());
    return found_a_problem;
  }
}
