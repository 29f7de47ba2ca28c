#include "train/voice.h"

#include "train/setup.h"
#include "train/tts.h"

namespace penstock::train {

std::shared_ptr<Model> make_voice(const Config& config, const Dataset& dataset) {
  const MelRange range = mel_range(config.mel);
  const TtsOptions options{.n_symbols = dataset.symbols.size(),
                           .bins = config.mel.n_mels,
                           .sizes = sizes_named(config.train.model_size),
                           .mel_mean = range.mean,
                           .mel_std = range.deviation};
  return make_tts(options, compute_device(config));
}

}  // namespace penstock::train
