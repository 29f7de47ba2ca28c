// penstock diagnose: why a device starves. Of a dataset, whose feed is run; or of a run, from its log.
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/diagnose_dataset.h"
#include "cli/diagnose_run.h"
#include "penstock/core/error.h"

namespace penstock::cli {
namespace {

struct Arguments {
  std::unique_ptr<ConfigFlags> flags;
  DatasetArguments dataset;
  std::string run;
  std::vector<std::string> command;
  bool json = false;
};

int run(Arguments& a) {
  if (!a.run.empty()) return diagnose_run(a.run, a.json);
  a.dataset.flags = a.flags.get();
  a.dataset.json = a.json;
  return diagnose_dataset(a.dataset);
}

void add_dataset_flags(CLI::App& c, DatasetArguments& d) {
  c.add_option("--step-ms", d.step_ms,
               "what your device takes for a step of the largest shape; others scale with their frames")
      ->capture_default_str();
  c.add_option("--compile-ms", d.compile_ms,
               "what it takes for a shape that it has not seen (with `shapes: dynamic`)")
      ->capture_default_str();
  c.add_option("--num-batches", d.num_batches, "how many at least; it goes on for 2 s, and ends after 20")
      ->capture_default_str();
  c.add_flag("--apply", d.apply, "write the first change that a setting can make, and measure again");
  c.add_option("-o,--output", d.output, "what --apply writes")->type_name("FILE")->capture_default_str();
  c.add_flag("--force", d.force, "overwrite it");
}

}  // namespace

void add_diagnose(CLI::App& app, Action& action, const std::vector<std::string>& command) {
  auto a = std::make_shared<Arguments>();
  a->command = command;
  CLI::App* c = app.add_subcommand("diagnose", "why does my device starve, and what will fix it?");
  a->flags = std::make_unique<ConfigFlags>(*c);
  add_dataset_flags(*c, a->dataset);
  c->add_option("--run", a->run, "a finished or running job: judge its log")->type_name("RUN");
  c->add_flag("--json", a->json, "the result for programs");
  c->footer(
      "Ends with 0 when all is well and with 1 when something should be changed.\n\n"
      "Examples:\n  penstock diagnose data/en --step-ms 50\n"
      "  penstock diagnose data/en --config my.yaml --step-ms 50 --apply -o better.yaml\n"
      "  penstock diagnose --run runs/first");
  c->callback([a, &action] { action = [a] { return run(*a); }; });
}

}  // namespace penstock::cli
