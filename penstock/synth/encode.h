// Samples -> the bytes of an audio file. The same samples always give the same bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "penstock/synth/espeak.h"

namespace penstock {

/// Throws Error when `format` is not wav, flac, ogg (Vorbis) or mp3, or cannot hold the rate.
void check_format(std::string_view format, std::int32_t sample_rate);

/// A file of 16 bits a sample, or of the codec's own precision. Throws Error with libsndfile's reason.
std::vector<std::byte> encode(const Sound& sound, std::string_view format);

/// The same sound at another rate.
Sound resample(const Sound& sound, std::int32_t sample_rate);

}  // namespace penstock
