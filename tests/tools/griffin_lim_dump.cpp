// griffin_lim_dump PRESET MEL MAGNITUDES AUDIO ITERATIONS MOMENTUM SEED: of a log-mel (raw float32 [frames,
// bins]) its magnitudes (raw float64 [frames, n_fft / 2 + 1]) and its waveform (raw float32).
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/features/griffin_lim.h"

int main(int argc, char** argv) try {
  using namespace penstock;
  if (argc != 8) throw Error("griffin_lim_dump: see the head of its source");
  const MelOptions options = mel_preset(argv[1]).value();
  const MappedFile file(argv[2]);
  const std::span mel(reinterpret_cast<const float*>(file.bytes().data()),
                      file.bytes().size() / sizeof(float));
  const std::vector<double> magnitudes = mel_to_magnitudes(options, mel);
  const std::vector<float> audio = griffin_lim(
      options, mel,
      {.iterations = std::stoi(argv[5]), .momentum = std::stod(argv[6]), .seed = std::stoull(argv[7])});
  write_file(argv[3], std::as_bytes(std::span(magnitudes)));
  write_file(argv[4], std::as_bytes(std::span(audio)));
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
