// What every program of ours does with its command line.
#pragma once
#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace penstock::cli {

/// Parses, runs what the chosen subcommand left in `action`, says what went wrong, and returns the exit code:
/// 0, 1 (found a problem), 2 (misuse) or 130 (interrupted).
int run(CLI::App& app, int argc, char** argv, const Action& action);

}  // namespace penstock::cli
