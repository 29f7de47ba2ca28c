#include "train/program.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "train/console.h"
#include "train/levels.h"

namespace penstock::train {

std::optional<LoadedSettings> load_settings(cli::ConfigFlags& flags) {
  const OptimizationLevel level = flags.collect().config().train.optimization_level;
  for (const auto& [key, value] : level_settings(level))
    flags.set_default(key, value, fmt::format("configs/levels/{}.yaml", level_name(level)));
  LoadedSettings loaded;
  if (!flags.load(loaded.config)) return std::nullopt;
  loaded.text = flags.collect().print(true);
  return loaded;
}

int train_and_show(const LoadedSettings& settings, const std::filesystem::path& run,
                   const ModelMaker& make_model, bool json, const std::filesystem::path& trace) {
  Opening opening;
  Console console;
  if (!json) console.note(fmt::format("run {}", run.string()));
  const auto timeline = trace.empty() ? nullptr : std::make_shared<Trace>();
  const TrainResult result = train({.config = settings.config,
                                    .run = run,
                                    .config_text = settings.text,
                                    .make_model = make_model,
                                    .open = opening.options,
                                    .trace = timeline,
                                    .view = json ? TrainView{} : console.view(),
                                    .signal = cli::interrupt_signal});
  console.clear();
  if (timeline) timeline->write(trace);
  if (json) cli::print_json(result_json(result, run.string()));
  if (result.signal != 0) {
    fmt::print(stderr, "interrupted: step {} is saved in {}\n", result.summary.step, run.string());
    return by_signal + result.signal;
  }
  if (result.not_finite.empty()) return 0;
  fmt::print(stderr, "{}\n", result.not_finite);
  return found_a_problem;
}

}  // namespace penstock::train
