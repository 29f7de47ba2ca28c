#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/optimizer.h"

namespace penstock::train {

double Schedule::at(std::int64_t update) const {
  const double n = static_cast<double>(std::max<std::int64_t>(update, 0));
  const double warm = static_cast<double>(std::max<std::int64_t>(warm_up, 0));
  const double least = std::clamp(floor, 1e-6, 1.0);
  if (n < warm) return peak * (n + 1) / warm;
  switch (kind) {
    case Kind::constant:
      break;
    case Kind::cosine: {
      const double left = std::max(1.0, static_cast<double>(total) - warm);
      const double done = std::min(1.0, (n - warm) / left);
      return peak * (least + (1 - least) * 0.5 * (1 + std::cos(std::numbers::pi * done)));
    }
    case Kind::noam:
      return peak * std::max(least, std::sqrt(std::max(1.0, warm) / (n + 1)));
  }
  return peak;
}

}  // namespace penstock::train
