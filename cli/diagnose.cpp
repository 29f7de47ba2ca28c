// penstock diagnose: why a device starves. Of a run, from its log.
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/diagnose_run.h"
#include "penstock/core/error.h"

namespace penstock::cli {
namespace {

struct Arguments {
  std::string run;
  std::vector<std::string> command;
  bool json = false;
};

int run(Arguments& a) {
  if (!a.run.empty()) return diagnose_run(a.run, a.json);
  throw Error("what shall be diagnosed? A run: --run RUN");
}

}  // namespace

void add_diagnose(CLI::App& app, Action& action, const std::vector<std::string>& command) {
  auto a = std::make_shared<Arguments>();
  a->command = command;
  CLI::App* c = app.add_subcommand("diagnose", "why does my device starve, and what will fix it?");
  c->add_option("--run", a->run, "a finished or running job: judge its log")->type_name("RUN");
  c->add_flag("--json", a->json, "the result for programs");
  c->footer(
      "Ends with 0 when all is well and with 1 when something should be changed.\n\n"
      "Examples:\n  penstock diagnose --run runs/first\n  penstock diagnose --run runs/first --json");
  c->callback([a, &action] { action = [a] { return run(*a); }; });
}

}  // namespace penstock::cli
