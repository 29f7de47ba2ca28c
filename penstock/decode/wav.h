// Where the samples of a plain WAV file lie, and what they are.
#pragma once
#include <cstdint>
#include <optional>

#include "penstock/core/types.h"
#include "penstock/decode/convert.h"
#include "penstock/decode/input.h"

namespace penstock {

struct Wav {
  AudioInfo info;
  SampleFormat format = SampleFormat::s16;
  std::int64_t data_offset = 0;  ///< info.samples x info.channels samples begin here, all inside the file
};

/// Reads a RIFF/WAVE header, skipping the chunks that it does not need. Nothing for what libsndfile should
/// try: RF64, RIFX, W64, A-law, ADPCM and everything else that is not PCM or float in a RIFF file. Throws
/// SampleError for a header that contradicts itself or the file's size.
///
/// A data size of 0 or of 0x7FFFF000 and more, where the file has no such amount, is what a program leaves
/// that writes to a pipe: the audio then goes on to the end of the file, to the last whole block.
std::optional<Wav> parse_wav(Input& input);

}  // namespace penstock
