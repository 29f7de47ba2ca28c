// A command of the user's that we watch, and the signals that are meant for it.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "penstock/core/file.h"

namespace penstock::cli {

struct Signal {
  int number = 0;
  bool to_all = false;  ///< it came from the terminal, which sent it to every process in front, our child too
};

/// While it lives, signals do not interrupt this process but are waited for: Ctrl-C and what else ends a
/// program, SIGUSR1 and SIGUSR2, Ctrl-Z, the end of a child and a terminal of another size. Made before any
/// thread is.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  /// The next one, or nothing at `until`.
  std::optional<Signal> wait(std::chrono::steady_clock::time_point until);
  /// What the process had before: a child has to be started with it.
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
  File file_;
};

/// It outlives us when we are killed.
class Child {
 public:
  /// Starts `command`. `quiet`: what it prints goes to stderr, since stdout is ours. Throws Error when it
  /// cannot be started.
  Child(const std::vector<std::string>& command, const Signals& signals, bool quiet = false);

  [[nodiscard]] pid_t id() const { return id_; }
  /// Its exit code (128 + the signal that ended it) once it has ended.
  std::optional<int> ended();
  /// Gives it a signal that came for us, unless it has it already, or it is about a child or the terminal.
  void pass(const Signal& signal) const;

 private:
  pid_t id_ = 0;
  std::optional<int> code_;
};

}  // namespace penstock::cli
