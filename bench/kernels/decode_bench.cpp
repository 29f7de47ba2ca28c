// Decoding a clip of LJSpeech's mean length, beside a copy of the same bytes.
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <benchmark/benchmark.h>
#include <sndfile.h>

#include "penstock/decode/decode.h"

namespace penstock {
namespace {

constexpr double seconds = 6.576;  // 145,000 samples at 22,050 Hz

struct Memory {
  std::vector<std::byte> bytes;
  std::size_t position = 0;
};

/// Noise in syllables, as an encoder sees speech; written into memory by libsndfile.
std::vector<std::byte> encode(int format, int rate, int channels) {
  Memory memory;
  SF_VIRTUAL_IO calls{
      .get_filelen = [](void* m) { return static_cast<sf_count_t>(static_cast<Memory*>(m)->bytes.size()); },
      .seek =
          [](sf_count_t offset, int whence, void* m) {
            auto& file = *static_cast<Memory*>(m);
            const std::size_t base = whence == SEEK_SET   ? 0
                                     : whence == SEEK_CUR ? file.position
                                                          : file.bytes.size();
            file.position = base + static_cast<std::size_t>(offset);
            return static_cast<sf_count_t>(file.position);
          },
      .read =
          [](void* into, sf_count_t n, void* m) {
            auto& file = *static_cast<Memory*>(m);
            n = std::min(n, static_cast<sf_count_t>(file.bytes.size() - file.position));
            std::memcpy(into, file.bytes.data() + file.position, static_cast<std::size_t>(n));
            file.position += static_cast<std::size_t>(n);
            return n;
          },
      .write =
          [](const void* from, sf_count_t n, void* m) {
            auto& file = *static_cast<Memory*>(m);
            const auto end = file.position + static_cast<std::size_t>(n);
            if (end > file.bytes.size()) file.bytes.resize(end);
            std::memcpy(file.bytes.data() + file.position, from, static_cast<std::size_t>(n));
            file.position = end;
            return n;
          },
      .tell = [](void* m) { return static_cast<sf_count_t>(static_cast<Memory*>(m)->position); }};
  SF_INFO info{
      .frames = 0, .samplerate = rate, .channels = channels, .format = format, .sections = 0, .seekable = 0};
  SNDFILE* file = sf_open_virtual(&calls, SFM_WRITE, &info, &memory);
  if (file == nullptr) throw std::runtime_error(sf_strerror(nullptr));
  const auto samples = static_cast<int>(std::lround(seconds * rate));
  std::uint32_t noise = 1;
  for (int i = 0; i < samples; ++i) {
    noise = noise * 1664525 + 1013904223;
    const double t = static_cast<double>(i) / rate;
    const double envelope = 0.3 * std::pow(std::sin(9 * t), 2);
    const auto x = static_cast<float>(envelope * (std::sin(800 * t) + 0.5 * std::sin(3100 * t) +
                                                  0.2 * (static_cast<double>(noise) / 0x1p31 - 1)));
    const float frame[2] = {x, x};
    sf_writef_float(file, frame, 1);
  }
  sf_close(file);
  return memory.bytes;
}

void decode(benchmark::State& state, int format, int rate, int channels) {
  const auto bytes = encode(format, rate, channels);
  Decoder decoder({.sample_rate = 22050});
  std::size_t samples = 0;
  for (auto _ : state) {
    const auto waveform = decoder.decode(bytes, "clip");
    benchmark::DoNotOptimize(waveform.data());
    samples = waveform.size();
  }
  state.counters["samples"] = static_cast<double>(samples);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}

void copy(benchmark::State& state) {
  const auto bytes = encode(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 22050, 1);
  std::vector<std::byte> to(bytes.size());
  for (auto _ : state) {
    std::memcpy(to.data(), bytes.data(), bytes.size());
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}

BENCHMARK(copy)->Name("memcpy of the PCM 16 file");
BENCHMARK_CAPTURE(decode, wav_pcm16, SF_FORMAT_WAV | SF_FORMAT_PCM_16, 22050, 1);
BENCHMARK_CAPTURE(decode, wav_pcm16_stereo, SF_FORMAT_WAV | SF_FORMAT_PCM_16, 22050, 2);
BENCHMARK_CAPTURE(decode, wav_pcm24, SF_FORMAT_WAV | SF_FORMAT_PCM_24, 22050, 1);
BENCHMARK_CAPTURE(decode, wav_float, SF_FORMAT_WAV | SF_FORMAT_FLOAT, 22050, 1);
BENCHMARK_CAPTURE(decode, flac, SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 22050, 1);
BENCHMARK_CAPTURE(decode, ogg_vorbis, SF_FORMAT_OGG | SF_FORMAT_VORBIS, 22050, 1);
BENCHMARK_CAPTURE(decode, mp3, SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 22050, 1);
BENCHMARK_CAPTURE(decode, wav_44100_to_22050, SF_FORMAT_WAV | SF_FORMAT_PCM_16, 44100, 1);
BENCHMARK_CAPTURE(decode, wav_16000_to_22050, SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 1);
BENCHMARK_CAPTURE(decode, opus_48000_to_22050, SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, 1);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
