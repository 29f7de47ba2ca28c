// What the compressed formats have in common: a length that is known first, then blocks of samples.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "penstock/core/types.h"
#include "penstock/decode/input.h"

namespace penstock {

class AudioReader {
 public:
  virtual ~AudioReader() = default;

  [[nodiscard]] virtual AudioInfo info() const = 0;

  /// Decodes the next samples, channels interleaved, and returns how many: a multiple of the channels, 0 at
  /// the end. Throws SampleError.
  virtual std::size_t read(std::span<float> interleaved) = 0;
};

/// Both refer to `input`, which must outlive the reader, and throw SampleError.
std::unique_ptr<AudioReader> open_mp3(Input& input);
std::unique_ptr<AudioReader> open_sndfile(Input& input);

/// Whether this is MPEG audio: a frame header at the start, or an ID3 tag that no other format follows.
bool is_mp3(Input& input);

}  // namespace penstock
