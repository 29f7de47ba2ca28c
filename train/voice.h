// What `penstock train` trains.
#pragma once
#include <memory>

#include "penstock/feed/dataset.h"

namespace penstock::train {

class Model;

/// A text-to-speech model of config.train.model_size, for this dataset's symbols and mels.
std::shared_ptr<Model> make_voice(const Config& config, const Dataset& dataset);

}  // namespace penstock::train
