// penstock train, retrace, say: run by `penstock-train`, which knows LibTorch, as this program does not; the
// retraces of a Python loop are found by Python.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/run.h"
#include "penstock/core/error.h"

namespace penstock::cli {
namespace {

bool is_of_python(const std::vector<std::string>& arguments) {
  return std::ranges::any_of(
      arguments, [](const std::string& a) { return a == "--python" || a.starts_with("--python="); });
}

/// penstock.retrace by the Python that started this program, else by the one on PATH. A build folder brings
/// its package.
[[noreturn]] void become_retrace_of_python(const std::vector<std::string>& arguments) {
  const char* python = std::getenv("PENSTOCK_PYTHON");
  std::vector<std::string> words = {python != nullptr ? python : "python3", "-m", "penstock.retrace"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::filesystem::path package = program_folder() / "python";
  if (exists(package / "penstock")) {
    const char* given = std::getenv("PYTHONPATH");
    ::setenv("PYTHONPATH",
             fmt::format("{}{}{}", package.string(), given ? ":" : "", given ? given : "").c_str(), 1);
  }
  become(std::move(words));
  throw Error("python3 is not on PATH: --python needs the Python that your training loop runs with");
}

}  // namespace

void add_train(const Command& app, Action& action) {
  for (const auto& [name, help] :
       {std::pair("train", "train a voice; goes on by itself where a run was stopped"),
        std::pair("retrace", "a few real steps: does every batch find its step planned?"),
        std::pair("say", "a WAV from a trained checkpoint")}) {
    const Command c = app.add_command(name, help);
    c.take_everything();  // the trainer has a --help of its own
    c.runs(action, [c, name = std::string(name)]() -> int {
      if (name == "retrace" && is_of_python(c.everything())) become_retrace_of_python(c.everything());
      std::vector<std::string> arguments = {"penstock-train", name};
      for (std::string& argument : c.everything()) arguments.push_back(std::move(argument));
      become(std::move(arguments));
      throw Error(fmt::format(
          "penstock-train is neither beside this program ({}) nor on PATH: it is built where the torch "
          "package is: pip install torch, then ./run build (or cmake -DPENSTOCK_TORCH=<the package's "
          "folder>)",
          program_folder().string()));
    });
  }
}

}  // namespace penstock::cli
