#include "train/levels.h"

#include <algorithm>

#include <yaml-cpp/yaml.h>

#include "train/level_texts.h"

namespace penstock::train {

std::string level_name(OptimizationLevel level) {
  Config config;
  config.train.optimization_level = level;
  return std::ranges::find(config_keys(), "optimization_level", &ConfigKey::name)->get(config);
}

std::vector<std::pair<std::string, std::string>> level_settings(OptimizationLevel level) {
  const auto* text =
      std::ranges::find(level_texts, level_name(level), [](const auto& entry) { return entry.first; });
  std::vector<std::pair<std::string, std::string>> settings;
  for (const auto& entry : YAML::Load(std::string(text->second)))
    settings.emplace_back(entry.first.as<std::string>(), entry.second.as<std::string>());
  return settings;
}

}  // namespace penstock::train
