#include "train/model.h"

#include <cmath>

namespace penstock::train {

MelRange mel_range(const MelOptions& mel) {
  const auto logged = [&](double x) {
    return mel.log == MelLog::ln ? std::log(x) : (mel.log == MelLog::db ? 10 : 1) * std::log10(x);
  };
  const double low = logged(mel.floor), high = logged(std::exp(2.0 * mel.power));
  return {.mean = (low + high) / 2, .deviation = (high - low) / 6};
}

}  // namespace penstock::train
