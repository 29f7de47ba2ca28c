// MP3, by mpg123. libsndfile would read it with the same decoder, but where a file does not declare its
// length (any encoder that writes to a pipe, LAME at 22,050 Hz) it guesses one from the first frame and cuts
// the audio there: a variable-rate file can lose most of its speech without a word. Counting the frame
// headers is exact.
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <mpg123.h>

#include "penstock/decode/reader.h"

namespace penstock {
namespace {

std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint32_t big_endian(std::span<const std::byte, 4> b) {
  return std::to_integer<std::uint32_t>(b[0]) << 24 | std::to_integer<std::uint32_t>(b[1]) << 16 |
         std::to_integer<std::uint32_t>(b[2]) << 8 | std::to_integer<std::uint32_t>(b[3]);
}

std::uint32_t read_word(Input& input, std::int64_t at) {
  std::array<std::byte, 4> bytes{};
  input.read_at(at, bytes);
  return big_endian(bytes);
}

/// Sync bits, and a version, layer, bit rate and sample rate that exist.
bool is_frame_header(std::uint32_t word) {
  return word >> 21 == 0x7FF && (word >> 19 & 3) != 1 && (word >> 17 & 3) != 0 && (word >> 12 & 15) != 15 &&
         (word >> 10 & 3) != 3;
}

/// Where the ID3v2 tag in front ends; 0 without one.
std::int64_t end_of_tag(Input& input) {
  std::array<std::byte, 10> tag{};
  if (input.read_at(0, tag) < tag.size() || text(tag).substr(0, 3) != "ID3") return 0;
  const std::uint32_t size = big_endian(std::span(tag).subspan<6, 4>());  // four times 7 bits
  const bool footer = (std::to_integer<unsigned>(tag[5]) & 0x10) != 0;
  return 10 +
         static_cast<std::int64_t>((size & 0x7F) | (size & 0x7F00) >> 1 | (size & 0x7F0000) >> 2 |
                                   (size & 0x7F000000) >> 3) +
         (footer ? 10 : 0);
}

/// The number of frames that the encoder's Xing or Info header declares; 0 without one.
std::uint32_t declared_frames(Input& input) {
  const std::int64_t frame = end_of_tag(input);
  const std::uint32_t header = read_word(input, frame);
  if (!is_frame_header(header)) return 0;
  const bool mpeg1 = (header >> 19 & 3) == 3;
  const bool mono = (header >> 6 & 3) == 3;
  const std::int64_t at =
      frame + 4 + (mpeg1 ? (mono ? 17 : 32) : (mono ? 9 : 17));  // behind the side information
  const std::uint32_t name = read_word(input, at);
  const bool has_count = (name == 0x58696E67 || name == 0x496E666F) && (read_word(input, at + 4) & 1) != 0;
  return has_count ? read_word(input, at + 8) : 0;
}

class Mp3Reader final : public AudioReader {
 public:
  explicit Mp3Reader(Input& input) : stream_(input), decoder_(mpg123_new(nullptr, nullptr)) {
    if (!decoder_) input.fail("mpg123 cannot be started");
    mpg123_param(get(), MPG123_REMOVE_FLAGS, MPG123_AUTO_RESAMPLE, 0);
    mpg123_param(get(), MPG123_ADD_FLAGS,
                 MPG123_QUIET | MPG123_FORCE_FLOAT | MPG123_GAPLESS | MPG123_NO_FRANKENSTEIN, 0);
    check(mpg123_replace_reader_handle(get(), read_stream, seek_stream, nullptr));
    check(mpg123_open_handle(get(), &stream_));
    check(mpg123_scan(get()));
    long rate = 0;
    int channels = 0;
    int encoding = 0;
    check(mpg123_getformat(get(), &rate, &channels, &encoding));
    info_ = {.samples = mpg123_length(get()),
             .sample_rate = static_cast<std::int32_t>(rate),
             .channels = static_cast<std::int32_t>(channels)};
    // Some encoders count the header's own frame too.
    const std::int64_t declared = declared_frames(input);
    if (const std::int64_t there = mpg123_framelength(get()); there + 1 < declared)
      input.fail(
          fmt::format("truncated: the header promises {} MPEG frames, but {} are there", declared, there));
  }

  [[nodiscard]] AudioInfo info() const override { return info_; }

  std::size_t read(std::span<float> interleaved) override {
    std::size_t bytes = 0;
    const int status = mpg123_read(get(), interleaved.data(), interleaved.size_bytes(), &bytes);
    if (status != MPG123_DONE) check(status);
    stream_.rethrow();
    const std::size_t n = bytes / sizeof(float);
    return n - n % static_cast<std::size_t>(info_.channels);
  }

 private:
  static mpg123_ssize_t read_stream(void* stream, void* into, std::size_t bytes) {
    return static_cast<InputStream*>(stream)->read(into, static_cast<std::int64_t>(bytes));
  }
  static off_t seek_stream(void* stream, off_t offset, int whence) {
    return static_cast<InputStream*>(stream)->seek(offset, whence);
  }
  void check(int status) {
    stream_.rethrow();
    if (status == MPG123_OK) return;
    const char* reason = status == MPG123_ERR ? mpg123_strerror(get()) : mpg123_plain_strerror(status);
    stream_.input().fail(fmt::format("damaged MP3: {}", reason));
  }
  mpg123_handle* get() const { return decoder_.get(); }

  struct Delete {
    void operator()(mpg123_handle* decoder) const { mpg123_delete(decoder); }
  };
  InputStream stream_;
  std::unique_ptr<mpg123_handle, Delete> decoder_;
  AudioInfo info_;
};

}  // namespace

bool is_mp3(Input& input) {
  const std::int64_t tag = end_of_tag(input);
  const std::uint32_t word = read_word(input, tag);
  if (tag == 0) return is_frame_header(word);
  return word != 0x664C6143 && word != 0x4F676753;  // fLaC, OggS
}

std::unique_ptr<AudioReader> open_mp3(Input& input) { return std::make_unique<Mp3Reader>(input); }

}  // namespace penstock
