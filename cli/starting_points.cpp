#include "cli/starting_points.h"

#include <algorithm>
#include <cctype>

#include <yaml-cpp/yaml.h>

#include "cli/starting_points_text.h"

namespace penstock::cli {
namespace {

/// Its words in small letters: nvidia, geforce, rtx, 4090.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else
      words.emplace_back();
  return words;
}

std::string without_rtx(std::string_view word) {
  return std::string(word.starts_with("rtx") ? word.substr(3) : word);
}

}  // namespace

std::optional<StartingPoint> starting_point(std::string_view gpu) {
  const std::vector<std::string> words = words_of(gpu);
  if (std::ranges::find(words, "laptop") != words.end()) return std::nullopt;
  for (const auto& [name, text] : starting_point_texts) {
    const std::string model = without_rtx(name);
    if (std::ranges::find(words, model, without_rtx) == words.end()) continue;
    StartingPoint point{.name = std::string(name)};
    for (const auto& entry : YAML::Load(std::string(text)))
      point.settings.emplace_back(entry.first.as<std::string>(), entry.second.as<std::string>());
    return point;
  }
  return std::nullopt;
}

std::vector<std::string> starting_point_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : starting_point_texts) names.emplace_back(name);
  return names;
}

}  // namespace penstock::cli
