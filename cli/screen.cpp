#include "cli/screen.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace penstock::cli {
namespace {

constexpr int least_rows = 10;  // below, a command keeps its terminal for itself

}  // namespace

bool Screen::can_show(int fd) {
  const char* terminal = std::getenv("TERM");
  return isatty(fd) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

Screen::Size Screen::size() const {
  winsize found{};
  if (::ioctl(fd_, TIOCGWINSZ, &found) != 0 || found.ws_col == 0) return {.columns = 80, .rows = 24};
  return {.columns = found.ws_col, .rows = found.ws_row};
}

int Screen::height(const Size& size) const {
  if (part_ == Part::all) return size.rows;
  return size.rows < least_rows ? 0 : std::clamp(size.rows / 3, 4, 9);
}

std::string Screen::take(const Size& size) const {
  if (part_ == Part::all) return shown_.columns == 0 ? "\x1b[?1049h\x1b[?25l\x1b[2J" : "\x1b[2J";
  // Room for us below the cursor; then lines scroll above us alone. 7 and 8 keep the cursor, which `r` moves.
  const int own = height(size);
  std::string all_scrolls = shown_.columns == 0 ? ""
                                                : "\x1b"
                                                  "7\x1b[r\x1b"
                                                  "8\x1b[J";
  if (own == 0) return all_scrolls;
  return fmt::format(
      "{}{}\x1b[{}A\x1b"
      "7\x1b[1;{}r\x1b"
      "8",
      all_scrolls, std::string(static_cast<std::size_t>(own), '\n'), own, size.rows - own);
}

void Screen::draw(const Frame& frame) {
  const Size now = size();
  const int own = height(now);
  std::string text;
  if (now != shown_) {
    text = take(now);
    lines_.clear();
    shown_ = now;
  }
  const bool styled = std::getenv("NO_COLOR") == nullptr;
  std::vector<std::string> lines;
  if (own > 0) lines = frame(now.columns, own, styled);
  lines.resize(static_cast<std::size_t>(own));
  std::string changed;
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (i >= lines_.size() || lines_[i] != lines[i])
      changed += fmt::format("\x1b[{};1H{}\x1b[K", now.rows - own + 1 + static_cast<int>(i), lines[i]);
  lines_ = std::move(lines);
  if (!changed.empty())
    text += part_ == Part::all ? changed
                               : "\x1b"
                                 "7" +
                                     changed +
                                     "\x1b"
                                     "8";
  write(text);
}

void Screen::leave() {
  if (shown_.columns == 0) return;
  write(part_ == Part::all ? "\x1b[2J\x1b[?25h\x1b[?1049l"
                           : "\x1b"
                             "7\x1b[r\x1b"
                             "8\x1b[J");
  shown_ = {};
  lines_.clear();
}

/// One write, so that what a command prints at the same time comes before it or behind. A terminal that has
/// gone needs nothing.
void Screen::write(const std::string& text) const {
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written <= 0) return;
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace penstock::cli
