// Small files that a kernel writes anew at every read: /proc and /sys.
#pragma once
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/core/file.h"

namespace penstock {

/// One of them, opened once and read often. One thread.
class ProcFile {
 public:
  ProcFile() = default;
  /// `keep` it open between reads. It is opened at the first.
  explicit ProcFile(std::filesystem::path path, bool keep = true) : path_(std::move(path)), keep_(keep) {}

  /// What it holds now, in `buffer`, which grows as needed; nothing when it cannot be read (it has gone, or
  /// we may not), and `error()` says why.
  std::optional<std::string_view> read(std::string& buffer);
  [[nodiscard]] int error() const { return error_; }

 private:
  std::filesystem::path path_;
  File file_;
  bool keep_ = true;
  int error_ = 0;
};

/// The next number in `text`, which is cut behind it; 0 where there is none. What is no digit is skipped.
inline std::uint64_t next_number(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_of("0123456789"), text.size()));
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// The next word, up to a blank or a line's end; the same cut.
inline std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \n\t"), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(" \n\t"));
  text.remove_prefix(word.size());
  return word;
}

/// The next line without its end; the same cut.
inline std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

/// The number behind `name` at the start of a line: a line "name 12" or "name: 12 kB". 0 where there is none.
inline std::uint64_t number_of(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string_view::npos; at += name.size()) {
    if (at > 0 && text[at - 1] != '\n') continue;
    std::string_view rest = text.substr(at + name.size());
    if (!rest.empty() && (rest[0] == ' ' || rest[0] == ':')) return next_number(rest);
  }
  return 0;
}

/// What /proc/PID/stat says of a process.
struct ProcessStat {
  std::string_view name;  ///< in the text that was read; it may hold anything
  char state = '?';       ///< R runs, S sleeps, D waits for storage, Z has ended
  int parent = 0, nice = 0;
  std::int64_t faults_major = 0;                  ///< of children that were waited for, too
  std::int64_t ticks = 0, ticks_of_children = 0;  ///< on a CPU: its own, and those who were waited for
  std::int64_t threads = 0, resident_pages = 0;
};
/// Nothing when that is not its text: none, as of one that has gone, or half of it.
std::optional<ProcessStat> process_stat(std::string_view text);

}  // namespace penstock
