#include "cli/diagnose_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"

namespace penstock::cli {
namespace {

using nlohmann::json;

std::string_view name_of(Doing doing) { return doing_names[static_cast<std::size_t>(doing)]; }
std::string_view name_of(Bound bound) { return bound_names[static_cast<std::size_t>(bound)]; }
double share_of(const CommandDiagnosis& d, Doing doing) { return d.shares[static_cast<std::size_t>(doing)]; }
json known(double value) { return std::isnan(value) ? json() : json(value); }

struct Advice {
  std::string verdict, change, lines;
};

Advice advice_for(const CommandDiagnosis& d) {
  const auto percent = [&](Doing doing) { return share_of(d, doing) * 100; };
  switch (d.bound) {
    case Bound::healthy:
      return {.verdict =
                  "Healthy: the main thread is in the training step, or the device is busy all the time."};
    case Bound::input:
      return {.verdict = fmt::format("Input-bound: {:.0f} % of the time the loop waits for its next batch.",
                                     std::max(share_of(d, Doing::input), d.input_beside) * 100),
              .change =
                  "Take the work out of the loop: workers that run ahead (DataLoader: num_workers, "
                  "persistent_workers; tf.data: num_parallel_calls, prefetch), or a feed that does it "
                  "natively and keeps mels in a cache:",
              .lines =
                  "import penstock\nfor batch in penstock.Feed(\"DIR\", batch_size=16).torch():  # .jax(), "
                  ".tf()"};
    case Bound::sync:
      return {
          .verdict = fmt::format("Sync-bound: {:.0f} % of the time the loop fetches numbers from the device.",
                                 percent(Doing::sync)),
          .change =
              "Every .item(), float(), .numpy() waits until the device has done all it was given. Keep "
              "figures on the device and fetch them together, every hundred steps:",
          .lines =
              "total += loss.detach()             # no wait\n"
              "if step % 100 == 0: print(float(total) / 100)"};
    case Bound::compile:
      return {
          .verdict = fmt::format("Compile-bound: {:.0f} % of the second half still goes by tracing and "
                                 "compiling.",
                                 d.late_compile * 100),
          .change =
              "Batches of ever new shapes, or Python numbers as arguments, compile the step again. Pad to a "
              "few shapes and pass numbers as tensors; penstock.Feed has at most `shapes` of them:",
          .lines = "for batch in penstock.Feed(\"DIR\", batch_size=16, shapes=4).torch():"};
    case Bound::launch:
      return {.verdict = fmt::format(
                  "Launch-bound: the GPU computes {:.0f} % of the time, while Python hands it one "
                  "small operation after another.",
                  d.gpu_busy * 100),
              .change =
                  "Larger batches, or a compiled step (torch.compile(mode=\"reduce-overhead\"), tf.function, "
                  "jax.jit), so that one launch does the work of many."};
    case Bound::python:
      return {.verdict = fmt::format("Host-bound: {:.0f} % of the time goes by in Python between the steps.",
                                     percent(Doing::python)),
              .change = "See the lines above: move that work out of the loop, or do it every hundred steps."};
    case Bound::unknown:
      break;
  }
  return {.verdict = fmt::format("No verdict: {}.", d.why)};
}

/// Eighths of a column's height.
std::string sparkline(const CommandDiagnosis& d, Doing doing) {
  static constexpr std::array levels = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string out;
  for (const auto& column : d.timeline)
    out += levels[static_cast<std::size_t>(std::lround(column[static_cast<std::size_t>(doing)] * 8))];
  return out;
}

void print_shares(const CommandDiagnosis& d) {
  fmt::print("\nmain thread   share  over the {:.0f} s of its process\n", d.start_s + d.training_s);
  for (const Doing doing :
       {Doing::start, Doing::input, Doing::sync, Doing::compile, Doing::compute, Doing::python}) {
    const std::string line = sparkline(d, doing);
    if (share_of(d, doing) < 0.005 && line.find_first_not_of(' ') == std::string::npos) continue;
    fmt::print("{:<12} {:>5.0f}%  {}\n", name_of(doing), share_of(d, doing) * 100, line);
  }
}

/// The end of a text, in at most `width` columns.
std::string tail(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  std::size_t begin = text.size() - width + 1;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) ++begin;
  return "…" + text.substr(begin);
}

std::string head(const std::string& text, std::size_t width) {
  std::size_t end = std::min(text.size(), width);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

void print_lines(const CommandDiagnosis& d) {
  if (d.lines.empty()) return;
  fmt::print("\nyour lines\n");
  int shown = 0;
  for (const HotLine& line : d.lines) {
    if (line.share < 0.02 || ++shown > 6) break;
    const std::string place =
        fmt::format("{}:{}", std::filesystem::path(line.file).filename().string(), line.line);
    fmt::print("{:>4.0f}% {:<8} {:<22} {}\n", line.share * 100, name_of(line.doing),
               tail(printable(place), 22), head(printable(line.text), 41));
  }
}

void print_machine(const CommandDiagnosis& d) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (!std::isnan(d.gpu_busy)) add(fmt::format("GPU {:.0f} % busy", d.gpu_busy * 100));
  if (std::isnan(d.gpu_busy)) add("no GPU in sight");
  if (!std::isnan(d.main_cpu))
    add(fmt::format("main thread {:.0f} % on a CPU", std::min(1.0, d.main_cpu) * 100));
  add(fmt::format("{:.1f} CPUs used", d.cpus));
  add(fmt::format("machine {:.0f} % busy", d.machine_cpu * 100));
  add(fmt::format("disk {}/s", bytes_text(static_cast<std::uint64_t>(d.disk_read))));
  add(fmt::format("{:.0f} major faults/s", d.faults_major));
  add(fmt::format("{} process{}, {}", d.processes, d.processes == 1 ? "" : "es",
                  count_text(static_cast<std::int64_t>(d.threads), "thread")));
  fmt::print("\n{}", wrapped(text, 80));
  std::string groups;
  for (const ThreadGroup& group : d.groups)
    groups += fmt::format("{}{} {:.2f}", groups.empty() ? "" : ", ",
                          group.threads > 1 ? fmt::format("{} x {}", group.threads, group.name) : group.name,
                          group.cpus);
  if (!groups.empty()) fmt::print("{}", wrapped("CPUs by thread: " + printable(groups), 80));
}

}  // namespace

json command_json(const CommandDiagnosis& d) {
  const Advice advice = advice_for(d);
  json out = {{"verdict", name_of(d.bound)},
              {"text", advice.verdict},
              {"process", d.process},
              {"trainers", d.trainers},
              {"samples", d.samples},
              {"seconds", d.seconds},
              {"start_s", d.start_s},
              {"training_s", d.training_s},
              {"late_compile", d.late_compile},
              {"compiles", d.compiles},
              {"first_compile_s", d.first_compile_s},
              {"input_beside", d.input_beside},
              {"main_cpu", known(d.main_cpu)},
              {"gpu_busy", known(d.gpu_busy)},
              {"device_busy", known(d.device_busy)},
              {"cpus", d.cpus},
              {"machine_cpu", d.machine_cpu},
              {"disk_read", d.disk_read},
              {"faults_major", d.faults_major},
              {"processes", d.processes},
              {"threads", d.threads},
              {"busy_threads", json::array()},
              {"lines", json::array()}};
  for (const ThreadGroup& group : d.groups)
    out["busy_threads"].push_back({{"name", group.name}, {"threads", group.threads}, {"cpus", group.cpus}});
  for (std::size_t i = 0; i < doing_count; ++i) out["shares"][doing_names[i]] = d.shares[i];
  for (const HotLine& line : d.lines)
    out["lines"].push_back({{"file", line.file},
                            {"line", line.line},
                            {"text", line.text},
                            {"doing", name_of(line.doing)},
                            {"share", line.share}});
  if (!advice.change.empty()) out["change"] = advice.change;
  return out;
}

void print_command_page(const CommandDiagnosis& d, int code) {
  const Advice advice = advice_for(d);
  fmt::print("\n── penstock diagnose: {:.0f} s, exit code {}\n{}", d.seconds, code,
             wrapped(advice.verdict, 80));
  if (d.process != 0) {
    if (d.trainers > 1)
      fmt::print("{} processes train; what follows is process {}.\n", d.trainers, d.process);
    print_shares(d);
    print_lines(d);
    if (d.first_compile_s > 1 && d.bound != Bound::compile)
      fmt::print("\nCompiling took {:.0f} s in the beginning, and is done.\n", d.first_compile_s);
  }
  print_machine(d);
  if (!advice.change.empty()) fmt::print("\n{}", wrapped(advice.change, 80));
  if (!advice.lines.empty()) fmt::print("{}", indented(advice.lines, "    "));
}

void print_scan(const json& scan, const std::string& reason) {
  if (!reason.empty()) fmt::print("\n--source: {}\n", reason);
  if (!scan.is_object() || !scan.contains("findings")) return;
  const json& findings = scan["findings"];
  fmt::print("\nin the sources: {}\n", count_text(static_cast<std::int64_t>(findings.size()), "finding"));
  for (std::size_t i = 0; i < std::min<std::size_t>(findings.size(), 8); ++i) {
    const json& f = findings[i];
    const std::string place = fmt::format("{}:{}", f.value("path", f.value("file", "")), f.value("line", 0));
    fmt::print("  {}",
               wrapped(fmt::format("{} {}: {}", place, f.value("rule", ""), f.value("message", "")), 78, 4));
  }
}

}  // namespace penstock::cli
