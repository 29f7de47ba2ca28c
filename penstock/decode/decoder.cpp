#include <algorithm>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/decode/convert.h"
#include "penstock/decode/decode.h"
#include "penstock/decode/input.h"
#include "penstock/decode/reader.h"
#include "penstock/decode/resample.h"
#include "penstock/decode/wav.h"

namespace penstock {
namespace {

constexpr std::int32_t lowest_rate = 1000;
constexpr std::int32_t highest_rate = 384000;
constexpr std::int64_t longest_hours = 4;
/// More than any codec makes of one byte: FLAC's best is 65,535 samples of silence in 11 bytes.
constexpr std::int64_t most_samples_per_byte = 8192;

/// What the header says must be possible before any memory is taken for it.
const AudioInfo& plausible(const AudioInfo& info, const Input& input) {
  if (info.channels < 1) input.fail(fmt::format("must have at least 1 channel, but has {}", info.channels));
  if (info.sample_rate < lowest_rate || info.sample_rate > highest_rate)
    input.fail(fmt::format("sample rate must be from {} to {}, but is {}", lowest_rate, highest_rate,
                           info.sample_rate));
  if (info.samples < 1) input.fail("must have at least 1 sample, but has none");
  if (info.samples > longest_hours * 3600 * info.sample_rate)
    input.fail(fmt::format("must be at most {} hours, but its header promises {} samples at {} Hz",
                           longest_hours, info.samples, info.sample_rate));
  if (info.samples / most_samples_per_byte > input.size())
    input.fail(
        fmt::format("must have at most {} samples a byte, but its header promises {} samples in {} bytes",
                    most_samples_per_byte, info.samples, input.size()));
  return info;
}

std::unique_ptr<AudioReader> open_reader(Input& input) {
  if (input.size() == 0) input.fail("must be an audio file, but is empty");
  return is_mp3(input) ? open_mp3(input) : open_sndfile(input);
}

void require_finite(std::span<const float> samples, const Input& input) {
  if (const auto bad = first_non_finite(samples))
    input.fail(fmt::format("samples must be finite, but sample {} is {}", *bad, samples[*bad]));
}

}  // namespace

AudioInfo probe_audio(const File& file, std::string_view path) {
  Input input(file, path);
  if (const auto wav = parse_wav(input)) return plausible(wav->info, input);
  return plausible(open_reader(input)->info(), input);
}

struct Decoder::State {
  DecodeOptions options;
  Scratch<float> waveform;
  Scratch<float> block;
  Scratch<float> resampled;

  /// The audio may be decoded: its header makes sense, and its rate is one that we may use.
  void admit(const AudioInfo& info, const Input& input) const {
    plausible(info, input);
    if (info.sample_rate == options.sample_rate) return;
    if (!options.resample)
      input.fail(fmt::format("sample rate must be {}, but is {}; set resample: true to convert",
                             options.sample_rate, info.sample_rate));
    if (resampled_length(info.samples, info.sample_rate, options.sample_rate) < 1)
      input.fail(fmt::format("must be at least 1 sample at {} Hz, but is {} at {} Hz", options.sample_rate,
                             info.samples, info.sample_rate));
  }

  std::span<const float> decode_wav(const Wav& wav, std::span<const std::byte> bytes, const Input& input) {
    const auto samples = waveform.of(static_cast<std::size_t>(wav.info.samples));
    to_mono(wav.format, bytes.data() + wav.data_offset, static_cast<std::size_t>(wav.info.channels), samples);
    if (wav.format == SampleFormat::f32 || wav.format == SampleFormat::f64) require_finite(samples, input);
    return samples;
  }

  std::span<const float> decode_blocks(AudioReader& reader, const Input& input) {
    const auto samples = waveform.of(static_cast<std::size_t>(reader.info().samples));
    const auto channels = static_cast<std::size_t>(reader.info().channels);
    const auto interleaved = block.of(4096 * channels);
    for (std::size_t done = 0; done < samples.size();) {
      const std::size_t wanted = std::min(interleaved.size(), (samples.size() - done) * channels);
      const std::size_t n = reader.read(interleaved.first(wanted)) / channels;
      if (n == 0)
        input.fail(
            fmt::format("truncated: the header promises {} samples, but {} are there", samples.size(), done));
      to_mono(SampleFormat::f32, std::as_bytes(interleaved).data(), channels, samples.subspan(done, n));
      done += n;
    }
    require_finite(samples, input);
    return samples;
  }

  std::span<const float> at_wanted_rate(std::span<const float> samples, std::int32_t rate,
                                        const Input& input) {
    if (rate == options.sample_rate) return samples;
    const auto converted = resample(samples, rate, options.sample_rate, resampled);
    require_finite(converted, input);  // huge floats can overflow in the filter
    return converted;
  }
};

Decoder::Decoder(const DecodeOptions& options) : state_(std::make_unique<State>()) {
  if (options.sample_rate < lowest_rate || options.sample_rate > highest_rate)
    throw Error(fmt::format("sample_rate must be from {} to {}, but is {}", lowest_rate, highest_rate,
                            options.sample_rate));
  state_->options = options;
}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

std::span<const float> Decoder::decode(std::span<const std::byte> bytes, std::string_view path) {
  Input input(bytes, path);
  if (const auto wav = parse_wav(input)) {
    state_->admit(wav->info, input);
    return state_->at_wanted_rate(state_->decode_wav(*wav, bytes, input), wav->info.sample_rate, input);
  }
  const auto reader = open_reader(input);
  state_->admit(reader->info(), input);
  return state_->at_wanted_rate(state_->decode_blocks(*reader, input), reader->info().sample_rate, input);
}

}  // namespace penstock
