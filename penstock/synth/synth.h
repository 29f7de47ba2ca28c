// A spoken test dataset in LJSpeech layout, made by the espeak-ng program, or of tones without it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace penstock {

struct SynthOptions {
  std::int64_t clips = 100;
  std::uint64_t seed = 0;
  /// An espeak-ng voice, or `tone`, which needs no espeak-ng. `fa` reads Persian; every other voice, German
  /// or French too, reads English.
  std::string voice = "en";
  std::int32_t speakers = 1;         ///< 1 to 99
  std::string format = "wav";        ///< wav, flac, ogg or mp3
  std::int32_t sample_rate = 22050;  ///< 8000 to 48000; for mp3 one of MPEG's rates
  int threads = 1;                   ///< espeak-ng processes at a time
  /// Optional. One call at a time, from any thread. What it throws ends the work, and synthesize() throws it
  /// on.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

struct SynthResult {
  std::int64_t clips = 0;
  double hours = 0;
  double min_seconds = 0, mean_seconds = 0, max_seconds = 0;
};

/// Writes `folder`/metadata.csv (`id|text|normalised`, last, atomically) and `folder`/wavs/. Durations are
/// spread like LJSpeech's (1.1 to 10.1 s, mean 6.6 s). Ids are `s03-000123`: speaker, number, both from 1.
///
/// The same options give the same bytes for any `threads`, as long as espeak-ng and libsndfile stay the same.
/// Clip i does not depend on how many there are.
///
/// Throws Error: an option out of range, espeak-ng missing (naming the package) or failing, a voice it does
/// not have, a folder that already holds a dataset, a disk that is full. What was written of an unfinished
/// dataset is removed.
SynthResult synthesize(const std::filesystem::path& folder, const SynthOptions& options);

}  // namespace penstock
