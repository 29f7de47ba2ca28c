// The least that can be trained: the next frame from the one before it, with dropout, so that it needs random
// numbers.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "train/model.h"

namespace penstock::train {

struct SmallModel : Model {
  explicit SmallModel(int bins_of = 80) : bins(bins_of) {
    linear = register_module("linear", torch::nn::Linear(bins, bins));
    length = register_parameter("length", torch::zeros({1}));
  }

  std::vector<Loss> forward(const ModelBatch& batch) override {
    if (looked_at) looked_at(batch, is_training());
    const torch::Tensor before = batch.mel.slice(1, 0, -1), after = batch.mel.slice(1, 1);
    const torch::Tensor guess = torch::dropout(linear(before), 0.2, is_training());
    const torch::Tensor valid =
        torch::arange(1, batch.shape.frames).unsqueeze(0) < batch.mel_lengths.unsqueeze(1);
    const torch::Tensor error =
        torch::where(valid.unsqueeze(2), (guess - after).square(), torch::zeros({1})).mean(2);
    const torch::Tensor tokens = batch.token_lengths.to(torch::kFloat32);
    torch::Tensor frames = error.sum();
    if (not_finite && is_training() && not_finite())
      frames = frames * std::numeric_limits<float>::quiet_NaN();
    return {{.name = "next", .sum = frames, .per = Per::frame},
            {.name = "length",
             .sum = (length * tokens - 0.1 * tokens).square().sum(),
             .per = Per::token,
             .weight = 0.5}};
  }

  [[nodiscard]] std::string description() const override {
    return "{\"kind\":\"small\",\"bins\":" + std::to_string(bins) + "}";
  }

  int bins;
  std::function<void(const ModelBatch&, bool training)> looked_at;
  std::function<bool()> not_finite;  ///< asked at every forward of a training step
  torch::nn::Linear linear{nullptr};
  torch::Tensor length;
};

}  // namespace penstock::train
