#include "cli/pack_table.h"

#include <chrono>

#include <fmt/format.h>

#include "cli/terminal.h"

namespace penstock::cli {
namespace {

double seconds_after(std::int64_t ns) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now - std::chrono::nanoseconds(ns)).count();
}

}  // namespace

void print_packs(const std::vector<ListedPack>& packs) {
  fmt::print("  {:<8} {:>8}  {:>8}  {:>8}  {:>9}  {}\n", "array", "records", "size", "age", "last used",
             "parameters (of another configuration's: what differs)");
  const auto age = [](std::int64_t ns) { return ns > 0 ? age_text(seconds_after(ns)) : std::string("-"); };
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
