// Log-mel spectrogram -> waveform, without a trained vocoder: a first voice to listen to.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/core/mel_options.h"

namespace penstock {

struct GriffinLimOptions {
  int iterations = 60;
  double momentum = 0.99;  ///< 0: the plain algorithm
  std::uint64_t seed = 0;  ///< of the phases that it starts with
};

/// Magnitudes that are not negative and whose mel is near `mel` ([frames, n_mels], logarithmic): [frames,
/// n_fft / 2 + 1].
std::vector<double> mel_to_magnitudes(const MelOptions& options, std::span<const float> mel);

/// A waveform whose spectrogram is near the mel's: as many samples as the shortest audio with that many
/// frames, from -1 to 1 unless the mel is louder. The same for the same arguments. Throws Error for a mel
/// that is no multiple of n_mels or has a value that is not finite.
std::vector<float> griffin_lim(const MelOptions& options, std::span<const float> mel,
                               const GriffinLimOptions& how = {});

}  // namespace penstock
