// penstock-train: trains, checks that training never has to plan a step anew, and speaks. `penstock train`
// starts it.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/run.h"
#include "cli/terminal.h"
#include "penstock/cache/npy.h"
#include "penstock/core/file.h"
#include "penstock/synth/encode.h"
#include "train/console.h"
#include "train/graph.h"
#include "train/program.h"
#include "train/retrace.h"
#include "train/run_folder.h"
#include "train/say.h"
#include "train/trainer.h"
#include "train/voice.h"

namespace penstock::train {
namespace {

struct Arguments {
  std::vector<std::string> command_line;
  std::unique_ptr<cli::ConfigFlags> flags;
  std::string run, trace;
  bool json = false;
};

/// The same command by the program that links CUDA.
[[noreturn]] void become_cuda_trainer(std::vector<std::string> command_line) {
  command_line.front() = "penstock-train-cuda";
  cli::become(std::move(command_line));
  throw Error(fmt::format(
      "device cuda needs penstock-train-cuda, which is neither beside this program ({}) nor on PATH: it "
      "is built where the torch package has CUDA (pip install torch, then ./run build; docs/gpu.md)",
      cli::program_folder().string()));
}

/// None with --print-config. Does not come back where another program has to go on.
std::optional<LoadedSettings> load(Arguments& a) {
  std::optional<LoadedSettings> loaded = load_settings(*a.flags);
  if (loaded && loaded->config.device.starts_with("cuda") && !links_cuda())
    become_cuda_trainer(std::move(a.command_line));
  return loaded;
}

int run_train(Arguments& a) {
  const std::optional<LoadedSettings> loaded = load(a);
  if (!loaded) return 0;
  const std::filesystem::path run =
      a.run.empty() ? default_run(loaded->config) : std::filesystem::path(a.run);
  return train_and_show(*loaded, run, make_voice, a.json, a.trace);
}

void print_check(const Config& config) {
  const auto value = [&](std::string_view name) {
    for (const ConfigKey& key : config_keys())
      if (key.name == name) return key.get(config);
    return std::string();
  };
  fmt::print("Static shapes (pad_to_fixed_length): {}\n", config.pad_to_fixed_length ? "True" : "False");
  fmt::print("Shapes: {}\nBatch size: {}\nRemainder: {}\n", value("shapes"), value("batch_size"),
             value("remainder"));
  if (config.shapes == 0)
    fmt::print(
        "  shapes dynamic gives every batch a shape of its own: expect a retrace for nearly each of them\n");
}

void print_step(const RetraceStep& s) {
  fmt::print("step {:>4}  {:<18} loss {:>10.5f}  {:>9.1f} ms{}\n", s.number, shape_text(s.shape), s.loss,
             s.ms, s.retrace ? "  RETRACE" : "");
}

void print_findings(const RetraceFindings& found) {
  std::map<Shape, std::int64_t> shapes;
  for (const RetraceStep& s : found.steps) ++shapes[s.shape];
  fmt::print("Shapes of {} batches:\n", found.steps.size());
  for (const auto& [shape, count] : shapes) fmt::print("  {:<18} {}x\n", shape_text(shape), count);
  fmt::print("Step time: {:.1f} ± {:.1f} ms\n", found.mean_ms, found.std_ms);
  for (const RetraceStep& s : found.steps)
    if (s.retrace) fmt::print("  step {}: {}\n", s.number, retrace_text(*s.retrace));
  const std::int64_t retraces = found.retraces();
  if (retraces == 0)
    fmt::print("OK: no retraces in {}\n",
               cli::count_text(static_cast<std::int64_t>(found.steps.size()), "step"));
  else
    fmt::print("PROBLEM: {} in {}; use a few fixed shapes (--shapes 4)\n",
               cli::count_text(retraces, "retrace"),
               cli::count_text(static_cast<std::int64_t>(found.steps.size()), "step"));
}

int run_retrace(Arguments& a) {
  const std::optional<LoadedSettings> loaded = load(a);
  if (!loaded) return 0;
  Opening opening;
  RetraceJob job{.config = loaded->config,
                 .make_model = make_voice,
                 .open = opening.options,
                 .signal = cli::interrupt_signal};
  if (!a.json) {
    print_check(loaded->config);
    job.warmed_up = [](const std::vector<Shape>& planned, double seconds) {
      fmt::print("Planned in {:.1f} s:", seconds);
      for (const Shape& shape : planned) fmt::print(" {}", shape_text(shape));
      fmt::print("\n");
    };
    job.step = print_step;
  }
  const RetraceFindings found = retrace(job);
  if (a.json)
    cli::print_json(findings_json(found));
  else
    print_findings(found);
  if (found.signal != 0) return by_signal + found.signal;
  return found.retraces() > 0 ? found_a_problem : 0;
}

struct SayArguments {
  SayOptions options;
  std::string checkpoint, reference, output = "out.wav", save_mel;
  bool json = false;
};

Sound sound_of(const Speech& speech) {
  Sound sound{.sample_rate = speech.sample_rate};
  for (const float x : speech.audio)
    sound.samples.push_back(static_cast<std::int16_t>(std::lround(std::clamp(x, -1.0f, 1.0f) * 32767)));
  return sound;
}

int run_say(SayArguments& a) {
  a.options.checkpoint = a.checkpoint;
  if (!a.reference.empty()) a.options.reference = a.reference;
  const Speech speech = say(a.options);
  const Sound sound = sound_of(speech);
  write_file(a.output, encode(sound, "wav"));
  if (!a.save_mel.empty())
    write_npy(a.save_mel, NpyType::float32, std::array{speech.frames, speech.bins},
              std::as_bytes(std::span(speech.mel)));
  if (a.json)
    cli::print_json({{"output", a.output},
                     {"seconds", sound.seconds()},
                     {"frames", speech.frames},
                     {"ended", speech.ended},
                     {"averaged", speech.averaged}});
  else
    fmt::print("{}: {:.2f} s, {} frames{}\n", a.output, sound.seconds(), speech.frames,
               speech.ended ? "" : "; cut off, as the model did not find the end (--most-seconds)");
  return 0;
}

void add_say(const cli::Command& app, cli::Action& action) {
  auto a = std::make_shared<SayArguments>();
  const cli::Command c = app.add_command("say", "a WAV from a trained checkpoint");
  c.add_option("CHECKPOINT", a->checkpoint, "a run's folder, or one of its checkpoints").required();
  c.add_option("TEXT", a->options.text, "what to say").required();
  c.add_option("-o,--output", a->output, "the WAV file").show_default().type_name("FILE");
  c.add_option("--reference", a->reference, "a clip with the voice and style that are wanted")
      .type_name("FILE");
  c.add_option("--save-mel", a->save_mel, "the mel too, as .npy [frames, bins]").type_name("FILE");
  c.add_option("--most-seconds", a->options.most_seconds, "where to cut off what does not end")
      .show_default()
      .range(0.1, 600.0);
  c.add_flag("--json", a->json, "the result for programs");
  c.footer(
      "Examples:\n  penstock say runs/en-nano \"Good morning.\" -o morning.wav\n"
      "  penstock say runs/en-nano \"Good morning.\" --reference data/en/wavs/s01-000003.wav");
  c.runs(action, [a] { return run_say(*a); });
}

void add_train(const cli::Command& app, cli::Action& action, const std::vector<std::string>& command_line) {
  auto a = std::make_shared<Arguments>(command_line);
  const cli::Command c = app.add_command("train", "train a voice; goes on by itself where a run was stopped");
  c.add_option("--run", a->run, "the run's folder (default: runs/<dataset>-<size>)").type_name("RUN");
  c.add_option("--trace", a->trace, "a timeline of workers, slots, copies and steps, for ui.perfetto.dev")
      .type_name("FILE");
  c.add_flag("--json", a->json, "the result for programs");
  a->flags = std::make_unique<cli::ConfigFlags>(c, std::vector<std::string>{}, true);
  c.footer(
      "Ctrl-C finishes the step and saves; the same command goes on from there.\nExamples:\n"
      "  penstock train data/en --steps 2000 --batch-size 16\n"
      "  penstock train data/en --run runs/first --config configs/rtx4090.yaml --device cuda --precision "
      "bf16");
  c.runs(action, [a] { return run_train(*a); });
}

void add_retrace(const cli::Command& app, cli::Action& action, const std::vector<std::string>& command_line) {
  auto a = std::make_shared<Arguments>(command_line);
  const cli::Command c =
      app.add_command("retrace", "a few real steps: does every batch find its step planned?");
  c.add_flag("--json", a->json, "the findings for programs");
  a->flags = std::make_unique<cli::ConfigFlags>(c, std::vector<std::string>{}, true);
  c.footer(
      "Exit code 1 on a retrace.\nExamples:\n  penstock retrace data/en --steps 10\n"
      "  penstock retrace data/en --config my.yaml --shapes dynamic\n"
      "  penstock retrace --python train.py:main         a Python loop (--python FILE --help)");
  c.runs(action, [a] { return run_retrace(*a); });
}

}  // namespace
}  // namespace penstock::train

int main(int argc, char** argv) {
  using namespace penstock;
  cli::Program program("Trains on what Penstock feeds.", "penstock-train");
  const cli::Command app = program.command();
  app.require_command();
  cli::Action action;
  const std::vector<std::string> command_line(argv, argv + argc);
  train::add_train(app, action, command_line);
  train::add_retrace(app, action, command_line);
  train::add_say(app, action);
  return program.run(argc, argv, action);
}
