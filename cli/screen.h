// A terminal that shows lines which change in place, and is as it was when this ends.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace penstock::cli {

/// All of the terminal, or its lowest rows, above which somebody else goes on writing. One thread.
class Screen {
 public:
  enum class Part { all, foot };
  using Frame = std::function<std::vector<std::string>(int columns, int rows, bool styled)>;

  /// Whether `fd` is a terminal that can show it, rather than a pipe or one that cannot move its cursor.
  static bool can_show(int fd);

  Screen(int fd, Part part) : fd_(fd), part_(part) {}
  ~Screen() { leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// Shows `frame` of the present size; what has not changed is not written again. Nothing where there is no
  /// room.
  void draw(const Frame& frame);
  /// The terminal as it was; the next draw() takes it again.
  void leave();

 private:
  struct Size {
    int columns = 0, rows = 0;
    bool operator==(const Size&) const = default;
  };
  [[nodiscard]] Size size() const;
  [[nodiscard]] int height(const Size& size) const;  // rows that are ours
  [[nodiscard]] std::string take(const Size& size) const;
  void write(const std::string& text) const;

  int fd_;
  Part part_;
  Size shown_;  // no columns: we do not have the terminal
  std::vector<std::string> lines_;
};

}  // namespace penstock::cli
