// Commands and their flags, as ours declare them. The library that parses them stays in command.cpp: its
// header alone would cost every command two seconds to compile.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace penstock::cli {

/// What the chosen command does; returns the exit code: 0, or 1 when it found a problem.
using Action = std::function<int()>;

/// A flag or positional of a command, which owns it. Every setter returns the option itself.
class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option* option) : option_(option) {}
  /// Is there one?
  explicit operator bool() const { return option_ != nullptr; }

  Option& range(int least, int most);
  Option& range(double least, double most);
  Option& one_of(const std::vector<std::string>& values);
  Option& required();
  /// It makes no sense without `other`.
  Option& needs(const Option& other);
  /// How many values it takes.
  Option& expected(int least, int most);
  /// Given several times, its values are one, with `separator` between.
  Option& join(char separator);
  /// What --help calls its value.
  Option& type_name(const std::string& name);
  /// Its heading in --help; "" hides it.
  Option& group(const std::string& name);
  /// --help shows the value that the variable has now.
  Option& show_default();

  [[nodiscard]] std::string name() const;
  /// Was it given?
  [[nodiscard]] bool given() const;

 private:
  CLI::Option* option_ = nullptr;
};

/// A command (or the whole program), which Program owns.
class Command {
 public:
  Command() = default;
  explicit Command(CLI::App* app) : app_(app) {}

  [[nodiscard]] Command add_command(const std::string& name, const std::string& help) const;
  /// `value` outlives the parsing. Text, numbers (see command.cpp).
  template <class T>
  Option add_option(const std::string& name, T& value, const std::string& help) const;
  Option add_flag(const std::string& name, bool& value, const std::string& help) const;
  /// A flag that may have a value: `--flag`, `--flag=false`.
  Option add_flag(const std::string& name, std::string& value, const std::string& help) const;
  /// One that only is there or not.
  Option add_flag(
      const std::string& name) const;  // NOLINT(modernize-use-nodiscard): often for its effect alone

  /// What --help ends with.
  void footer(const std::string& text) const;
  void require_command() const;
  /// Takes whatever follows, its --help too, for another program.
  void take_everything() const;
  [[nodiscard]] std::vector<std::string> everything() const;
  /// When the command is chosen, `action` becomes `body`.
  void runs(Action& action, Action body) const;

  [[nodiscard]] Option option(const std::string& name) const;
  [[nodiscard]] std::vector<Option> options() const;

 private:
  CLI::App* app_ = nullptr;
};

/// A program's command line.
class Program {
 public:
  /// `version`: what --version prints; "" for none.
  Program(const std::string& description, const std::string& name, const std::string& version = "");
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] Command command() const { return Command(app_.get()); }
  /// Parses, runs what the chosen command left in `action`, says what went wrong, and returns the exit code:
  /// 0, 1 (found a problem), 2 (misuse) or 128 + the number of the signal that interrupted it.
  int run(int argc, char** argv, const Action& action);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace penstock::cli
