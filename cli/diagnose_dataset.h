// penstock diagnose DIR: the user's configuration, run as it is.
#pragma once
#include <cstdint>
#include <string>

#include "cli/flags.h"

namespace penstock::cli {

struct DatasetArguments {
  ConfigFlags* flags = nullptr;
  double step_ms = 0, compile_ms = 0;
  std::int64_t num_batches = 50;
  bool apply = false, force = false, json = false;
  std::string output = "penstock.yaml";  ///< what --apply writes
};

int diagnose_dataset(DatasetArguments& arguments);

}  // namespace penstock::cli
