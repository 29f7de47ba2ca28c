#include "cli/command.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/terminal.h"
#include "penstock/core/config.h"
#include "penstock/core/error.h"

namespace penstock::cli {
namespace {

constexpr int found_a_problem = 1, misuse = 2;

/// Says which argument was not understood, and which flag may have been meant.
std::string unexpected(const CLI::App& app) {
  std::string argument = app.remaining(true).front();
  for (const std::string& a : app.remaining(true))
    if (a.starts_with("--")) argument = a;
  std::string key = argument.substr(std::min<std::size_t>(2, argument.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  std::string nearest = argument.starts_with("--") ? nearest_key(key) : "";
  if (nearest == key) nearest.clear();  // it exists, and another command has it
  std::replace(nearest.begin(), nearest.end(), '_', '-');
  return nearest.empty() ? argument + ": not expected here; --help lists what is"
                         : fmt::format("{}: unknown flag; did you mean --{}?", argument, nearest);
}

}  // namespace

// ---- Option ----

Option& Option::range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::range(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Option& Option::expected(int least, int most) {
  option_->expected(least, most);
  return *this;
}

Option& Option::join(char separator) {
  option_->join(separator);
  return *this;
}

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::group(const std::string& name) {
  option_->group(name);
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

std::string Option::name() const { return option_->get_name(); }

bool Option::given() const { return option_->count() > 0; }

// ---- Command ----

Command Command::add_command(const std::string& name, const std::string& help) const {
  return Command(app_->add_subcommand(name, help));
}

template <class T>
Option Command::add_option(const std::string& name, T& value, const std::string& help) const {
  return Option(app_->add_option(name, value, help));
}
template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, int&, const std::string&) const;
template Option Command::add_option(const std::string&, std::int64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;

Option Command::add_flag(const std::string& name, bool& value, const std::string& help) const {
  return Option(app_->add_flag(name, value, help));
}

Option Command::add_flag(const std::string& name, std::string& value, const std::string& help) const {
  return Option(app_->add_flag(name, value, help));
}

Option Command::add_flag(const std::string& name) const { return Option(app_->add_flag(name)); }

void Command::footer(const std::string& text) const { app_->footer(text); }

void Command::require_command() const { app_->require_subcommand(1); }

void Command::take_everything() const {
  app_->set_help_flag();
  app_->prefix_command();
}

std::vector<std::string> Command::everything() const { return app_->remaining(); }

void Command::runs(Action& action, Action body) const {
  app_->callback([&action, body = std::move(body)] { action = body; });
}

Option Command::option(const std::string& name) const { return Option(app_->get_option(name)); }

std::vector<Option> Command::options() const {
  std::vector<Option> all;
  for (CLI::Option* option : app_->get_options()) all.emplace_back(option);
  return all;
}

// ---- Program ----

Program::Program(const std::string& description, const std::string& name, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, name)) {
  if (!version.empty()) app_->set_version_flag("--version", version);
  app_->get_formatter()->column_width(34);
}

Program::~Program() = default;

int Program::run(int argc, char** argv, const Action& action) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    fmt::print(stderr, "{}: {}\n", app_->get_name(), unexpected(*app_));
    return misuse;
  } catch (const CLI::ParseError& e) {
    return app_->exit(e) == 0 ? 0 : misuse;
  }
  try {
    catch_interrupts();
    return action();
  } catch (const Interrupted&) {
    fmt::print(stderr, "interrupted\n");
    return 128 + interrupt_signal();
  } catch (const SampleError& e) {
    fmt::print(stderr, "{}: {}\n  utterance {}; to go on without bad samples: --on-bad-sample skip\n",
               app_->get_name(), e.what(), e.utterance);
    return found_a_problem;
  } catch (const Error& e) {
    fmt::print(stderr, "{}: {}\n", app_->get_name(), e.what());
    return misuse;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "{}: out of memory: lower batch_size, prefetch_buffer_size or max_mel_frames\n",
               app_->get_name());
    return found_a_problem;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", app_->get_name(), e.what());
    return found_a_problem;
  }
}

}  // namespace penstock::cli
