// Something else for the same trainer: a small speech recogniser, mel -> symbols, trained with CTC.
//
// All that a model of your own needs: parameters registered with the torch module, forward() that gives sums,
// and a description. Here a convolution and a transformer over pairs of frames say for each pair which symbol
// it ends, or none.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/layers.h"
#include "train/model.h"

namespace penstock::train {

struct RecogniserOptions {
  std::int64_t n_symbols = 0;
  std::int64_t blank = 3;  ///< BLANK of the symbol table
  std::int64_t bins = 80;
  std::int64_t width = 128, depth = 3, heads = 2;
  double dropout = 0.1;
  double mel_mean = -4.75, mel_std = 2.25;  ///< as in TtsOptions
};

/// On CUDA at::ctc_loss reads the lengths back, so that its step cannot be captured: use `plan_steps: false`.
class Recogniser : public Model {
 public:
  explicit Recogniser(const RecogniserOptions& options);

  /// One loss, "ctc": the negative log-likelihood of a row's text, per token. A text with more symbols than
  /// its speech has pairs of frames has no likelihood, and counts nothing.
  std::vector<Loss> forward(const ModelBatch& batch) override;
  [[nodiscard]] std::string description() const override;

  /// [rows, frames / 2, n_symbols] log-probabilities.
  torch::Tensor outputs(const torch::Tensor& mel, const torch::Tensor& lengths) const;
  [[nodiscard]] std::int64_t blank() const { return options_.blank; }

 private:
  RecogniserOptions options_;
  torch::Tensor mel_mean_, mel_std_;
  std::shared_ptr<Conv1d> conv_;
  std::shared_ptr<Linear> in_, out_;
  std::vector<std::shared_ptr<TransformerLayer>> layers_;
  std::shared_ptr<LayerNorm> norm_;
};

}  // namespace penstock::train
