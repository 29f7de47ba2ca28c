// penstock diagnose: why a device starves. Of a dataset, whose feed is run; of a run, from its log; of any
// training command, by watching it.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/diagnose_command.h"
#include "cli/diagnose_dataset.h"
#include "cli/diagnose_run.h"
#include "penstock/core/error.h"

namespace penstock::cli {
namespace {

struct DiagnoseArguments {
  Command command;
  std::unique_ptr<ConfigFlags> flags;
  DatasetArguments dataset;
  std::string run;
  CommandArguments wrap;
  bool json = false;
};

/// Three questions, one at a time: what belongs to another one is refused.
void refuse_others(const Command& c, const std::string& question, const std::vector<std::string>& its) {
  for (const Option& option : c.options())
    if (option.given() && option.name() != "--json" && std::ranges::find(its, option.name()) == its.end())
      throw Error(fmt::format("{} does not go with {}: ask one question at a time", option.name(), question));
}

int run_diagnose(DiagnoseArguments& a) {
  const bool command = !a.wrap.command.empty();
  if (command) refuse_others(a.command, "-- COMMAND", {"--source", "--duration"});
  if (!a.run.empty()) refuse_others(a.command, "--run", {"--run"});
  if (!command && (!a.wrap.source.empty() || a.wrap.duration > 0))
    throw Error(
        "--source and --duration belong to a command: penstock diagnose --source DIR -- python train.py");
  if (!a.run.empty()) return diagnose_run(a.run, a.json);
  if (command) {
    a.wrap.json = a.json;
    return diagnose_command(a.wrap);
  }
  if (std::ranges::none_of(a.command.options(), &Option::given))
    throw Error(
        "what shall be diagnosed? A dataset: DIR, a run: --run RUN, or a command: -- python train.py");
  a.dataset.flags = a.flags.get();
  a.dataset.json = a.json;
  return diagnose_dataset(a.dataset);
}

void add_dataset_flags(const Command& c, DatasetArguments& d) {
  c.add_option("--step-ms", d.step_ms,
               "what your device takes for a step of the largest shape; others scale with their frames")
      .show_default();
  c.add_option("--compile-ms", d.compile_ms,
               "what it takes for a shape that it has not seen (with `shapes: dynamic`)")
      .show_default();
  c.add_option("--num-batches", d.num_batches, "how many at least; it goes on for 2 s, and ends after 20")
      .show_default();
  const Option apply =
      c.add_flag("--apply", d.apply, "write the first change that a setting can make, and measure again");
  c.add_option("-o,--output", d.output, "what --apply writes").type_name("FILE").show_default().needs(apply);
  c.add_flag("--force", d.force, "overwrite it").needs(apply);
}

}  // namespace

void add_diagnose(const Command& app, Action& action, const std::vector<std::string>& command) {
  auto a = std::make_shared<DiagnoseArguments>();
  a->wrap.command = command;
  const Command c = app.add_command("diagnose", "why does my device starve, and what will fix it?");
  a->command = c;
  a->flags = std::make_unique<ConfigFlags>(c);
  add_dataset_flags(c, a->dataset);
  c.add_option("--run", a->run, "a finished or running job: judge its log").type_name("RUN");
  c.add_option("--source", a->wrap.source, "with -- COMMAND: also what penstock scan finds in these sources")
      .type_name("PATH");
  c.add_option("--duration", a->wrap.duration, "with -- COMMAND: end it after so many seconds")
      .type_name("S")
      .range(1.0, 1e9);
  c.add_flag("--json", a->json, "the result for programs");
  c.footer(
      "-- COMMAND runs any training command as it is, watches it from outside and, where it is Python, its "
      "main\n"
      "thread from inside. Its exit code is passed on.\n"
      "Ends with 0 when all is well and with 1 when something should be changed.\n\n"
      "Examples:\n  penstock diagnose data/en --step-ms 50\n"
      "  penstock diagnose data/en --config my.yaml --step-ms 50 --apply -o better.yaml\n"
      "  penstock diagnose --run runs/first\n"
      "  penstock diagnose -- python train.py --epochs 1\n"
      "  penstock diagnose --duration 60 --source src -- torchrun --nproc-per-node 2 train.py");
  c.runs(action, [a] { return run_diagnose(*a); });
}

}  // namespace penstock::cli
