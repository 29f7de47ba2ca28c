#include "cli/monitor_view.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/terminal.h"

namespace penstock::cli {
namespace {

constexpr int label_width = 8, value_width = 10;
constexpr std::size_t most_marks = 512, most_news = 2;

std::string percent(double share) { return fmt::format("{:.0f} %", share * 100); }

std::string bytes(double count) { return bytes_text(static_cast<std::uint64_t>(std::max(0.0, count))); }
std::string rate(double bytes_per_second) { return bytes(bytes_per_second) + "/s"; }

std::string clock_text(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds);
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

/// Columns that UTF-8 text takes; marks and letters are one each.
int columns_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cut(std::string_view text, int columns) {
  if (columns_of(text) <= columns) return std::string(text);
  std::size_t end = 0;
  for (int taken = 0; end < text.size(); ++end)
    if ((text[end] & 0xC0) != 0x80 && ++taken > columns - 1) break;
  return columns > 0 ? std::string(text.substr(0, end)) + "…" : "";
}

std::string padded(const std::string& text, int columns, bool right = false) {
  const auto blanks = static_cast<std::size_t>(std::max(0, columns - columns_of(text)));
  return right ? std::string(blanks, ' ') + text : text + std::string(blanks, ' ');
}

std::string mark(double share) {
  static constexpr std::string_view marks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  return std::string(marks[std::clamp(static_cast<int>(share * 8), 0, 7)]);
}

/// One mark for each core, or for several where there are too many.
std::string core_marks(const std::vector<double>& cores, int width) {
  const std::size_t each =
      (cores.size() + static_cast<std::size_t>(width) - 1) / static_cast<std::size_t>(width);
  std::string out;
  for (std::size_t i = 0; i < cores.size(); i += each) {
    const std::size_t end = std::min(i + each, cores.size());
    const auto first = cores.begin() + static_cast<std::ptrdiff_t>(i);
    out += mark(std::accumulate(first, cores.begin() + static_cast<std::ptrdiff_t>(end), 0.0) /
                static_cast<double>(end - i));
  }
  return out;
}

/// A row of at most `columns`, `height` lines high where it has a past to show. Notes that do not fit are
/// left out whole.
std::vector<std::string> draw(const Row& row, int columns, int width, int height, bool styled) {
  const auto style = [&](const char* code, const std::string& text) {
    return styled && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  };
  const std::string label = padded(cut(row.label, label_width), label_width);
  if (columns <= label_width + value_width)
    return {style("1", cut(label, columns)) +
            cut(padded(row.value, value_width, true), columns - label_width)};
  const auto pictures =
      row.trail != nullptr ? row.trail->draw(width, height, row.full) : std::vector{row.picture};
  std::string out = style("1", label);
  int used = label_width;
  if (!row.value.empty()) {
    out += padded(row.value, value_width, true) + " " + padded(pictures.front(), width);
    used += value_width + 1 + width;
  }
  std::string gap = row.value.empty() ? "  " : " ";
  for (const std::string& note : row.notes) {
    const bool first = &note == &row.notes.front();
    const int room = columns - used - columns_of(gap);
    if (room < 4 || (columns_of(note) > room && !first)) break;
    const std::string text = cut(note, room);
    out += gap + style("2", text);
    used += columns_of(gap) + columns_of(text);
    gap = "  ";
  }
  std::vector<std::string> lines = {out};
  for (std::size_t i = 1; i < pictures.size(); ++i)
    lines.push_back(std::string(label_width + value_width + 1, ' ') + pictures[i]);
  return lines;
}

}  // namespace

void Trail::add(double seconds, double value) {
  if (count_ == 0) begin_ = seconds;
  sum_ += value;
  ++count_;
  if (seconds - begin_ < period - 0.05) return;
  push(sum_ / count_);
  sum_ = 0;
  count_ = 0;
  if (marks_.size() > most_marks) marks_.pop_front();
}

std::vector<std::string> Trail::draw(int width, int height, double full) const {
  const std::size_t columns = static_cast<std::size_t>(std::max(0, width)),
                    shown = std::min(marks_.size(), columns);
  const auto first = marks_.end() - static_cast<std::ptrdiff_t>(shown);
  if (full <= 0)
    for (auto value = first; value != marks_.end(); ++value) full = std::max(full, *value);
  std::vector<std::string> rows;
  for (int row = height - 1; row >= 0; --row) {
    std::string out(columns - shown, ' ');
    for (auto value = first; value != marks_.end(); ++value) {
      const double level = (full > 0 ? *value / full : 0) * height - row;  // in this row
      out += row > 0 && level <= 0 ? " " : mark(level);
    }
    rows.push_back(std::move(out));
  }
  return rows;
}

void MonitorView::add(const Moment& moment) {
  now_ = moment;
  for (const GpuSample& gpu : moment.gpus)
    if (gpu.utilisation) gpu_[gpu.index].add(moment.seconds, *gpu.utilisation);
  cpu_.add(moment.seconds, moment.system.busy);
  disk_.add(moment.seconds, moment.system.disk.read + moment.system.disk.write);
  if (moment.command) command_.add(moment.seconds, moment.command->cpu);
}

void MonitorView::set_run(const RunRecords& run) {
  au_ = ring_ = {};
  const std::size_t shown = std::min<std::size_t>(run.steps.size(), most_marks);
  for (std::size_t i = run.steps.size() - shown; i < run.steps.size(); ++i) {
    const StepRecord& s = run.steps[i];
    if (s.step_ms + s.data_ms > 0) au_.push(s.step_ms / (s.step_ms + s.data_ms));
    if (s.ring >= 0) ring_.push(s.ring);
  }
  if (!run.steps.empty()) step_ = run.steps.back();
  if (!run.feed.empty()) feed_ = run.feed.back();
}

void MonitorView::add_gpus(std::vector<Row>& rows) const {
  for (const GpuSample& gpu : now_.gpus) {
    const auto trail = gpu_.find(gpu.index);
    rows.push_back({.label = fmt::format("GPU {}", gpu.index),
                    .value = gpu.utilisation ? percent(*gpu.utilisation) : "?",
                    .trail = trail != gpu_.end() ? &trail->second : nullptr,
                    .full = 1,
                    .notes = {printable(gpu.name)}});
    if (gpu.processes && !gpu.processes->empty())
      rows.back().notes.push_back(gpu.processes->size() == 1
                                      ? fmt::format("process {}", gpu.processes->front().id)
                                      : fmt::format("{} processes", gpu.processes->size()));
    Row more{.rank = 3};
    if (gpu.memory_used && gpu.memory_total)
      more.notes.push_back(
          fmt::format("{} of {}", bytes_text(*gpu.memory_used), bytes_text(*gpu.memory_total)));
    if (gpu.power_w) more.notes.push_back(fmt::format("{:.0f} W", *gpu.power_w));
    if (gpu.clock_mhz) more.notes.push_back(fmt::format("{:.0f} MHz", *gpu.clock_mhz));
    if (gpu.pcie_rx && gpu.pcie_tx)
      more.notes.push_back(fmt::format("PCIe {} in, {} out", rate(*gpu.pcie_rx), rate(*gpu.pcie_tx)));
    if (!more.notes.empty()) rows.push_back(std::move(more));
  }
}

void MonitorView::add_machine(std::vector<Row>& rows, int width) const {
  const SystemSample& s = now_.system;
  const auto cores = static_cast<double>(s.cores.size());
  Row cpu{.rank = now_.gpus.empty() && !now_.command ? 0 : 1,
          .label = "CPU",
          .value = percent(s.busy),
          .trail = &cpu_,
          .full = 1};
  cpu.notes.push_back(
      fmt::format("{:.1f} of {} busy", s.busy * cores, count_text(static_cast<int>(cores), "CPU")));
  if (s.steal >= 0.01) cpu.notes.push_back(percent(s.steal) + " stolen");
  if (s.io_wait >= 0.01) cpu.notes.push_back(percent(s.io_wait) + " disk wait");
  rows.push_back(std::move(cpu));

  Row each{.rank = 4, .label = "cores", .value = " ", .picture = core_marks(s.cores, width)};
  if (cores <= 8) {
    std::vector<std::string> shares;
    for (const double core : s.cores) shares.push_back(fmt::format("{:>3.0f}", core * 100));
    each.notes.push_back(fmt::format("{} %", fmt::join(shares, " ")));
  } else {
    const auto full = std::count_if(s.cores.begin(), s.cores.end(), [](double c) { return c > 0.9; });
    const auto idle = std::count_if(s.cores.begin(), s.cores.end(), [](double c) { return c < 0.1; });
    each.notes.push_back(fmt::format("{} over 90 %, {} under 10 %", full, idle));
  }
  if (!s.cores.empty()) rows.push_back(std::move(each));

  const MemorySample& m = s.memory;
  const double used = m.total > 0 ? static_cast<double>(m.used) / static_cast<double>(m.total) : 0;
  rows.push_back({.rank = 2,
                  .label = "memory",
                  .value = bytes_text(m.used),
                  .picture = bar(used, width),
                  .notes = {"of " + bytes_text(m.total), "page cache " + bytes_text(m.page_cache)}});
  Row disk{
      .rank = 2,
      .label = "disk",
      .value = rate(s.disk.read + s.disk.write),
      .trail = &disk_,
      .notes = {"read " + rate(s.disk.read), "write " + rate(s.disk.write), percent(s.disk.busy) + " busy"}};
  if (s.faults_major >= 1) disk.notes.push_back(fmt::format("{:.0f} major faults/s", s.faults_major));
  rows.push_back(std::move(disk));
}

void MonitorView::add_command(std::vector<Row>& rows) const {
  if (!now_.command) return;
  const TreeSample& c = *now_.command;
  std::size_t threads = 0;
  for (const ProcessSample& p : c.processes) threads += p.threads.size();
  rows.push_back(
      {.label = "command",
       .value = fmt::format("{:.1f} CPUs", c.cpu),
       .trail = &command_,
       .full = std::max(1.0, now_.system.available_cpus),
       .notes = {c.processes.size() == 1 ? "1 process" : fmt::format("{} processes", c.processes.size()),
                 count_text(static_cast<int>(threads), "thread"), bytes_text(c.resident)}});
  Row more{.rank = 3};
  if (c.read) more.notes.push_back("reads " + rate(*c.read) + " from storage");
  more.notes.push_back(fmt::format("{:.1f} threads wait for a CPU", c.waiting));
  more.notes.push_back(fmt::format("others use {:.1f} CPUs", cpus_of_others(now_.system, c)));
  rows.push_back(std::move(more));
}

void MonitorView::add_run(std::vector<Row>& rows) const {
  if (step_) {
    Row row{.label = "run",
            .value = std::isnan(step_->au) ? "AU ?" : fmt::format("AU {:.2f}", step_->au),
            .trail = &au_,
            .full = 1,
            .notes = {fmt::format("step {}", step_->step)}};
    row.notes.push_back(count_text(step_->retraces, "retrace"));
    rows.push_back(std::move(row));
    Row more{.rank = 3};
    if (step_->step_ms + step_->data_ms > 0)
      more.notes.push_back(
          fmt::format("{:.1f} ms a step, {:.1f} ms waiting for data", step_->step_ms, step_->data_ms));
    if (step_->padding >= 0) more.notes.push_back(percent(step_->padding) + " padding");
    if (!more.notes.empty()) rows.push_back(std::move(more));
  }
  if (!step_ && !feed_) return;
  Row ring{.rank = 1, .label = "ring"};
  const double level = step_ && step_->ring >= 0 ? step_->ring : feed_ ? feed_->ring_level : not_logged;
  if (std::isnan(level)) return;
  ring.value = fmt::format("{:.0f} ready", level);
  ring.trail = &ring_;
  ring.full = feed_ ? feed_->depth : 0;
  if (feed_) {
    ring.notes = {fmt::format("of {}", feed_->depth), count_text(feed_->workers, "worker")};
    if (!std::isnan(feed_->samples_per_second))
      ring.notes.push_back(fmt::format("{:.0f} samples/s", feed_->samples_per_second));
    if (feed_->skipped > 0) ring.notes.push_back(fmt::format("{} skipped", feed_->skipped));
  }
  rows.push_back(std::move(ring));
}

std::vector<std::string> MonitorView::frame(int columns, int height, bool styled) const {
  const int width = std::clamp(columns * 3 / 10, 6, 60);
  std::vector<Row> rows;
  add_gpus(rows);
  add_command(rows);
  add_run(rows);
  add_machine(rows, width);
  const std::size_t told = std::min(news_.size(), most_news);
  for (std::size_t i = news_.size() - told; i < news_.size(); ++i)
    rows.push_back({.rank = 2, .label = "note", .notes = {printable(news_[i])}});
  for (int rank = 4; rank >= 0 && static_cast<int>(rows.size()) >= height; --rank)
    for (std::size_t i = rows.size(); i-- > 0 && static_cast<int>(rows.size()) >= height;)
      if (rows[i].rank == rank) rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(i));

  const std::string time = clock_text(now_.seconds);
  std::vector<std::string> lines;
  const std::string title = cut("penstock monitor  " + printable(title_), columns - columns_of(time) - 2);
  const std::string head = padded(title, columns - columns_of(time)) + time;
  lines.push_back(styled ? "\x1b[7m" + head + "\x1b[0m" : head);
  // What is left of the screen goes to the pasts of the first rank.
  const auto main = [](const Row& row) { return row.rank == 0 && row.trail != nullptr; };
  const auto tall = static_cast<int>(std::count_if(rows.begin(), rows.end(), main));
  const int spare = height - 1 - static_cast<int>(rows.size());
  const int more = tall > 0 ? std::clamp(spare / tall, 0, 3) : 0;
  for (const Row& row : rows)
    for (std::string& text : draw(row, columns, width, main(row) ? 1 + more : 1, styled))
      lines.push_back(std::move(text));
  return lines;
}

std::string MonitorView::line() const {
  std::vector<std::string> parts = {clock_text(now_.seconds)};
  for (const GpuSample& gpu : now_.gpus) {
    std::string text = fmt::format("GPU {} {}", gpu.index, gpu.utilisation ? percent(*gpu.utilisation) : "?");
    if (gpu.memory_used) text += " " + bytes_text(*gpu.memory_used);
    if (gpu.power_w) text += fmt::format(" {:.0f} W", *gpu.power_w);
    parts.push_back(std::move(text));
  }
  const SystemSample& s = now_.system;
  if (now_.command) parts.push_back(fmt::format("command {:.1f} CPUs", now_.command->cpu));
  if (step_)
    parts.push_back(fmt::format("step {}{}", step_->step,
                                std::isnan(step_->au) ? "" : fmt::format(" AU {:.2f}", step_->au)));
  parts.push_back("CPU " + percent(s.busy));
  parts.push_back(fmt::format("memory {} of {}", bytes_text(s.memory.used), bytes_text(s.memory.total)));
  parts.push_back(fmt::format("disk read {}, write {}", rate(s.disk.read), rate(s.disk.write)));
  return fmt::format("{}", fmt::join(parts, "  "));
}

}  // namespace penstock::cli
