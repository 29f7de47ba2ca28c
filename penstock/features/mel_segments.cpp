#include "penstock/features/mel_segments.h"

#include <algorithm>

namespace penstock {
namespace {

/// Where numpy.pad's reflection of a clip finds its value.
std::int64_t reflected(std::int64_t at, std::int64_t samples) {
  if (samples == 1) return 0;
  const std::int64_t period = 2 * (samples - 1);
  // The usual case, one reflection, needs no division.
  if (at < -period || at >= 2 * period) at %= period;
  if (at < 0) at += period;
  if (at >= period) at -= period;
  return std::min(at, period - at);
}

}  // namespace

const float* MelSegments::at(std::int64_t s, float* buffer) const {
  const std::int64_t first = s * hop - padding, samples = static_cast<std::int64_t>(audio.size());
  if (s < 0 || s >= count) {
    std::fill_n(buffer, hop, 0.0F);
    return buffer;
  }
  if (first >= 0 && first + hop <= samples) return audio.data() + first;
  for (std::int64_t i = 0; i < hop; ++i) {
    const std::int64_t at = first + i;
    if (at >= 0 && at < samples)
      buffer[i] = audio[at];
    else
      buffer[i] = pad == MelPad::constant ? 0.0F : audio[reflected(at, samples)];
  }
  return buffer;
}

}  // namespace penstock
