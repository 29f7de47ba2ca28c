// py-spy, for a Python process that our sampler could not get into.
#pragma once
#include <filesystem>
#include <string>

#include "cli/child.h"
#include "penstock/monitor/stacks.h"

namespace penstock::cli {

/// Looks at a process from outside until that ends: for `python -I`, `-E` and `-S`, which read no
/// sitecustomize.
class PySpy {
 public:
  /// Starts the py-spy of the process's own environment, or of PATH. `folder` is for its files.
  PySpy(int process, const std::filesystem::path& folder, const Signals& signals);

  /// Waits for what it saw; without samples where it could not look, and then `why` says why.
  StackLog finish();
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  int process_;
  std::filesystem::path recording_, output_;
  double start_;
  Child child_;
  std::string why_;
};

}  // namespace penstock::cli
