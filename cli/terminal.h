// What a person at a terminal sees while something runs, and how it ends when they press Ctrl-C.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace penstock::cli {

/// Thrown by whoever notices that Ctrl-C (or SIGTERM) came.
struct Interrupted : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

/// From here on the first Ctrl-C is noticed by check_interrupt(); a second one ends the program at once.
void catch_interrupts();
void check_interrupt();
/// The signal that came, or 0: for who finishes something first.
int interrupt_signal();

/// A bar on stderr with rate and time left; draws nothing when stderr is not a terminal. Each update checks
/// for Ctrl-C.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)) {}
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// `bytes` that were read or written so far; 0 shows none.
  void update(std::size_t done, std::size_t total, std::uint64_t bytes = 0);
  void clear();

 private:
  std::string label_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), drawn_{};
  bool visible_ = false;
};

/// On stdout, indented.
void print_json(const nlohmann::json& value);

/// `fraction` (0..1) of `width` columns, drawn with eighths of a block.
std::string bar(double fraction, int width);

/// `999 B`, `1.2 kB`, `2.43 GB`: powers of ten, three digits.
std::string bytes_text(std::uint64_t bytes);
/// `12 s`, `3 min`, `5 h`, `40 days`.
std::string age_text(double seconds);
/// `1 record`, `2 records`.
std::string count_text(std::int64_t count, const std::string& noun);

/// Broken between words at `width` columns; every line but the first begins with `indent` spaces, and each
/// ends.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent = 0);
/// What a stranger named, without what would move the cursor.
std::string printable(std::string text);
/// Every line behind `margin`.
std::string indented(const std::string& text, const std::string& margin);

}  // namespace penstock::cli
