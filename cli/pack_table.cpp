#include "cli/pack_table.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "penstock/feed/store.h"

namespace penstock::cli {
namespace {

using nlohmann::json;
using Parameters = std::vector<std::pair<std::string, std::string>>;

Parameters parse(std::string_view text) {
  Parameters out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (const std::size_t colon = line.find(": "); colon != std::string_view::npos)
      out.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  return out;
}

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

double seconds_since(std::int64_t ns) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now - std::chrono::nanoseconds(ns)).count();
}

}  // namespace

std::vector<ListedPack> listed_packs(const Config& config, const Dataset& dataset) {
  const std::vector<StoredArray> arrays = stored_arrays(config, dataset);
  std::vector<ListedPack> out;
  for (PackSummary& pack : list_packs(pack_folder(config, dataset))) {
    const Parameters its = parse(pack.identity.parameters);
    ListedPack listed{.difference = main_parameters(its)};
    for (const StoredArray& array : arrays) {
      if (array.identity.array != pack.identity.array) continue;
      listed.current = array.folder.filename() == pack.folder.filename();
      if (!listed.current) listed.difference = difference(its, parse(array.identity.parameters));
    }
    listed.pack = std::move(pack);
    out.push_back(std::move(listed));
  }
  return out;
}

json packs_json(const std::vector<ListedPack>& packs) {
  json out = json::array();
  for (const auto& [pack, current, difference] : packs) {
    json parameters = json::object();
    for (const auto& [key, value] : parse(pack.identity.parameters)) parameters[key] = value;
    out.push_back({{"array", pack.identity.array},
                   {"folder", pack.folder.string()},
                   {"current", current},
                   {"records", pack.records},
                   {"shards", pack.shards},
                   {"bytes", pack.bytes},
                   {"written", static_cast<double>(pack.written_ns) * 1e-9},
                   {"used", static_cast<double>(pack.used_ns) * 1e-9},
                   {"parameters", parameters},
                   {"leftovers", pack.leftovers},
                   {"problem", pack.problem}});
  }
  return out;
}

void print_packs(const std::vector<ListedPack>& packs) {
  fmt::print("  {:<8} {:>8}  {:>8}  {:>8}  {:>9}  {}\n", "array", "records", "size", "age", "last used",
             "parameters (of another configuration's: what differs)");
  const auto age = [](std::int64_t ns) { return ns > 0 ? age_text(seconds_since(ns)) : std::string("-"); };
  for (const auto& [pack, current, difference] : packs) {
    fmt::print("{} {:<8} {:>8}  {:>8}  {:>8}  {:>9}  {}\n", current ? '*' : ' ', pack.identity.array,
               pack.records, bytes_text(pack.bytes), age(pack.written_ns), age(pack.used_ns), difference);
    if (!pack.problem.empty())
      fmt::print("    problem: {}/{}\n", pack.folder.filename().string(), pack.problem);
    for (const std::string& name : pack.leftovers)
      fmt::print(
          "    left over from a build that is not running: {}/{} (the next build goes on from there)\n",
          pack.folder.filename().string(), name);
  }
}

}  // namespace penstock::cli
