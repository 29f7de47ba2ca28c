// `cache list`: the packs of a dataset and what they have to do with a configuration.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "penstock/feed/cache.h"
#include "penstock/feed/store.h"

namespace penstock {
namespace {

using Parameters = std::vector<std::pair<std::string, std::string>>;

/// What most people ask about a pack, where it has it.
std::string main_parameters(const Parameters& parameters) {
  static constexpr std::array<std::string_view, 10> keys{
      "cache_type", "sample_rate", "n_fft", "hop_length", "n_mels",
      "symbols",    "add_blank",   "along", "width",      "type"};
  std::vector<std::string> shown;
  for (const auto& [key, value] : parameters)
    if (std::ranges::find(keys, key) != keys.end()) shown.push_back(fmt::format("{} {}", key, value));
  return fmt::format("{}", fmt::join(shown, ", "));
}

std::string difference(const Parameters& its, const Parameters& ours) {
  std::vector<std::string> shown;
  for (const auto& [key, value] : its) {
    const auto here = std::ranges::find(ours, key, [](const auto& p) { return p.first; });
    if (here == ours.end() || here->second != value) shown.push_back(fmt::format("{} {}", key, value));
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

}  // namespace

Parameters pack_parameters(const PackIdentity& identity) {
  Parameters out;
  std::string_view text = identity.parameters;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (const std::size_t colon = line.find(": "); colon != std::string_view::npos)
      out.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  return out;
}

std::vector<ListedPack> listed_packs(const Config& config, const Dataset& dataset) {
  const std::vector<StoredArray> arrays = stored_arrays(config, dataset);
  std::vector<ListedPack> out;
  for (PackSummary& pack : list_packs(pack_folder(config, dataset))) {
    const Parameters its = pack_parameters(pack.identity);
    ListedPack listed{.difference = main_parameters(its)};
    for (const StoredArray& array : arrays) {
      if (array.identity.array != pack.identity.array) continue;
      listed.current = array.folder.filename() == pack.folder.filename();
      if (!listed.current) listed.difference = difference(its, pack_parameters(array.identity));
    }
    listed.pack = std::move(pack);
    out.push_back(std::move(listed));
  }
  return out;
}

}  // namespace penstock
