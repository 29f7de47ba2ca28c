// penstock: one program, a file per subcommand.
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/run.h"

int main(int argc, char** argv) {
  using namespace penstock;
  cli::Program program(
      "Penstock feeds speech to an accelerator: a dataset on disk becomes full batches of a few fixed "
      "shapes.",
      "penstock", PENSTOCK_VERSION);
  const cli::Command app = program.command();
  app.require_command();
  cli::Action action;
  cli::add_synth(app, action);
  cli::add_info(app, action);
  cli::add_cache(app, action);
  cli::add_bench(app, action);
  cli::add_tune(app, action);
  cli::add_diagnose(app, action, cli::take_command(argc, argv, "diagnose"));
  cli::add_monitor(app, action, cli::take_command(argc, argv, "monitor"));
  cli::add_report(app, action);
  cli::add_train(app, action);
  cli::add_scan(app, action);
  return program.run(argc, argv, action);
}
