// penstock synth: a spoken test dataset.
#include "penstock/synth/synth.h"

#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "penstock/core/threads.h"

namespace penstock::cli {
namespace {

struct SynthArguments {
  std::string folder;
  SynthOptions options;
  bool json = false;
};

int run_synth(SynthArguments& a) {
  ProgressBar progress("speaking");
  a.options.threads = available_cpus();
  a.options.progress = [&](std::size_t done, std::size_t total) { progress.update(done, total); };
  const SynthResult r = synthesize(a.folder, a.options);
  progress.clear();
  if (a.json)
    fmt::print("{}\n",
               nlohmann::json{
                   {"clips", r.clips},
                   {"hours", r.hours},
                   {"seconds", {{"min", r.min_seconds}, {"mean", r.mean_seconds}, {"max", r.max_seconds}}}}
                   .dump(2));
  else
    fmt::print("{}: {} clips, {:.2f} hours, {:.1f} to {:.1f} s, mean {:.1f} s\n", a.folder, r.clips, r.hours,
               r.min_seconds, r.max_seconds, r.mean_seconds);
  return 0;
}

}  // namespace

void add_synth(const Command& app, Action& action) {
  auto a = std::make_shared<SynthArguments>();
  const Command c = app.add_command("synth", "make a spoken test dataset in LJSpeech layout");
  c.add_option("DIR", a->folder, "the folder to make").required();
  c.add_option("--clips", a->options.clips, "how many").show_default();
  c.add_option("--seed", a->options.seed, "the same seed gives the same bytes").show_default();
  c.add_option("--voice", a->options.voice, "an espeak-ng voice (en, fa, ...), or tone: needs no espeak-ng")
      .show_default();
  c.add_option("--speakers", a->options.speakers, "how many voices").show_default();
  c.add_option("--format", a->options.format, "wav, flac, ogg or mp3").show_default();
  c.add_option("--sample-rate", a->options.sample_rate, "Hz").show_default();
  c.add_flag("--json", a->json, "the result for programs");
  c.footer(
      "Examples:\n  penstock synth data/en --clips 1000\n  penstock synth data/fa --voice fa --speakers 4 "
      "--format flac");
  c.runs(action, [a] { return run_synth(*a); });
}

}  // namespace penstock::cli
