#include "penstock/synth/encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>

#include <fmt/format.h>
#include <sndfile.h>
#include <soxr.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

struct Format {
  std::string_view name;
  int sndfile;
};

constexpr std::array<Format, 4> formats = {{{"wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16},
                                            {"flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16},
                                            {"ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS},
                                            {"mp3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III}}};

const Format* find_format(std::string_view name) {
  const auto* found =
      std::find_if(formats.begin(), formats.end(), [&](const Format& f) { return f.name == name; });
  return found == formats.end() ? nullptr : found;
}

/// A file in memory, as libsndfile wants to see it.
struct MemoryFile {
  std::vector<std::byte> bytes;
  sf_count_t position = 0;

  static MemoryFile& of(void* user) { return *static_cast<MemoryFile*>(user); }
  static sf_count_t length(void* user) { return static_cast<sf_count_t>(of(user).bytes.size()); }
  static sf_count_t tell(void* user) { return of(user).position; }

  static sf_count_t seek(sf_count_t offset, int whence, void* user) {
    const sf_count_t start = whence == SEEK_CUR ? tell(user) : whence == SEEK_END ? length(user) : 0;
    return of(user).position = start + offset;
  }

  static sf_count_t read(void* to, sf_count_t count, void* user) {
    const sf_count_t n = std::clamp<sf_count_t>(length(user) - tell(user), 0, count);
    std::memcpy(to, of(user).bytes.data() + tell(user), static_cast<std::size_t>(n));
    of(user).position += n;
    return n;
  }

  static sf_count_t write(const void* from, sf_count_t count, void* user) {
    auto& file = of(user);
    try {
      file.bytes.resize(static_cast<std::size_t>(std::max(length(user), file.position + count)));
    } catch (const std::bad_alloc&) {
      return 0;  // no exception may pass through libsndfile's C; it reports the short write
    }
    std::memcpy(file.bytes.data() + file.position, from, static_cast<std::size_t>(count));
    file.position += count;
    return count;
  }
};

// ---- Ogg: libsndfile draws the stream's serial number at random; a fixed one makes the bytes repeatable.

/// The CRC of Ogg pages: polynomial 0x04c11db7, high bit first, starting at 0 and not inverted.
std::uint32_t ogg_crc(std::span<const std::byte> page) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      t[i] = i << 24;
      for (int bit = 0; bit < 8; ++bit) t[i] = (t[i] << 1) ^ ((t[i] >> 31) * 0x04c11db7u);
    }
    return t;
  }();
  std::uint32_t crc = 0;
  for (const std::byte b : page) crc = (crc << 8) ^ table[(crc >> 24) ^ std::to_integer<std::uint32_t>(b)];
  return crc;
}

void put_little(std::span<std::byte> page, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) page[at + i] = static_cast<std::byte>(value >> (8 * i));
}

/// A page: "OggS", version, flags, granule (8), serial (4) at 14, sequence (4), CRC (4) at 22, the number of
/// segments at 26, their lengths, the segments. The CRC is over the whole page with zeros in its own place.
void fix_ogg_serial(std::span<std::byte> file) {
  constexpr std::size_t header = 27, serial_at = 14, crc_at = 22, segments_at = 26;
  while (!file.empty()) {
    const auto number = [&](std::size_t at) { return std::to_integer<std::size_t>(file[at]); };
    if (file.size() < header || std::memcmp(file.data(), "OggS", 4) != 0 ||
        file.size() < header + number(segments_at))
      throw Error("ogg: the encoder's output is not a sequence of Ogg pages");
    std::size_t size = header + number(segments_at);
    for (std::size_t i = 0; i < number(segments_at); ++i) size += number(header + i);
    const auto page = file.first(std::min(size, file.size()));
    put_little(page, serial_at, 1);
    put_little(page, crc_at, 0);
    put_little(page, crc_at, ogg_crc(page));
    file = file.subspan(page.size());
  }
}

}  // namespace

void check_format(std::string_view format, std::int32_t sample_rate) {
  if (find_format(format) == nullptr)
    throw Error(fmt::format("format must be wav, flac, ogg or mp3, but is '{}'", format));
  constexpr std::array mpeg_rates = {8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000};
  if (format == "mp3" && std::find(mpeg_rates.begin(), mpeg_rates.end(), sample_rate) == mpeg_rates.end())
    throw Error(fmt::format("sample_rate must be one of {} for mp3, but is {}", fmt::join(mpeg_rates, ", "),
                            sample_rate));
}

std::vector<std::byte> encode(const Sound& sound, std::string_view format) {
  check_format(format, sound.sample_rate);
  const auto fail = [&](const char* reason) {
    throw Error(fmt::format("{} cannot be encoded: {}", format, reason));
  };

  MemoryFile file;
  SF_VIRTUAL_IO io{MemoryFile::length, MemoryFile::seek, MemoryFile::read, MemoryFile::write,
                   MemoryFile::tell};
  SF_INFO info{};
  info.samplerate = sound.sample_rate;
  info.channels = 1;
  info.format = find_format(format)->sndfile;
  std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> out(sf_open_virtual(&io, SFM_WRITE, &info, &file), sf_close);
  if (!out) fail(sf_strerror(nullptr));

  constexpr std::size_t block =
      4096;  // some encoders of libsndfile take stack memory for all that one call hands over
  for (std::span<const std::int16_t> rest = sound.samples; !rest.empty();) {
    const auto now = rest.first(std::min(block, rest.size()));
    if (sf_write_short(out.get(), now.data(), static_cast<sf_count_t>(now.size())) !=
        static_cast<sf_count_t>(now.size()))
      fail(sf_strerror(out.get()));
    rest = rest.subspan(now.size());
  }
  if (const int code = sf_close(out.release()); code != 0) fail(sf_error_number(code));
  if (format == "ogg") fix_ogg_serial(file.bytes);
  return std::move(file.bytes);
}

Sound resample(const Sound& sound, std::int32_t sample_rate) {
  if (sample_rate == sound.sample_rate) return sound;
  const double ratio = static_cast<double>(sample_rate) / sound.sample_rate;
  Sound out{.samples = {}, .sample_rate = sample_rate};
  out.samples.resize(
      static_cast<std::size_t>(std::llround(static_cast<double>(sound.samples.size()) * ratio)));
  soxr_io_spec_t io = soxr_io_spec(SOXR_INT16_I, SOXR_INT16_I);
  io.flags = SOXR_NO_DITHER;
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  std::size_t done = 0;
  const soxr_error_t error =
      soxr_oneshot(sound.sample_rate, sample_rate, 1, sound.samples.data(), sound.samples.size(), nullptr,
                   out.samples.data(), out.samples.size(), &done, &io, &quality, nullptr);
  if (error != nullptr)
    throw Error(fmt::format("resampling {} Hz to {} Hz: {}", sound.sample_rate, sample_rate, error));
  out.samples.resize(done);
  return out;
}

}  // namespace penstock
