// The subcommands: each registers its flags and, when it is chosen, leaves what is to be run.
#pragma once
#include <string>
#include <vector>

#include "cli/command.h"

namespace penstock::cli {

void add_synth(const Command& app, Action& action);
void add_info(const Command& app, Action& action);
void add_cache(const Command& app, Action& action);
void add_bench(const Command& app, Action& action);
void add_tune(const Command& app, Action& action);
void add_report(const Command& app, Action& action);
/// `command`: what followed `--`.
void add_diagnose(const Command& app, Action& action, const std::vector<std::string>& command);
void add_monitor(const Command& app, Action& action, const std::vector<std::string>& command);
/// train, retrace and say: run by penstock-train.
void add_train(const Command& app, Action& action);
/// scan: run by Python.
void add_scan(const Command& app, Action& action);

}  // namespace penstock::cli
