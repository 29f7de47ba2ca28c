// The waveform as the frames see it: padded at both ends, in segments of hop samples, without a padded copy.
#pragma once
#include <cstdint>
#include <span>

#include "penstock/core/mel_options.h"

namespace penstock {

struct MelSegments {
  std::span<const float> audio;
  MelPad pad;
  std::int64_t padding;  ///< samples in front of the first
  std::int64_t hop;
  std::int64_t count;  ///< segments that some frame needs; others are silence

  /// Segment s, from (s * hop - padding) on: in the waveform itself where it lies inside, else written to
  /// `buffer` (hop).
  const float* at(std::int64_t s, float* buffer) const;
};

}  // namespace penstock
