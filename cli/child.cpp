#include "cli/child.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "penstock/core/error.h"

namespace penstock::cli {
namespace {

sigset_t ours() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD, SIGWINCH})
    sigaddset(&set, signal);
  return set;
}

}  // namespace

Signals::Signals() {
  const sigset_t set = ours();
  ::signal(SIGCHLD,
           SIG_DFL);  // who ignores it, as some that start programs do, never learns how a child ended
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  file_ = File(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (file_.fd() < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
}

Signals::~Signals() {
  while (wait({}).has_value()) {
  }  // what came in the meantime is of no use to anybody
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<Signal> Signals::wait(std::chrono::steady_clock::time_point until) {
  const auto left = std::max(std::chrono::nanoseconds(0),
                             std::chrono::nanoseconds(until - std::chrono::steady_clock::now()));
  const timespec time{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
  pollfd entry{.fd = file_.fd(), .events = POLLIN};
  if (::ppoll(&entry, 1, &time, nullptr) <= 0) return std::nullopt;
  signalfd_siginfo info{};
  if (::read(file_.fd(), &info, sizeof info) != sizeof info) return std::nullopt;
  return Signal{.number = static_cast<int>(info.ssi_signo), .to_all = info.ssi_code == SI_KERNEL};
}

Child::Child(const std::vector<std::string>& command, const Signals& signals, bool quiet) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  File reading(ends[0]), writing(ends[1]);
  id_ = ::fork();
  if (id_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (id_ == 0) {
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGTERM, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &signals.before(), nullptr);
    if (quiet) ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execvp(words[0], words.data());
    const int reason = errno;
    const ssize_t said = ::write(writing.fd(), &reason, sizeof reason);
    ::_exit(said > 0 ? 127 : 126);
  }
  { const File closed = std::move(writing); }
  int reason = 0;
  if (::read(reading.fd(), &reason, sizeof reason) <= 0) return;  // closed by exec: it runs
  ::waitpid(id_, nullptr, 0);
  throw Error(
      fmt::format("{}: cannot be started: {}", command.front(), std::generic_category().message(reason)));
}

std::optional<int> Child::ended() {
  int status = 0;
  if (!code_ && ::waitpid(id_, &status, WNOHANG) == id_)
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code_;
}

void Child::pass(const Signal& signal) const {
  const bool is_ours = signal.number == SIGCHLD || signal.number == SIGWINCH;
  if (!is_ours && !signal.to_all && !code_) ::kill(id_, signal.number);
}

}  // namespace penstock::cli
