// A signal that moves like speech and needs no synthesiser: for machines without espeak-ng, and for large
// test sets.
#pragma once
#include <cstdint>
#include <vector>

#include "penstock/synth/draws.h"

namespace penstock {

/// Syllables of gliding harmonics under two formants, in phrases with pauses between them, over a little
/// noise; exactly `samples` long. `pitch` is the speaker's mean fundamental in Hz.
std::vector<std::int16_t> speech_like_tone(std::size_t samples, std::int32_t sample_rate, double pitch,
                                           Draws& draws);

}  // namespace penstock
