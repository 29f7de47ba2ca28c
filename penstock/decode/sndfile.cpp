// FLAC, OGG, Opus, the rarer kinds of WAV, and whatever else libsndfile reads.
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sndfile.h>

#include "penstock/decode/reader.h"

namespace penstock {
namespace {

InputStream& stream(void* user) { return *static_cast<InputStream*>(user); }

constexpr SF_VIRTUAL_IO stream_calls{
    .get_filelen = [](void* user) -> sf_count_t { return stream(user).input().size(); },
    .seek = [](sf_count_t offset, int whence, void* user) -> sf_count_t {
      return stream(user).seek(offset, whence);
    },
    .read = [](void* into, sf_count_t bytes, void* user) -> sf_count_t {
      return stream(user).read(into, bytes);
    },
    .write = [](const void*, sf_count_t, void*) -> sf_count_t { return 0; },
    .tell = [](void* user) -> sf_count_t { return stream(user).tell(); }};

/// The file's first bytes, for a message about a file that nobody knows.
std::string beginning(Input& input) {
  std::array<std::byte, 4> bytes;
  const std::size_t n = input.read_at(0, bytes);
  std::string shown;
  for (const std::byte b : std::span(bytes).first(n))
    shown += fmt::format("{:02x} ", static_cast<unsigned>(b));
  if (!shown.empty()) shown.pop_back();
  return shown;
}

class SndfileReader final : public AudioReader {
 public:
  explicit SndfileReader(Input& input) : stream_(input) {
    open();
    if (sf_.frames == SF_COUNT_MAX) count();
  }

  [[nodiscard]] AudioInfo info() const override {
    return {.samples = sf_.frames, .sample_rate = sf_.samplerate, .channels = sf_.channels};
  }

  std::size_t read(std::span<float> interleaved) override {
    const auto frames = static_cast<sf_count_t>(interleaved.size() / static_cast<std::size_t>(sf_.channels));
    const sf_count_t n = sf_readf_float(file_.get(), interleaved.data(), frames);
    stream_.rethrow();
    done_ += n;
    if (n < frames && sf_error(file_.get()) != SF_ERR_NO_ERROR)
      stream_.input().fail(fmt::format("damaged: only {} of {} samples can be decoded: {}", done_, sf_.frames,
                                       sf_strerror(file_.get())));
    return static_cast<std::size_t>(n * sf_.channels);
  }

 private:
  void open() {
    sf_ = {};
    done_ = 0;
    SF_VIRTUAL_IO calls = stream_calls;
    stream_.seek(0, SEEK_SET);
    file_.reset(sf_open_virtual(&calls, SFM_READ, &sf_, &stream_));
    stream_.rethrow();
    if (file_) return;
    Input& input = stream_.input();
    if (sf_error(nullptr) == SF_ERR_UNRECOGNISED_FORMAT)
      input.fail(fmt::format("must be WAV, FLAC, OGG, Opus or MP3, but begins with {}", beginning(input)));
    input.fail(sf_strerror(nullptr));
  }

  /// A FLAC that was written to a pipe does not say how long it is.
  void count() {
    std::vector<float> block(static_cast<std::size_t>(4096) * static_cast<std::size_t>(sf_.channels));
    sf_count_t frames = 0;
    while (const std::size_t n = read(block)) frames += static_cast<sf_count_t>(n) / sf_.channels;
    open();
    sf_.frames = frames;
  }

  struct Close {
    void operator()(SNDFILE* file) const { sf_close(file); }
  };
  InputStream stream_;
  SF_INFO sf_{};
  sf_count_t done_ = 0;
  std::unique_ptr<SNDFILE, Close> file_;
};

}  // namespace

std::unique_ptr<AudioReader> open_sndfile(Input& input) { return std::make_unique<SndfileReader>(input); }

}  // namespace penstock
