#include "cli/flags.h"

#include <algorithm>

#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock::cli {
namespace {

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

const ConfigKey& key_named(std::string_view name) {
  const auto keys = config_keys();
  return *std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.name == name; });
}

}  // namespace

ConfigFlags::ConfigFlags(const Command& command, const std::vector<std::string>& own, bool trainer)
    : trainer_(trainer) {
  command.add_option("DIR", folder_, "the dataset's folder (dataset_path)");
  command.add_option("--config", file_, "settings from a YAML file; flags win over it").type_name("FILE");
  command.add_flag("--print-config", print_, "show every setting and where it came from, then stop");
  for (const ConfigKey& key : config_keys())
    if ((trainer || !key.trainer) && std::ranges::find(own, key.name) == own.end())
      add(command, key.name, key.kind == ValueKind::boolean, key.help,
          "Settings (also keys of the YAML file)");
  for (const ConfigAlias& alias : config_aliases())
    if (const ConfigKey& key = key_named(alias.key); trainer || !key.trainer)
      add(command, std::string(alias.name), key.kind == ValueKind::boolean, "", "");
  for (const RetiredKey& key : retired_keys()) add(command, std::string(key.name), key.boolean, "", "");
}

void ConfigFlags::add(const Command& command, const std::string& key, bool boolean, const std::string& help,
                      const std::string& group) {
  const std::string name = "--" + dashed(key);
  Flag& flag = flags_.emplace_back(Flag{.key = key, .origin = name});
  if (!boolean) {
    flag.option = command.add_option(name, flag.value, help).type_name("").group(group);
    if (key == "extra") flag.option.join(',');
    return;
  }
  const std::string off = "--disable-" + dashed(key);
  flag.option =
      command.add_flag(name, flag.value, help.empty() ? "" : fmt::format("{} ({})", help, off)).group(group);
  Flag& negated = flags_.emplace_back(Flag{.key = key, .value = "false", .origin = off});
  negated.option = command.add_flag(off).group("");
}

void ConfigFlags::set(const std::string& key, const std::string& value, const std::string& origin) {
  flags_.push_back({.key = key, .value = value, .origin = origin});
}

void ConfigFlags::set_default(const std::string& key, const std::string& value, const std::string& origin) {
  defaults_.push_back({.key = key, .value = value, .origin = origin});
}

ConfigLoader ConfigFlags::collect() const {
  ConfigLoader loader;
  for (const Flag& flag : defaults_) loader.set_default(flag.key, flag.value, flag.origin);
  if (!file_.empty()) loader.load_yaml(file_);
  if (!folder_.empty()) loader.set("dataset_path", folder_, "DIR");
  for (const Flag& flag : flags_)
    if (!flag.option || flag.option.given()) loader.set(flag.key, flag.value, flag.origin);
  return loader;
}

bool ConfigFlags::load(Config& config) const {
  const ConfigLoader loader = collect();
  for (const std::string& note : loader.notes()) fmt::print(stderr, "note: {}\n", note);
  config = loader.config();
  if (print_) {
    fmt::print("{}", loader.print(trainer_));
    return false;
  }
  if (config.dataset_path.empty() && config.train_data.empty() && config.metadata_train_file.empty())
    throw Error("which dataset? Give its folder, or --train-data");
  return true;
}

std::string_view mode_name(PreprocessingMode mode) {
  return mode == PreprocessingMode::runtime      ? "live"
         : mode == PreprocessingMode::precompute ? "cached"
                                                 : "auto";
}

}  // namespace penstock::cli
