// What programs that train share: settings from flags, a dataset that is opened, and a run that is shown.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "cli/flags.h"
#include "cli/terminal.h"
#include "train/trainer.h"

namespace penstock::train {

/// Exit codes; a signal's number is added to the last.
inline constexpr int found_a_problem = 1, by_signal = 128;

struct LoadedSettings {
  Config config;
  std::string text;  ///< of RUN/config.yaml
};
/// File and flags, with the level's settings where neither says anything. None with --print-config.
std::optional<LoadedSettings> load_settings(cli::ConfigFlags& flags);

/// Bars while the dataset is opened; a signal there ends the program, as nothing has begun.
struct Opening {
  cli::ProgressBar indexing{"indexing"}, building{"caching"};
  OpenOptions options{
      .progress = [this](std::size_t done, std::size_t total) { indexing.update(done, total); },
      .building =
          [this](std::size_t done, std::size_t total, std::uint64_t bytes) {
            indexing.clear();
            building.update(done, total, bytes);
          }};
};

/// train(), with lines on the console, or with `json` its result alone. Returns the exit code.
/// `trace`: a file for the timeline; empty: none.
int train_and_show(const LoadedSettings& settings, const std::filesystem::path& run,
                   const ModelMaker& make_model, bool json, const std::filesystem::path& trace = {});

}  // namespace penstock::train
