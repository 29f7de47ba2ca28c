// penstock train, retrace, say: run by `penstock-train`, which knows LibTorch, as this program does not.
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/commands.h"
#include "penstock/core/error.h"

namespace penstock::cli {
namespace {

/// Becomes penstock-train: the one beside this program, else the one on PATH.
int become_trainer(std::vector<std::string> arguments) {
  std::error_code none;
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe", none).parent_path() / "penstock-train";
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(beside.c_str(), argv.data());
  if (errno == ENOENT) ::execvp("penstock-train", argv.data());
  if (errno == ENOENT)
    throw Error(
        fmt::format("penstock-train is neither beside this program ({}) nor on PATH: it is built where the "
                    "torch package is: "
                    "pip install torch, then ./run build (or cmake -DPENSTOCK_TORCH=<the package's folder>)",
                    beside.parent_path().string()));
  throw Error(fmt::format("penstock-train: cannot be started: {}", std::generic_category().message(errno)));
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  for (const auto& [name, help] :
       {std::pair("train", "train a voice; goes on by itself where a run was stopped"),
        std::pair("retrace", "a few real steps: does every batch find its step planned?"),
        std::pair("say", "a WAV from a trained checkpoint")}) {
    CLI::App* c = app.add_subcommand(name, help);
    c->set_help_flag();  // the trainer's own
    c->prefix_command();
    c->callback([c, &action] {
      action = [c] {
        std::vector<std::string> arguments = {"penstock-train", c->get_name()};
        for (std::string& argument : c->remaining()) arguments.push_back(std::move(argument));
        return become_trainer(std::move(arguments));
      };
    });
  }
}

}  // namespace penstock::cli
