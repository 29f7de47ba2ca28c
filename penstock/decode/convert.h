// Interleaved samples of any kind -> mono float; and float -> 16 bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace penstock {

/// How one sample lies in memory: little-endian, unaligned; unsigned for 8 bits, as WAV has it.
enum class SampleFormat { u8, s16, s24, s32, f32, f64 };

constexpr std::size_t bytes_per_sample(SampleFormat format) {
  switch (format) {
    case SampleFormat::u8:
      return 1;
    case SampleFormat::s16:
      return 2;
    case SampleFormat::s24:
      return 3;
    case SampleFormat::s32:
    case SampleFormat::f32:
      return 4;
    case SampleFormat::f64:
      return 8;
  }
  return 0;
}

/// Fills `out` from out.size() x channels samples at `in`. Integers become value / 2^(bits - 1), bit for bit
/// what libsndfile gives. Several channels become their mean: each is converted to float, the sum and the
/// division are double, the result is rounded to float once.
void to_mono(SampleFormat format, const std::byte* in, std::size_t channels, std::span<float> out);

/// out[i] = in[i] x 2^15, rounded to nearest (halves to even) and clamped: to_mono() of s16 gives back what a
/// 16-bit file held. `in` is finite.
void to_pcm16(std::span<const float> in, std::int16_t* out);

/// The number of the first NaN or infinity, if there is one.
std::optional<std::size_t> first_non_finite(std::span<const float> samples);

}  // namespace penstock
