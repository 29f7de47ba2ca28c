// One clip of a synthetic dataset: who speaks, what, for how long. Everything follows from the options and
// the clip's number alone, so that clips can be made in any order on any number of threads.
#pragma once
#include <cstdint>
#include <string>

#include "penstock/synth/espeak.h"
#include "penstock/synth/sentences.h"
#include "penstock/synth/synth.h"

namespace penstock {

struct Clip {
  std::string id;
  Line text;
  Sound sound;  ///< at the options' sample rate
};

inline constexpr double shortest_clip = 1.1, longest_clip = 10.1;  // seconds, as in LJSpeech

/// How long a clip should be. Over many clips: LJSpeech's spread, with mean 6.6 s and standard deviation 2.2
/// s.
double target_seconds(std::uint64_t seed, std::int64_t number);

/// The clip's speaker, from 0. Each `speakers` clips in a row have all of them, in an order drawn from the
/// seed.
std::int32_t speaker_of(std::uint64_t seed, std::int64_t number, std::int32_t speakers);

/// A voice for each speaker from 0 to 98, all different; speaker 0 has the plain one. `en` spreads them over
/// accents too, and a variant that the name has already (`en+f2`) is kept.
Voice speaker_voice(const std::string& voice, std::int32_t speaker);

/// Clip `number` (from 0) of a dataset. Throws Error when espeak-ng fails.
Clip make_clip(const SynthOptions& options, std::int64_t number);

}  // namespace penstock
