// Why a training command's device waits, from outside of it: where its main thread was, and what its
// processes and the GPUs did meanwhile. Samples in, judgement out.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/monitor/run_reader.h"
#include "penstock/monitor/stacks.h"

namespace penstock {

/// Threads of one name, in all processes of the command.
struct ThreadGroup {
  std::string name;
  std::size_t threads = 0;
  double cpus = 0;
};

/// What the command and the machine did since the sample before. Shares are 0..1, `not_logged` is not known.
struct CommandSample {
  double t = 0, seconds = 0;               ///< s since the epoch; of this sample
  double gpu = not_logged;                 ///< utilisation, mean of the GPUs that the command uses
  double cpus = 0, machine_cpu = 0;        ///< CPUs of the command; share of all that are busy
  double device_threads = not_logged;      ///< threads that compute what JAX was handed, on a CPU; at most 1
  double disk_read = 0, faults_major = 0;  ///< bytes/s, faults/s
  std::size_t processes = 0, threads = 0;
  std::vector<ThreadGroup> groups;
};

enum class Bound : std::uint8_t { healthy, input, sync, compile, launch, python, unknown };
inline constexpr std::array bound_names = {"healthy", "input",  "sync",   "compile",
                                           "launch",  "python", "unknown"};

/// A line of the user's code, and how much of the training's time the main thread was in it or below it.
struct HotLine {
  std::string file, text;
  int line = 0;
  Doing doing = Doing::python;
  double share = 0;
};

struct CommandDiagnosis {
  Bound bound = Bound::unknown;
  std::string why;           ///< why it is not known
  int process = 0;           ///< the one that trains; 0: no Python process was seen into
  std::size_t trainers = 0;  ///< processes that train
  std::size_t samples = 0;   ///< of the main thread, while it trained
  double seconds = 0, start_s = 0, training_s = 0;  ///< of the command; before it trained; while it did
  std::array<double, doing_count> shares{};         ///< of the training's time
  double late_compile = 0;     ///< share of the training's second half that went by compiling
  std::size_t compiles = 0;    ///< how often it began to compile after a step, and the first time
  double first_compile_s = 0;  ///< compiling in the first half, and before: once, as it should be
  double input_beside = 0;     ///< share in which another Python thread was making input
  std::vector<std::array<double, doing_count>> timeline;  ///< of the whole command, evenly divided
  std::vector<HotLine> lines;                             ///< the hottest first
  double main_cpu = not_logged;  ///< share of the time that the main thread was on a CPU
  double device_busy = not_logged, gpu_busy = not_logged;
  double cpus = 0, machine_cpu = 0, disk_read = 0, faults_major = 0;  ///< means while it trained
  std::size_t processes = 0, threads = 0;                             ///< at most
  std::vector<ThreadGroup> groups;                                    ///< the busiest first, while it trained
  [[nodiscard]] bool found_a_problem() const { return bound != Bound::healthy && bound != Bound::unknown; }
};

CommandDiagnosis diagnose(const std::vector<StackLog>& logs, const std::vector<CommandSample>& samples);

}  // namespace penstock
