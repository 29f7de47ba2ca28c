#include "cli/py_spy.h"

#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/monitor/proc_file.h"
#include "penstock/monitor/run_log.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

// $0: where what it prints goes; $1: a folder that may have it. --nonblocking: the command is never stopped.
constexpr const char* script =
    "output=$0 PATH=${1:+$1:}$PATH; shift; exec py-spy record --nonblocking --idle --threads "
    "--full-filenames "
    "--rate 20 --format speedscope \"$@\" >\"$output\" 2>&1";
constexpr int not_found = 127;  // of a shell

/// The folder that the process's own program was called from: a virtual environment's, where it has one.
std::string folder_of(int process) {
  std::string text;
  const std::string_view command =
      ProcFile(fmt::format("/proc/{}/cmdline", process)).read(text).value_or(std::string_view());
  return fs::path(command.substr(0, command.find('\0'))).parent_path().string();
}

}  // namespace

PySpy::PySpy(int process, const fs::path& folder, const Signals& signals)
    : process_(process),
      recording_(folder / "recording.json"),
      output_(folder / "py-spy.log"),
      start_(RunLog::now()),
      child_({"sh", "-c", script, output_.string(), folder_of(process), "--pid", std::to_string(process),
              "--output", recording_.string()},
             signals) {}

StackLog PySpy::finish() {
  for (int tries = 0; !child_.ended() && tries < 100; ++tries) {
    if (tries == 50) child_.pass({.number = SIGINT});  // then it writes what it has
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (!child_.ended()) child_.pass({.number = SIGKILL});
  const double end = fs::exists(recording_) ? RunLog::now() : start_;
  try {
    if (end > start_) return read_spy_recording(recording_, process_, start_, end);
  } catch (const Error& e) {  // the command has run all the same
    why_ = e.what();
    return {};
  }
  const std::string said = fs::exists(output_) ? read_text(output_) : "";
  why_ = child_.ended() == not_found ? "pip install py-spy, which looks at it from outside"
         : said.find("ermission") != std::string::npos
             ? "py-spy is not allowed to look at it: run this as root, or set kernel.yama.ptrace_scope to 0"
             : fmt::format("py-spy could not look at it: {}", said.substr(0, said.find('\n')));
  return {};
}

}  // namespace penstock::cli
