// A trained checkpoint speaks: text becomes a mel, and the mel a waveform (Griffin-Lim).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace penstock::train {

struct SayOptions {
  std::filesystem::path checkpoint;  ///< a run's folder (its newest checkpoint), or a checkpoint's
  std::string text;                  ///< UTF-8
  /// A clip whose voice and style are wanted; without it those that the model has when it is told none.
  std::optional<std::filesystem::path> reference;
  double most_seconds = 20;  ///< for a text whose end the model does not find
};

struct Speech {
  std::vector<float> audio;
  std::int32_t sample_rate = 0;
  std::vector<float> mel;  ///< [frames, bins], as the feed delivers it
  std::int64_t frames = 0, bins = 0;
  bool ended = false;  ///< by the stop head
  bool averaged =
      false;  ///< spoken with the averaged weights (EMA): once training has gone on for long enough
};

/// Throws Error: a folder that is no checkpoint, a character that the run's symbol table does not have,
/// a reference that is no audio.
Speech say(const SayOptions& options);

}  // namespace penstock::train
