// ctc DIR --run RUN --steps N: trains the recogniser with the trainer of `penstock train`, and shows what it
// hears of the clips that were held out.
#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/run.h"
#include "examples/ctc/hearing.h"
#include "examples/ctc/recogniser.h"
#include "penstock/core/error.h"
#include "penstock/feed/feed.h"
#include "train/program.h"

namespace penstock::train {
namespace {

constexpr int shown_clips = 4;

RecogniserOptions options_for(const Config& config, const Dataset& dataset) {
  if (config.add_blank)
    throw Error("add_blank must be false for a recogniser, but is true: CTC has blanks of its own");
  const MelRange range = mel_range(config.mel);
  return {.n_symbols = dataset.symbols.size(),
          .bins = config.mel.n_mels,
          .mel_mean = range.mean,
          .mel_std = range.deviation};
}

/// Without BOS and EOS, which are easily heard.
Tokens characters(std::span<const std::int32_t> tokens) {
  Tokens kept;
  std::ranges::copy_if(tokens, std::back_inserter(kept),
                       [](std::int32_t token) { return token >= SymbolTable::first_character; });
  return kept;
}

/// A few clips of the validation split (of all, where nothing is held out), and the error rate over it.
void show_hearing(Config config, Recogniser& model) {
  config.split = Split::val;
  config.remainder = RemainderRule::pad;  // every clip once
  if (admitted(open_dataset(config).lengths, config).empty()) config.split = Split::all;
  Feed feed(config);
  model.to(torch::kCPU);
  model.eval();
  std::int64_t errors = 0, tokens = 0, clips = 0;
  for (std::int64_t i = 0; i < feed.plan().steps_per_epoch(); ++i) {
    const Batch batch = feed.next();
    const Shape& shape = batch.shape;
    const auto tensor = [](const auto& span, const std::vector<std::int64_t>& sizes, torch::ScalarType type) {
      return torch::from_blob(const_cast<void*>(static_cast<const void*>(span.data())), sizes, type);
    };
    const std::vector<Tokens> heard =
        hear(model, tensor(batch.mel, {shape.rows, shape.frames, batch.bins}, torch::kFloat),
             tensor(batch.mel_lengths, {shape.rows}, torch::kInt));
    for (std::size_t row = 0; row < heard.size(); ++row) {
      if (batch.utterances[row] < 0) continue;
      const auto all = batch.tokens.subspan(row * static_cast<std::size_t>(shape.tokens),
                                            static_cast<std::size_t>(batch.token_lengths[row]));
      const Tokens said = characters(all), got = characters(heard[row]);
      errors += edit_distance(said, got);
      tokens += static_cast<std::int64_t>(said.size());
      if (clips++ >= shown_clips) continue;
      const Dataset& dataset = feed.dataset();
      fmt::print("{}\n  said   {}\n  heard  {}\n", dataset.index.utterance(batch.utterances[row]).id,
                 dataset.symbols.text(said), dataset.symbols.text(got));
    }
  }
  fmt::print("token error rate {:.3f} over {} clips ({})\n",
             static_cast<double>(errors) / static_cast<double>(std::max<std::int64_t>(tokens, 1)), clips,
             config.split == Split::val ? "held out" : "all that there are; none is held out");
}

int run(cli::ConfigFlags& flags, const std::string& run_folder) {
  const std::optional<LoadedSettings> loaded = load_settings(flags);
  if (!loaded) return 0;
  std::shared_ptr<Recogniser> model;
  const int code = train_and_show(
      *loaded, run_folder,
      [&](const Config& config, const Dataset& dataset) {
        model = std::make_shared<Recogniser>(options_for(config, dataset));
        return model;
      },
      false);
  if (code == 0) show_hearing(loaded->config, *model);
  return code;
}

}  // namespace
}  // namespace penstock::train

int main(int argc, char** argv) {
  using namespace penstock;
  cli::Program program("Trains a small speech recogniser on what Penstock feeds.", "ctc");
  const cli::Command app = program.command();
  std::string run;
  app.add_option("--run", run, "the run's folder").type_name("RUN").required();
  cli::ConfigFlags flags(app, {"model_size"}, true);
  app.footer("Examples:\n  ctc data/en --run runs/ctc --steps 2000");
  return program.run(argc, argv, [&] { return train::run(flags, run); });
}
