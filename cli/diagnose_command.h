// penstock diagnose -- COMMAND: watches a training command while it runs, and says what keeps its device
// waiting.
#pragma once
#include <string>
#include <vector>

namespace penstock::cli {

struct CommandArguments {
  std::vector<std::string> command;
  std::string source;   ///< Python sources to scan as well
  double duration = 0;  ///< s, after which the command is ended; 0: when it ends
  bool json = false;
};

/// Returns the command's exit code where that is not 0, else 1 when a problem was found. Throws Error when it
/// cannot be started.
int diagnose_command(const CommandArguments& arguments);

}  // namespace penstock::cli
