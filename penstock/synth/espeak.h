// The espeak-ng program: a text in, speech out.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

/// Mono PCM 16.
struct Sound {
  std::vector<std::int16_t> samples;
  std::int32_t sample_rate = 22050;

  [[nodiscard]] double seconds() const { return static_cast<double>(samples.size()) / sample_rate; }
};

struct Voice {
  std::string name;  ///< as espeak-ng takes it: `en-us+f2`
  int pitch = 50;    ///< 0 to 99
  int speed = 165;   ///< words per minute
};

/// Throws Error when espeak-ng is missing or does not have the voice.
void check_voice(const std::string& name);

/// Runs espeak-ng once and waits for it; may be called from many threads. Throws Error when it fails.
Sound speak(const Voice& voice, const std::string& text);

}  // namespace penstock
