#include "penstock/decode/wav.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

namespace penstock {
namespace {

enum FormatTag : std::uint16_t { tag_pcm = 1, tag_float = 3, tag_extensible = 0xFFFE };
constexpr std::int64_t streaming_size = 0x7FFFF000;  // sox and ffmpeg leave this, 0x7FFFFFFF or 0xFFFFFFFF
constexpr int most_chunks = 4096;                    // a file of zeros is an endless row of empty chunks

struct Chunk {
  std::int64_t offset = 0;  ///< of its content
  std::int64_t size = 0;    ///< as declared
};

struct Format {
  std::uint16_t tag = 0;
  int channels = 0;
  std::uint32_t sample_rate = 0;
  int block = 0;
  int bits = 0;
};

template <typename T>
T field(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string_view text(std::span<const std::byte> bytes, std::size_t at) {
  return {reinterpret_cast<const char*>(bytes.data()) + at, 4};
}

/// The walk from chunk to chunk, until "fmt " and "data" have been seen, in any order.
struct Chunks {
  std::optional<Chunk> format;
  std::optional<Chunk> data;
};

Chunks find_chunks(Input& input) {
  Chunks found;
  std::int64_t at = 12;
  for (int n = 0; !(found.format && found.data); ++n) {
    std::array<std::byte, 8> head;
    if (n == most_chunks || input.read_at(at, head) < head.size())
      input.fail(fmt::format("WAV must have a \"{}\" chunk, but none is in the {} bytes up to the {}",
                             found.format ? "data" : "fmt ", std::min(at, input.size()),
                             n == most_chunks ? "4096th chunk" : "end of the file"));
    const Chunk chunk{.offset = at + 8, .size = field<std::uint32_t>(head, 4)};
    if (text(head, 0) == "fmt " && !found.format) found.format = chunk;
    if (text(head, 0) == "data" && !found.data) found.data = chunk;
    at = chunk.offset + chunk.size + chunk.size % 2;
  }
  return found;
}

Format read_format(Input& input, const Chunk& chunk) {
  std::array<std::byte, 40> bytes{};
  const auto wanted = static_cast<std::size_t>(std::min<std::int64_t>(chunk.size, bytes.size()));
  if (wanted < 16)
    input.fail(fmt::format("\"fmt \" chunk must have at least 16 bytes, but has {}", chunk.size));
  if (const auto n = input.read_at(chunk.offset, std::span(bytes).first(wanted)); n < wanted)
    input.fail(
        fmt::format("truncated: the \"fmt \" chunk promises {} bytes, but {} are there", chunk.size, n));
  Format format{.tag = field<std::uint16_t>(bytes, 0),
                .channels = field<std::uint16_t>(bytes, 2),
                .sample_rate = field<std::uint32_t>(bytes, 4),
                .block = field<std::uint16_t>(bytes, 12),
                .bits = field<std::uint16_t>(bytes, 14)};
  if (format.tag == tag_extensible) {
    if (wanted < 40)
      input.fail(
          fmt::format("extensible \"fmt \" chunk must have at least 40 bytes, but has {}", chunk.size));
    // A GUID whose last 14 bytes are these carries an ordinary tag in its first two.
    constexpr std::array<unsigned char, 14> wave_guid{0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x80,
                                                      0x00, 0x00, 0xAA, 0x00, 0x38, 0x9B, 0x71};
    if (std::memcmp(bytes.data() + 26, wave_guid.data(), wave_guid.size()) == 0)
      format.tag = field<std::uint16_t>(bytes, 24);
  }
  return format;
}

SampleFormat sample_format(const Input& input, const Format& format) {
  if (format.channels == 0) input.fail("WAV must have at least 1 channel, but has 0");
  const int width = (format.bits + 7) / 8;
  if (format.tag == tag_pcm ? width < 1 || width > 4 : format.bits != 32 && format.bits != 64)
    input.fail(fmt::format("WAV must have {} bits a sample, but has {}",
                           format.tag == tag_pcm ? "1 to 32" : "32 or 64 floating-point", format.bits));
  if (format.block != width * format.channels)
    input.fail(fmt::format("WAV block must be {} bytes ({} channels of {} bits), but is {}",
                           width * format.channels, format.channels, format.bits, format.block));
  if (format.tag == tag_float) return format.bits == 32 ? SampleFormat::f32 : SampleFormat::f64;
  constexpr std::array pcm{SampleFormat::u8, SampleFormat::s16, SampleFormat::s24, SampleFormat::s32};
  return pcm[static_cast<std::size_t>(width - 1)];
}

std::int64_t count_blocks(const Input& input, const Chunk& data, int block) {
  const std::int64_t there = input.size() - data.offset;
  if (data.size == 0 || (data.size > there && data.size >= streaming_size)) return there / block;
  if (data.size > there)
    input.fail(
        fmt::format("truncated: the header promises {} bytes of audio, but {} are there", data.size, there));
  if (data.size % block != 0)
    input.fail(fmt::format("audio must be whole blocks of {} bytes, but has {} bytes", block, data.size));
  return data.size / block;
}

}  // namespace

std::optional<Wav> parse_wav(Input& input) {
  std::array<std::byte, 12> head;
  if (input.read_at(0, head) < head.size() || text(head, 0) != "RIFF" || text(head, 8) != "WAVE")
    return std::nullopt;
  const Chunks chunks = find_chunks(input);
  const Format format = read_format(input, *chunks.format);
  if (format.tag != tag_pcm && format.tag != tag_float) return std::nullopt;
  const SampleFormat samples = sample_format(input, format);
  return Wav{.info = {.samples = count_blocks(input, *chunks.data, format.block),
                      .sample_rate =
                          static_cast<std::int32_t>(std::min<std::uint32_t>(format.sample_rate, INT32_MAX)),
                      .channels = format.channels},
             .format = samples,
             .data_offset = chunks.data->offset};
}

}  // namespace penstock
