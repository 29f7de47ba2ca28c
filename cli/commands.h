// The subcommands: each registers its flags and, when it is chosen, leaves what is to be run.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace penstock::cli {

/// What the chosen subcommand does; returns the exit code: 0, or 1 when it found a problem.
using Action = std::function<int()>;

void add_synth(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_cache(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_tune(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
/// `command`: what followed `--`.
void add_diagnose(CLI::App& app, Action& action, const std::vector<std::string>& command);
void add_monitor(CLI::App& app, Action& action, const std::vector<std::string>& command);
/// train, retrace and say: run by penstock-train.
void add_train(CLI::App& app, Action& action);
/// scan: run by Python.
void add_scan(CLI::App& app, Action& action);

}  // namespace penstock::cli
