#include "penstock/synth/espeak.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "WAV is read as it lies in memory");

/// How espeak-ng is started: its standard output into a pipe, nothing else of ours. A process group of its
/// own keeps Ctrl-C from it: the caller decides what an interrupt means.
class SpawnSetup {
 public:
  explicit SpawnSetup(int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  pid_t spawn(std::vector<std::string> arguments) {
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t pid = 0;
    const int code = posix_spawnp(&pid, argv[0], &actions_, &attributes_, argv.data(), environ);
    if (code == ENOENT)
      throw Error(
          "espeak-ng was not found: install it (Debian: apt-get install espeak-ng), or use --voice tone");
    if (code != 0) throw Error(fmt::format("espeak-ng cannot be started: {}", std::strerror(code)));
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

/// A process that is always waited for.
struct Child {
  pid_t pid = 0;

  /// Its status, as waitpid gives it.
  int wait() {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    pid = 0;
    return status;
  }
  ~Child() {
    if (pid != 0) wait();
  }
};

struct Outcome {
  std::string output;
  int status = 0;
};

std::string read_to_end(int fd) {
  std::string all;
  std::array<char, 65536> block;
  for (ssize_t n; (n = ::read(fd, block.data(), block.size())) != 0;) {
    if (n > 0) all.append(block.data(), static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR)
      throw Error(fmt::format("espeak-ng: its output cannot be read: {}", std::strerror(errno)));
  }
  return all;
}

Outcome run(std::vector<std::string> arguments) {
  Child child;  // outlives the pipe: a child that we no longer read from then ends by itself
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(fmt::format("espeak-ng cannot be started: {}", std::strerror(errno)));
  const File reading(ends[0]);
  File writing(ends[1]);
  child.pid = SpawnSetup(writing.fd()).spawn(std::move(arguments));
  { const File closed_now = std::move(writing); }
  std::string output = read_to_end(reading.fd());
  return {.output = std::move(output), .status = child.wait()};
}

Outcome run_espeak(const Voice& voice, const std::string& text) {
  const char* const amplitude = "60";  // of 200; at the default of 100 some voices reach full scale
  const char* const utf8 = "1";        // whatever the locale is
  return run({"espeak-ng", "-v", voice.name, "-s", std::to_string(voice.speed), "-p",
              std::to_string(voice.pitch), "-a", amplitude, "-b", utf8, "--stdout", text});
}

template <typename T>
T little(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// espeak-ng cannot seek back in a pipe, so the sizes in its header are larger than the file: the data goes
/// to the end.
Sound parse_wav(std::string_view wav) {
  const Error damaged("espeak-ng: its output is not mono PCM 16 WAV");
  if (wav.size() < 12 || wav.substr(0, 4) != "RIFF" || wav.substr(8, 4) != "WAVE") throw damaged;
  Sound sound;
  bool format_seen = false;
  for (std::size_t at = 12; at + 8 <= wav.size();) {
    const auto id = wav.substr(at, 4);
    const std::size_t size = little<std::uint32_t>(wav, at + 4);
    const auto body = wav.substr(at + 8, size);
    if (id == "fmt ") {
      format_seen = body.size() >= 16 && little<std::uint16_t>(body, 0) == 1 &&
                    little<std::uint16_t>(body, 2) == 1 && little<std::uint16_t>(body, 14) == 16;
      if (!format_seen) throw damaged;
      sound.sample_rate = little<std::int32_t>(body, 4);
    } else if (id == "data") {
      sound.samples.resize(body.size() / 2);
      std::memcpy(sound.samples.data(), body.data(), sound.samples.size() * 2);
      break;
    }
    at += 8 + size + size % 2;
  }
  if (!format_seen || sound.sample_rate <= 0) throw damaged;
  return sound;
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                             : fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

void check_voice(const std::string& name) {
  const Outcome outcome = run_espeak({.name = name}, "a");
  if (name.empty() || outcome.status != 0 || outcome.output.empty())
    throw Error(
        fmt::format("espeak-ng has no voice '{}': `espeak-ng --voices` lists those it has (column Language), "
                    "and `tone` needs none",
                    name));
}

Sound speak(const Voice& voice, const std::string& text) {
  const Outcome outcome = run_espeak(voice, text);
  if (outcome.status != 0)
    throw Error(
        fmt::format("espeak-ng {} on voice '{}', text '{}'", how_it_ended(outcome.status), voice.name, text));
  return parse_wav(outcome.output);
}

}  // namespace penstock
