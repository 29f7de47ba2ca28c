// penstock train, retrace, say: run by `penstock-train`, which knows LibTorch, as this program does not.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/run.h"
#include "penstock/core/error.h"

namespace penstock::cli {
void add_train(CLI::App& app, Action& action) {
  for (const auto& [name, help] :
       {std::pair("train", "train a voice; goes on by itself where a run was stopped"),
        std::pair("retrace", "a few real steps: does every batch find its step planned?"),
        std::pair("say", "a WAV from a trained checkpoint")}) {
    CLI::App* c = app.add_subcommand(name, help);
    c->set_help_flag();  // the trainer's own
    c->prefix_command();
    c->callback([c, &action] {
      action = [c]() -> int {
        std::vector<std::string> arguments = {"penstock-train", c->get_name()};
        for (std::string& argument : c->remaining()) arguments.push_back(std::move(argument));
        become(std::move(arguments));
        throw Error(fmt::format(
            "penstock-train is neither beside this program ({}) nor on PATH: it is built where the torch "
            "package is: pip install torch, then ./run build (or cmake -DPENSTOCK_TORCH=<the package's "
            "folder>)",
            program_folder().string()));
      };
    });
  }
}

}  // namespace penstock::cli
