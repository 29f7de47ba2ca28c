// Is something kept busy? The judgement of a series of utilisation.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "penstock/monitor/series.h"

namespace penstock {

enum class Pressure : std::uint8_t {
  unknown,  ///< too few samples
  steady,   ///< kept busy
  swings,   ///< busy and idle by turns: it waits for something, again and again
  partly,   ///< busy a part of the time
  idle,     ///< hardly used
};
std::string_view pressure_name(Pressure pressure);

struct UtilisationJudgement {
  Pressure pressure = Pressure::unknown;
  SeriesSummary values;      ///< 0..1
  double low_share = 0;      ///< of the time, under low_utilisation
  double low = 0, high = 0;  ///< a tenth of the values is below the one, a tenth above the other
  double period_s = 0;       ///< of its swings; 0: none
  double strength = 0;       ///< of the period, 0..1
  double seconds = 0;
};

constexpr double low_utilisation = 0.2;

/// `values` are evenly spaced: `interval` seconds apart.
UtilisationJudgement judge_utilisation(std::span<const double> values, double interval);

/// One sentence about `what` ("GPU 0"): "GPU 0 swings between 2 % and 40 % every 1.8 s: ...".
std::string verdict(const UtilisationJudgement& judgement, std::string_view what);

}  // namespace penstock
