// A run's folder: RUN/config.yaml, symbols.txt, log.jsonl and checkpoints/. What of it a resumed run finds,
// and what must be the same for it to go on. Knows no torch.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "penstock/core/config.h"
#include "penstock/core/file.h"
#include "penstock/feed/dataset.h"

namespace penstock::train {

/// runs/<dataset>-<size>, the dataset by its folder's name.
std::filesystem::path default_run(const Config& config);

/// The folder, made where there is none, for one process at a time: as long as this lives another one gets an
/// Error that says so. A killed process leaves no lock behind.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& run);

 private:
  File file_;
};

/// Cuts off RUN/log.jsonl behind the last line of an update up to `step`, and a torn last line with it: what
/// was logged behind the checkpoint will be logged again. Throws Error naming the path.
void cut_log(const std::filesystem::path& run, std::int64_t step);

/// What makes a mel; which token means what; which utterances make which batch: keys and values, as JSON text
/// for a checkpoint. Two with the same text are the same.
std::string mel_keys(const Config& config);
std::string symbol_keys(const Config& config, const Dataset& dataset);
std::string order_keys(const Config& config);

/// One line for each key that differs in two such texts: `n_mels: 80 in the run, 100 now`.
std::vector<std::string> differences(const std::string& run, const std::string& now);

}  // namespace penstock::train
