#include "penstock/monitor/utilisation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr std::size_t fewest = 20;

double percent(double share) { return std::round(share * 100); }

}  // namespace

std::string_view pressure_name(Pressure pressure) {
  static constexpr std::array names = {"unknown", "steady", "swings", "partly", "idle"};
  return names[static_cast<std::size_t>(pressure)];
}

UtilisationJudgement judge_utilisation(std::span<const double> values, double interval) {
  UtilisationJudgement j;
  std::vector<double> sorted(values.begin(), values.end());
  j.values = summarise(sorted);
  j.seconds = interval * static_cast<double>(values.size());
  if (values.empty()) return j;
  std::sort(sorted.begin(), sorted.end());
  j.low = sorted[sorted.size() / 10];
  j.high = sorted[sorted.size() - 1 - sorted.size() / 10];
  const auto under = std::lower_bound(sorted.begin(), sorted.end(), low_utilisation) - sorted.begin();
  j.low_share = static_cast<double>(under) / static_cast<double>(sorted.size());
  if (values.size() < fewest) return j;
  // A period within a few percent is nobody's trouble.
  if (const Oscillation found = find_oscillation(values); found && j.high - j.low > 0.1) {
    j.period_s = found.period * interval;
    j.strength = found.strength;
  }
  const bool wide = j.high - j.low > 0.3;
  if (j.values.mean >= 0.85 && j.low_share < 0.05)
    j.pressure = Pressure::steady;
  else if (wide && (j.values.cv > 0.5 || j.period_s > 0))
    j.pressure = Pressure::swings;
  else
    j.pressure = j.values.mean < low_utilisation ? Pressure::idle : Pressure::partly;
  return j;
}

std::string verdict(const UtilisationJudgement& j, std::string_view name) {
  std::string what(name);
  if (!what.empty()) what[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(what[0])));
  switch (j.pressure) {
    case Pressure::steady:
      return fmt::format("{} is kept busy: {:.0f} % on average.", what, percent(j.values.mean));
    case Pressure::swings:
      return fmt::format(
          "{} swings between {:.0f} % and {:.0f} %{}: it waits for something, again and again; most "
          "often for its data.",
          what, percent(j.low), percent(j.high),
          j.period_s > 0 ? fmt::format(" every {:.{}f} s", j.period_s, j.period_s < 10 ? 1 : 0) : "");
    case Pressure::partly:
      return fmt::format(
          "{} is busy {:.0f} % of the time, evenly: what it is given, or the steps between, "
          "leaves it the rest.",
          what, percent(j.values.mean));
    case Pressure::idle:
      return fmt::format("{} is hardly used: {:.0f} % on average.", what, percent(j.values.mean));
    case Pressure::unknown:
      break;
  }
  return fmt::format("{}: {} samples are too few to judge.", what, j.values.count);
}

}  // namespace penstock
