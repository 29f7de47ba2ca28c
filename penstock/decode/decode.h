// File bytes -> a mono waveform at the wanted rate.
//
// Plain WAV (PCM 8/16/24/32, float 32/64, extensible) takes a path of our own that allocates nothing; MP3
// goes through mpg123 and every other format through libsndfile (FLAC, OGG, Opus, and whatever else it
// reads). Samples are scaled as libsndfile scales them. Channels are averaged. Other rates are resampled with
// soxr, or refused.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "penstock/core/file.h"
#include "penstock/core/types.h"

namespace penstock {

struct DecodeOptions {
  std::int32_t sample_rate = 22050;
  bool resample = true;  ///< false: another rate is a SampleError
};

/// Changes when the same file gives other samples: part of every fingerprint that depends on them.
inline constexpr int decode_version = 1;

/// The length and rate of a file's audio, without decoding it: a WAV's header is read, a FLAC's too; an OGG's
/// or Opus' last page as well, and an MP3's frame headers are counted. Throws SampleError{"decode", path,
/// ...} for anything that is not audio, is damaged or is empty, and SampleError{"read", path, ...} for what
/// cannot be read (a directory, a failing disk).
AudioInfo probe_audio(const File& file, std::string_view path);

/// Samples that `samples` at rate `from` become at rate `to`, halves rounded up: what decode() returns,
/// exactly.
std::int64_t resampled_length(std::int64_t samples, std::int32_t from, std::int32_t to);

/// One per worker: it owns the memory that the waveform is decoded into. Not thread-safe.
class Decoder {
 public:
  /// Throws Error for a sample rate out of range.
  explicit Decoder(const DecodeOptions& options);
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  /// Decodes a whole file that has been read into memory. The result is valid until the next call; it has
  /// resampled_length(info.samples, info.sample_rate, options.sample_rate) samples, all finite, where info is
  /// what probe_audio() says of the file. `path` is for messages. Throws SampleError{"decode", path, ...}.
  std::span<const float> decode(std::span<const std::byte> bytes, std::string_view path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
