// The log-mel of a clip of LJSpeech's mean length, for every instruction set and several transform lengths:
// us_per_frame.
#include <random>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "penstock/features/mel.h"

namespace penstock {
namespace {

constexpr std::size_t samples = 145000;  // 6.6 s at 22,050 Hz

void compute(benchmark::State& state, const MelOptions& options, const std::string& target) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.1F);
  Scratch<float> memory;
  const std::span<float> audio = memory.of(samples);
  for (float& x : audio) x = normal(random);

  const Mel mel(options, target);
  const std::int64_t frames = options.frames(static_cast<std::int64_t>(samples));
  std::vector<float> out(static_cast<std::size_t>(frames) * static_cast<std::size_t>(options.n_mels));
  MelScratch scratch;
  for (auto _ : state) {
    mel.compute(audio, out.data(), options.n_mels, scratch);
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  state.counters["per_frame"] =
      Counter(static_cast<double>(frames), Counter::kIsIterationInvariantRate | Counter::kInvert);
}

void register_all() {
  for (const std::string& target : Mel::targets()) {
    for (const char* name : {"hifigan", "myxtts", "librosa"})
      benchmark::RegisterBenchmark(fmt::format("mel/{}/{}", name, target).c_str(), compute, *mel_preset(name),
                                   target);
    MelOptions exact = *mel_preset("hifigan");
    exact.precision = MelPrecision::exact;
    benchmark::RegisterBenchmark(fmt::format("mel/hifigan_exact/{}", target).c_str(), compute, exact, target);
    for (const int n_fft : {256, 512, 2048, 4096}) {
      MelOptions options = *mel_preset("hifigan");
      options.n_fft = options.win_length = n_fft;
      options.hop_length = n_fft / 4;
      benchmark::RegisterBenchmark(fmt::format("mel/n_fft:{}/{}", n_fft, target).c_str(), compute, options,
                                   target);
    }
  }
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  penstock::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
