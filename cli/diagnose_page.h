// What `penstock diagnose -- COMMAND` shows.
#pragma once
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "penstock/monitor/command_diagnosis.h"

namespace penstock::cli {

nlohmann::json command_json(const CommandDiagnosis& diagnosis);
/// `code`: the command's exit code.
void print_command_page(const CommandDiagnosis& diagnosis, int code);
/// What `penstock scan` found, the worst first; or why it could not be asked. Nothing when it was not.
void print_scan(const nlohmann::json& scan, const std::string& reason);

}  // namespace penstock::cli
