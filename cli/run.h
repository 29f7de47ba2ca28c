// What one program of ours does with another one's command line.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

/// Takes `-- COMMAND ...` off the arguments of a subcommand that wraps a command and has positionals of its
/// own, which would take it. Empty when there is none.
std::vector<std::string> take_command(int& argc, char** argv, std::string_view subcommand);

/// Where this program lies.
std::filesystem::path program_folder();
/// Becomes another program of ours, arguments[0]: the one beside this program, else the one on PATH. Returns
/// when there is none. Throws Error when it cannot be started.
void become(std::vector<std::string> arguments);

}  // namespace penstock::cli
