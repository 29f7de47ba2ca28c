// penstock: one program, a file per subcommand.
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/run.h"

int main(int argc, char** argv) {
  using namespace penstock;
  CLI::App app{
      "Penstock feeds speech to an accelerator: a dataset on disk becomes full batches of a few fixed "
      "shapes.",
      "penstock"};
  app.set_version_flag("--version", PENSTOCK_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
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
  return cli::run(app, argc, argv, action);
}
