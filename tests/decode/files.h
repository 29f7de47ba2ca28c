// Audio files for the tests: WAV written byte by byte, the other formats through libsndfile.
#pragma once
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sndfile.h>
#include <sys/mman.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/decode/decode.h"
#include "tests/temp_folder.h"

namespace penstock::test {

using Bytes = std::vector<std::byte>;

template <typename T>
void append(Bytes& bytes, const T& value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}
inline void append_text(Bytes& bytes, std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}
template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto raw = std::as_bytes(std::span(values));
  return {raw.begin(), raw.end()};
}

/// A WAV file; whatever a test wants wrong it sets here.
struct WavFile {
  std::uint16_t tag = 1;
  std::uint16_t channels = 1;
  std::uint32_t sample_rate = 22050;
  std::uint16_t bits = 16;
  Bytes data = bytes_of(std::vector<std::int16_t>{0, 1, -1, 32767, -32768, 1000});
  std::int64_t declared = -1;  ///< size in the data chunk's header; -1: the true one
  std::int32_t block = -1;     ///< -1: the right one
  bool extensible = false;     ///< `tag` goes into the sub-format
  Bytes before_format = {};    ///< whole chunks
  Bytes between = {};
  Bytes behind = {};

  [[nodiscard]] Bytes bytes() const {
    Bytes b;
    append_text(b, "RIFF");
    append(b, std::uint32_t{0});  // nobody looks at it
    append_text(b, "WAVE");
    b.insert(b.end(), before_format.begin(), before_format.end());
    append_text(b, "fmt ");
    append(b, std::uint32_t{extensible ? 40U : 16U});
    append(b, extensible ? std::uint16_t{0xFFFE} : tag);
    append(b, channels);
    append(b, sample_rate);
    const auto right = static_cast<std::uint16_t>(channels * ((bits + 7) / 8));
    append(b, static_cast<std::uint32_t>(sample_rate * right));
    append(b, block < 0 ? right : static_cast<std::uint16_t>(block));
    append(b, bits);
    if (extensible) {
      append(b, std::uint16_t{22});
      append(b, bits);
      append(b, std::uint32_t{0});
      append(b, tag);
      for (const int byte : {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71})
        b.push_back(static_cast<std::byte>(byte));
    }
    b.insert(b.end(), between.begin(), between.end());
    append_text(b, "data");
    append(b, static_cast<std::uint32_t>(declared < 0 ? static_cast<std::int64_t>(data.size()) : declared));
    b.insert(b.end(), data.begin(), data.end());
    if (!behind.empty() && data.size() % 2 == 1) b.push_back(std::byte{0});
    b.insert(b.end(), behind.begin(), behind.end());
    return b;
  }
};

/// A chunk of `size` bytes, and the pad byte where that is odd.
inline Bytes chunk(std::string_view id, std::uint32_t size) {
  Bytes b;
  append_text(b, id);
  append(b, size);
  b.resize(b.size() + size + size % 2, std::byte{0x5A});
  return b;
}

/// Two sines with an envelope: something that codecs have to work for.
inline std::vector<float> tones(std::size_t samples, double rate) {
  std::vector<float> x(samples);
  for (std::size_t i = 0; i < samples; ++i) {
    const double t = static_cast<double>(i) / rate;
    const double envelope = 0.5 + 0.5 * std::sin(2 * std::numbers::pi * 3 * t);
    x[i] = static_cast<float>(envelope * (0.3 * std::sin(2 * std::numbers::pi * 220 * t) +
                                          0.2 * std::sin(2 * std::numbers::pi * 1730 * t)));
  }
  return x;
}

/// The file that libsndfile writes for the same signal in all channels.
inline Bytes encode(int format, std::size_t samples, int rate, int channels = 1) {
  const TempFolder folder;
  const std::string path = folder / "audio";
  SF_INFO info{
      .frames = 0, .samplerate = rate, .channels = channels, .format = format, .sections = 0, .seekable = 0};
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  if (file == nullptr) throw Error(sf_strerror(nullptr));
  const auto x = tones(samples, rate);
  std::vector<float> interleaved;
  for (const float value : x)
    interleaved.insert(interleaved.end(), static_cast<std::size_t>(channels), value);
  // In pieces: libsndfile's Vorbis writer puts one call's samples on the stack.
  for (std::size_t at = 0; at < x.size(); at += 1024)
    sf_writef_float(file, interleaved.data() + at * static_cast<std::size_t>(channels),
                    static_cast<sf_count_t>(std::min<std::size_t>(1024, x.size() - at)));
  sf_close(file);
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  Bytes bytes;
  append_text(bytes, text);
  return bytes;
}

/// A file of these bytes that is on no disk: thousands of them take no time.
inline File file_of(const Bytes& bytes) {
  File file(::memfd_create("clip", MFD_CLOEXEC));
  if (::write(file.fd(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw Error("memfd");
  return file;
}

inline AudioInfo probe(const Bytes& bytes) { return probe_audio(file_of(bytes), "clip"); }

inline std::vector<float> decode(const Bytes& bytes, const DecodeOptions& options = {}) {
  Decoder decoder(options);
  const auto samples = decoder.decode(bytes, "clip");
  return {samples.begin(), samples.end()};
}

/// The cause with which decoding fails; empty when it does not. Probing must fail with the same, or succeed
/// where `only_decoding` says that the header alone is good.
inline std::string cause_of(const Bytes& bytes, bool only_decoding = false,
                            const DecodeOptions& options = {}) {
  std::string probed;
  try {
    probe(bytes);
  } catch (const SampleError& e) {
    EXPECT_EQ(e.stage, "decode");
    EXPECT_EQ(e.path, "clip");
    probed = e.cause;
  }
  try {
    decode(bytes, options);
  } catch (const SampleError& e) {
    EXPECT_EQ(e.stage, "decode");
    EXPECT_EQ(e.path, "clip");
    if (only_decoding) {
      EXPECT_EQ(probed, "");
    } else {
      EXPECT_EQ(probed, e.cause);
    }
    return e.cause;
  }
  EXPECT_EQ(probed, "");
  return "";
}

}  // namespace penstock::test
