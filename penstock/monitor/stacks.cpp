#include "penstock/monitor/stacks.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/monitor/run_reader.h"

namespace penstock {
namespace {

using Words = std::span<const std::string_view>;

bool has(std::string_view text, Words words) {
  return std::ranges::any_of(words,
                             [&](std::string_view w) { return text.find(w) != std::string_view::npos; });
}

/// A file's part and, where it is given, the function.
struct Mark {
  std::string_view file, function = {};
  [[nodiscard]] bool matches(const StackFrame& f) const {
    return f.file.find(file) != std::string::npos && (function.empty() || f.function == function);
  }
};

/// A module that is being imported does not do what its functions do.
bool marked(const StackFrame& frame, std::span<const Mark> marks) {
  return frame.function != "<module>" &&
         std::ranges::any_of(marks, [&](const Mark& mark) { return mark.matches(frame); });
}

constexpr Mark compile_marks[] = {
    {"/torch/_dynamo/convert_frame.py"},
    {"/torch/_dynamo/symbolic_convert.py"},
    {"/torch/_inductor/compile_fx.py"},
    {"/torch/jit/_trace.py"},
    {"/torch/jit/_script.py"},
    {"/tracing_compilation.py", "_create_concrete_function"},
    {"/polymorphic_function.py", "_initialize"},
    {"/tensorflow/python/framework/func_graph.py", "func_graph_from_py_func"},
    {"/tensorflow/python/autograph/pyct/"},
    {"/jax/_src/compiler.py"},
    {"/jax/_src/pjit.py", "_infer_params"},
    {"/jax/_src/pjit.py", "_infer_params_impl"},
    {"/jax/_src/pjit.py", "_create_pjit_jaxpr"},
    {"/jax/_src/pjit.py", "_pjit_call_impl_python"},
    {"/jax/_src/interpreters/mlir.py"},
    {"/jax/_src/interpreters/pxla.py", "lower_sharding_computation"},
    {"/jax/_src/interpreters/partial_eval.py"},
};

/// Whoever is in one of these makes a batch, or waits for one.
constexpr Mark input_marks[] = {
    {"/torch/utils/data/"},
    {"/torchdata/"},
    {"/tensorflow/python/data/ops/iterator_ops.py", "__next__"},
    {"/tensorflow/python/data/ops/iterator_ops.py", "get_next"},
    {"/tensorflow/python/data/ops/from_generator_op.py"},
    {"/tensorflow/python/ops/script_ops.py"},
    {"/keras/src/trainers/data_adapters/"},
    {"/penstock/feed.py"},
    {"/penstock/torch.py"},
    {"/penstock/jax.py"},
    {"/penstock/tf.py"},
    {"/librosa/"},
    {"/soundfile.py"},
    {"/audioread/"},
    {"/torchaudio/"},
    {"/torchcodec/"},
    {"/lhotse/"},
    {"/grain/"},
    {"/datasets/arrow_dataset.py"},
    {"/datasets/iterable_dataset.py"},
    {"/webdataset/"},
    {"/scipy/io/"},
    {"/scipy/signal/"},
    {"/scipy/fft/"},
    {"/pandas/"},
    {"/PIL/"},
    {"/wave.py"},
};

constexpr Mark sync_marks[] = {
    {"/torch/cuda/__init__.py", "synchronize"},
    {"/torch/cuda/streams.py", "synchronize"},
    {"/torch/_tensor.py", "__format__"},
    {"/torch/_tensor.py", "__array__"},
    {"/torch/_tensor.py", "tolist"},
    {"/torch/_tensor_str.py"},
    {"/tensorflow/python/framework/ops.py", "numpy"},
    {"/tensorflow/python/framework/ops.py", "_numpy"},
    {"/tensorflow/python/framework/ops.py", "__float__"},
    {"/tensorflow/python/framework/ops.py", "__int__"},
    {"/tensorflow/python/framework/ops.py", "__bool__"},
    {"/tensorflow/python/framework/ops.py", "__array__"},
    {"/tensorflow/python/eager/context.py", "async_wait"},
    {"/jax/_src/array.py", "_value"},
    {"/jax/_src/array.py", "block_until_ready"},
    {"/jax/_src/array.py", "__float__"},
    {"/jax/_src/array.py", "__int__"},
    {"/jax/_src/array.py", "__bool__"},
    {"/jax/_src/array.py", "__array__"},
    {"/jax/_src/array.py", "item"},
    {"/jax/_src/array.py", "tolist"},
    {"/jax/_src/api.py", "block_until_ready"},
    {"/jax/_src/api.py", "device_get"},
};

constexpr Mark compute_marks[] = {
    {"/torch/nn/"},
    {"/torch/optim/"},
    {"/torch/autograd/"},
    {"/torch/_tensor.py", "backward"},
    {"/torch/_functorch/"},
    {"/torch/amp/"},
    {"/tensorflow/python/eager/polymorphic_function/"},
    {"/tensorflow/python/eager/backprop.py"},
    {"/keras/src/layers/"},
    {"/keras/src/optimizers/"},
    {"/keras/src/models/"},
    {"/flax/"},
    {"/optax/"},
    {"torchinductor_"},
};

/// A line of the user's that asks for a number, or for an array on the host.
constexpr std::string_view sync_calls[] = {".item()",     ".tolist()",          ".numpy()",    ".cpu()",
                                           "float(",      "block_until_ready(", "device_get(", "synchronize(",
                                           "np.asarray(", ".to(\"cpu\")",       ".to('cpu')"};

constexpr std::string_view input_words[] = {
    "load", "read",    "decode",  "collate",    "augment",   "preprocess", "fetch",     "dataset", "getitem",
    "mel",  "feature", "batches", "next_batch", "get_batch", "tokeniz",    "generator", "spectro"};
constexpr std::string_view other_words[] = {"train", "step", "forward", "backward", "loss",       "model",
                                            "optim", "eval", "valid",   "save",     "checkpoint", "log"};

/// A call of one of them; not of a function whose name only ends so.
bool calls(std::string_view text, Words words) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    for (std::size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; ++at) {
      const auto before = at > 0 ? static_cast<unsigned char>(text[at - 1]) : ' ';
      if (word[0] == '.' || (std::isalnum(before) == 0 && before != '_')) return true;
    }
    return false;
  });
}

bool is_numpy(const StackFrame& f) {
  return f.file.find("/numpy/") != std::string::npos ||
         (f.is_users() && (f.expression.starts_with("np.") || f.expression.starts_with("numpy.")));
}

/// Models and optimizers that are being made.
bool sets_up(const StackFrame& f) {
  return f.function == "reset_parameters" || (!f.is_users() && f.function == "__init__") ||
         (f.function == "build" && f.file.find("/keras/") != std::string::npos);
}

/// A function of the user's own that makes input, by its name.
bool named_for_input(const StackFrame& f) {
  std::string name = f.function;
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return f.is_users() && has(name, input_words) && !has(name, other_words);
}

/// The fields of a line, divided by tabs.
std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t tab = line.find('\t');
    fields.push_back(line.substr(0, tab));
    if (tab == std::string_view::npos) return fields;
    line.remove_prefix(tab + 1);
  }
}

double number(std::string_view text) { return std::strtod(std::string(text).c_str(), nullptr); }

std::vector<std::size_t> numbers(std::string_view text) {
  std::vector<std::size_t> out;
  while (!text.empty()) {
    std::size_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc()) break;
    out.push_back(value);
    text.remove_prefix(std::min(static_cast<std::size_t>(end - text.data()) + 1, text.size()));
  }
  return out;
}

/// A file's text; none where it cannot be read, or is no source by its size.
std::string source_text(const std::string& file) try {
  constexpr std::uintmax_t largest = 1 << 20;
  return std::filesystem::file_size(file) <= largest ? read_text(file) : "";
} catch (const std::exception&) {
  return "";
}

/// The lines of files that are asked for again and again.
class Sources {
 public:
  std::string line(const std::string& file, int number) {
    const auto [entry, is_new] = lines_.try_emplace(file);
    if (is_new) {
      const std::string text = source_text(file);
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        entry->second.push_back(text.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    const auto at = static_cast<std::size_t>(number) - 1;
    if (number <= 0 || at >= entry->second.size()) return {};
    const std::string& found = entry->second[at];
    const std::size_t first = found.find_first_not_of(" \t");
    return first == std::string::npos ? "" : found.substr(first, 160);
  }

 private:
  std::map<std::string, std::vector<std::string>> lines_;
};

/// A frame as py-spy tells it: methods with the name of their class, and no source.
StackFrame spied_frame(const nlohmann::json& told, Sources& sources) {
  StackFrame frame{.file = told.value("file", ""), .function = told.value("name", "")};
  if (const auto line = told.find("line"); line != told.end() && line->is_number()) frame.line = *line;
  if (!frame.function.starts_with('<')) frame.function.erase(0, frame.function.rfind('.') + 1);
  const bool is_library = has(
      frame.file, std::array<std::string_view, 4>{"/site-packages/", "/dist-packages/", "/lib/python3", "<"});
  if (!is_library) frame.text = frame.expression = sources.line(frame.file, frame.line);
  return frame;
}

/// Those frames that are known; says what they do.
Doing add_stack(StackLog& log, std::vector<std::size_t> frames) {
  std::erase_if(frames, [&](std::size_t frame) { return frame >= log.frames.size(); });
  std::vector<const StackFrame*> stack;
  for (const std::size_t frame : frames) stack.push_back(&log.frames[frame]);
  log.stacks.push_back(std::move(frames));
  return doing_of(stack);
}

}  // namespace

bool StackLog::is_worker() const {
  return std::ranges::any_of(frames, [](const StackFrame& f) {
    return f.function == "_worker_loop" && f.file.find("/torch/utils/data/") != std::string::npos;
  });
}

const StackFrame* StackLog::users_frame(std::size_t stack) const {
  for (const std::size_t frame : stacks[stack])
    if (frames[frame].is_users()) return &frames[frame];
  return nullptr;
}

Doing doing_of(const std::vector<const StackFrame*>& stack) {
  const auto any = [&](std::span<const Mark> marks) {
    return std::ranges::any_of(stack, [&](const StackFrame* f) { return marked(*f, marks); });
  };
  // Before the first line of the user's own, and below an import of theirs, nothing is trained.
  const bool imports = std::ranges::any_of(
      stack, [](const StackFrame* f) { return f->file.find("importlib._bootstrap") != std::string::npos; });
  if (any(compile_marks)) return Doing::compile;
  if (imports) return Doing::start;
  if (any(input_marks)) return Doing::input;
  if (std::ranges::any_of(stack, [](const StackFrame* f) { return sets_up(*f); })) return Doing::start;
  if (any(sync_marks)) return Doing::sync;
  if (any(compute_marks)) return Doing::compute;
  const auto users = std::ranges::find_if(stack, [](const StackFrame* f) { return f->is_users(); });
  // Slices and small operations on the way to a number are part of fetching it.
  if (users != stack.end() && calls((*users)->text, sync_calls) && !is_numpy(*stack.front()))
    return Doing::sync;
  if (!stack.empty() && is_numpy(*stack.front())) return Doing::input;
  if (std::ranges::any_of(stack, [](const StackFrame* f) { return named_for_input(*f); }))
    return Doing::input;
  // A call from the user's line straight into native code is a step, or an operation of one.
  if (users == stack.begin() && users != stack.end() &&
      ((*users)->expression.ends_with(')') || (*users)->expression.find(" @ ") != std::string::npos))
    return Doing::compute;
  if (users != stack.end() && std::ranges::any_of(stack.begin(), users, [](const StackFrame* f) {
        return has(f->file, std::array<std::string_view, 3>{"/torch/", "/tensorflow/", "/jax/"});
      }))
    return Doing::compute;
  return Doing::python;
}

StackLog read_stack_log(const std::filesystem::path& file) {
  StackLog log;
  const std::string text = read_text(file);
  std::vector<Doing> doing;
  std::string_view rest(text);
  for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    const auto fields = fields_of(rest.substr(0, end));
    if (fields[0] == "P" && fields.size() >= 4) {
      log.process = static_cast<int>(number(fields[1]));
      log.start = number(fields[2]);
      log.command = fields[3];
    } else if (fields[0] == "F" && fields.size() >= 7) {
      log.frames.push_back({.file = std::string(fields[2]),
                            .function = std::string(fields[3]),
                            .line = static_cast<int>(number(fields[4])),
                            .expression = std::string(fields[5]),
                            .text = std::string(fields[6])});
    } else if (fields[0] == "K" && fields.size() >= 3) {
      doing.push_back(add_stack(log, numbers(fields[2])));
    } else if (fields[0] == "S" && fields.size() >= 4) {
      StackSample sample{.t = number(fields[1]), .cpu = number(fields[2])};
      sample.stack = static_cast<std::size_t>(number(fields[3]));
      if (sample.stack >= log.stacks.size()) continue;
      sample.doing = doing[sample.stack];
      if (fields.size() > 4)
        sample.input_beside = std::ranges::any_of(numbers(fields[4]), [&](std::size_t other) {
          return other < doing.size() && doing[other] == Doing::input;
        });
      log.samples.push_back(sample);
    }
  }
  return log;
}

StackLog read_spy_recording(const std::filesystem::path& file, int process, double start, double end) try {
  const nlohmann::json told = nlohmann::json::parse(read_text(file));
  StackLog log{.process = process, .start = start};
  Sources sources;
  for (const auto& frame : told.at("shared").at("frames")) log.frames.push_back(spied_frame(frame, sources));
  const std::string main = fmt::format("Thread {} ", process);
  std::map<std::vector<std::size_t>, StackSample> known;
  for (const auto& thread : told.at("profiles")) {
    if ((thread.at("name").get<std::string>() + " ").find(main) == std::string::npos) continue;
    const auto& samples = thread.at("samples");
    const double each = (end - start) / std::max(1.0, static_cast<double>(samples.size()));
    for (const auto& sample : samples) {
      auto frames = sample.get<std::vector<std::size_t>>();
      std::ranges::reverse(frames);
      const auto [seen, is_new] =
          known.try_emplace(frames, StackSample{.cpu = not_logged, .stack = log.stacks.size()});
      if (is_new) seen->second.doing = add_stack(log, frames);
      log.samples.push_back(seen->second);
      log.samples.back().t = start + (static_cast<double>(log.samples.size()) - 0.5) * each;
    }
  }
  return log;
} catch (const nlohmann::json::exception&) {
  throw Error(fmt::format("{}: is no recording of py-spy's", file.string()));
}

}  // namespace penstock
