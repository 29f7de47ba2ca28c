#include "cli/terminal.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace penstock::cli {
namespace {

volatile std::sig_atomic_t interrupts = 0, first_signal = 0;

extern "C" void on_interrupt(int signal) {
  interrupts = interrupts + 1;
  if (interrupts > 1) std::_Exit(128 + signal);
  first_signal = signal;
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}

void check_interrupt() {
  if (interrupts != 0) throw Interrupted();
}

int interrupt_signal() { return first_signal; }

void ProgressBar::clear() {
  if (visible_) fmt::print(stderr, "\r\x1b[K");
  visible_ = false;
}

void ProgressBar::update(std::size_t done, std::size_t total, std::uint64_t bytes) {
  check_interrupt();
  if (!isatty(STDERR_FILENO)) return;
  const auto now = std::chrono::steady_clock::now();
  if (done < total && now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  visible_ = true;
  const double seconds = std::max(1e-3, std::chrono::duration<double>(now - start_).count());
  const double rate = static_cast<double>(done) / seconds;
  const double left = rate > 0 ? static_cast<double>(total - done) / rate : 0;
  fmt::print(stderr, "\r{} {} {}/{}  {:.0f}/s{}  {:.0f} s left\x1b[K", label_,
             bar(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1, 24), done, total,
             rate, bytes > 0 ? "  " + bytes_text(bytes) : "", left);
  std::fflush(stderr);
}

void print_json(const nlohmann::json& value) {
  fmt::print("{}\n", value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string bar(double fraction, int width) {
  static constexpr const char* eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int units = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width * 8));
  std::string out;
  for (int i = 0; i < units / 8; ++i) out += "█";
  out += eighths[units % 8];
  out.append(static_cast<std::size_t>(width - units / 8 - (units % 8 != 0)), ' ');
  return out;
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  static constexpr const char* units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  auto value = static_cast<double>(bytes) / 1e3;
  std::size_t unit = 0;
  for (; value >= 999.5; ++unit) value /= 1e3;
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, units[unit]);
}

std::string age_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds));
  if (whole < 100) return fmt::format("{} s", whole);
  if (whole < 100 * 60) return fmt::format("{} min", whole / 60);
  if (whole < 48 * 3600) return fmt::format("{} h", whole / 3600);
  return fmt::format("{} days", whole / 86400);
}

std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return text;
}

std::string count_text(std::int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string wrapped(const std::string& text, std::size_t width, std::size_t indent) {
  std::istringstream words(text);
  std::string out;
  std::size_t column = 0;
  for (std::string word; words >> word;) {
    // Columns, not bytes: every byte of a UTF-8 character but its first is 10xxxxxx.
    const auto columns = static_cast<std::size_t>(
        std::ranges::count_if(word, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    if (column > 0 && column + 1 + columns > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += columns;
  }
  return out + "\n";
}

std::string indented(const std::string& text, const std::string& margin) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += margin + line + "\n";
  return out;
}

}  // namespace penstock::cli
