#include "penstock/decode/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

// The compiler's own vectors, chosen when the program starts. Sanitizers instrument the code that chooses,
// which then runs before they are ready, so there the baseline serves.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define PENSTOCK_FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PENSTOCK_FOR_EACH_CPU
#endif
#define PENSTOCK_INLINE __attribute__((always_inline)) inline

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "samples are read as they lie in memory");

template <typename T>
PENSTOCK_INLINE T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <SampleFormat format>
PENSTOCK_INLINE float sample(const std::byte* p) {
  if constexpr (format == SampleFormat::u8) {
    return static_cast<float>(static_cast<int>(*p) - 128) * 0x1p-7F;
  } else if constexpr (format == SampleFormat::s16) {
    return static_cast<float>(load<std::int16_t>(p)) * 0x1p-15F;
  } else if constexpr (format == SampleFormat::s24) {
    const auto bits = static_cast<std::uint32_t>(p[0]) << 8 | static_cast<std::uint32_t>(p[1]) << 16 |
                      static_cast<std::uint32_t>(p[2]) << 24;
    return static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31F;
  } else if constexpr (format == SampleFormat::s32) {
    return static_cast<float>(load<std::int32_t>(p)) * 0x1p-31F;
  } else if constexpr (format == SampleFormat::f32) {
    return load<float>(p);
  } else {
    return static_cast<float>(load<double>(p));
  }
}

template <SampleFormat format>
PENSTOCK_INLINE void average(const std::byte* in, std::size_t channels, std::span<float> out) {
  constexpr std::size_t width = bytes_per_sample(format);
  if (channels == 1) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = sample<format>(in + i * width);
  } else if (channels == 2) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double left = sample<format>(in + 2 * i * width);
      const double right = sample<format>(in + (2 * i + 1) * width);
      out[i] = static_cast<float>((left + right) * 0.5);
    }
  } else {
    for (float& mean : out) {
      double sum = 0;
      for (std::size_t c = 0; c < channels; ++c, in += width) sum += sample<format>(in);
      mean = static_cast<float>(sum / static_cast<double>(channels));
    }
  }
}

PENSTOCK_FOR_EACH_CPU bool all_finite(const float* samples, std::size_t n) {
  constexpr std::uint32_t exponent = 0x7f800000;
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < n; ++i)
    bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(samples[i]) & exponent) == exponent);
  return bad == 0;
}

}  // namespace

PENSTOCK_FOR_EACH_CPU void to_mono(SampleFormat format, const std::byte* in, std::size_t channels,
                                   std::span<float> out) {
  switch (format) {
    case SampleFormat::u8:
      return average<SampleFormat::u8>(in, channels, out);
    case SampleFormat::s16:
      return average<SampleFormat::s16>(in, channels, out);
    case SampleFormat::s24:
      return average<SampleFormat::s24>(in, channels, out);
    case SampleFormat::s32:
      return average<SampleFormat::s32>(in, channels, out);
    case SampleFormat::f32:
      return average<SampleFormat::f32>(in, channels, out);
    case SampleFormat::f64:
      return average<SampleFormat::f64>(in, channels, out);
  }
}

PENSTOCK_FOR_EACH_CPU void to_pcm16(std::span<const float> in, std::int16_t* out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float scaled = std::min(std::max(in[i] * 0x1p15F, -32768.0F), 32767.0F);
    // This large, a float has no bits behind the point: the addition rounds, and the whole number is in the
    // lowest bits.
    out[i] = static_cast<std::int16_t>(std::bit_cast<std::int32_t>(scaled + 0x1.8p23F));
  }
}

std::optional<std::size_t> first_non_finite(std::span<const float> samples) {
  if (all_finite(samples.data(), samples.size())) return std::nullopt;
  const auto bad = std::find_if(samples.begin(), samples.end(), [](float x) { return !std::isfinite(x); });
  return static_cast<std::size_t>(bad - samples.begin());
}

}  // namespace penstock
