// Where the main thread of a Python training process was: what each sample was doing, told from its frames'
// files and functions. The writer is a sampler inside the process, cli/sampler/sitecustomize.py, or py-spy.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class Doing : std::uint8_t {
  start,    ///< imports, and makes the model
  input,    ///< reads, decodes or computes a batch, or waits for who does
  sync,     ///< fetches a number from the device, and so waits for it
  compile,  ///< traces or compiles a step
  compute,  ///< the step: forward, backward, update; or its hand-over to the device
  python,   ///< anything else
};
inline constexpr std::array doing_names = {"start", "input", "sync", "compile", "compute", "python"};
inline constexpr std::size_t doing_count = doing_names.size();

struct StackFrame {
  std::string file, function;
  int line = 0;
  std::string expression, text;  ///< of the user's own code: what is being evaluated, and its line
  [[nodiscard]] bool is_users() const { return !text.empty(); }
};

struct StackSample {
  double t = 0;    ///< seconds since the epoch
  double cpu = 0;  ///< seconds of CPU of the main thread so far; NaN: not known
  std::size_t stack = 0;
  bool input_beside = false;  ///< another Python thread was making input
  Doing doing = Doing::python;
};

/// One process.
struct StackLog {
  int process = 0;
  double start = 0;
  std::string command;
  std::vector<StackFrame> frames;
  std::vector<std::vector<std::size_t>> stacks;  ///< frames, the innermost first
  std::vector<StackSample> samples;
  [[nodiscard]] bool is_worker() const;  ///< of a DataLoader: it helps the one that trains
  /// The innermost frame of the user's own code; nullptr: none.
  [[nodiscard]] const StackFrame* users_frame(std::size_t stack) const;
};

/// What a stack is doing; the innermost frame comes first.
Doing doing_of(const std::vector<const StackFrame*>& stack);

/// Lines that cannot be understood, such as the half of a last one, are left out. Throws Error when there is
/// no such file.
StackLog read_stack_log(const std::filesystem::path& file);

/// What py-spy recorded of `process` in its format `speedscope`, with every thread and full file names,
/// evenly from `start` until `end`. Throws Error when there is no such file, or it is no such recording.
StackLog read_spy_recording(const std::filesystem::path& file, int process, double start, double end);

}  // namespace penstock
