// penstock diagnose --run: a run's log, judged.
#pragma once
#include <string>

namespace penstock::cli {

/// Prints a page, or JSON. Returns 0 when the run is healthy, else 1. Throws Error when there is no log.
int diagnose_run(const std::string& run, bool json);

}  // namespace penstock::cli
