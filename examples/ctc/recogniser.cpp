#include "examples/ctc/recogniser.h"

#include <cmath>

#include <fmt/format.h>

namespace penstock::train {

Recogniser::Recogniser(const RecogniserOptions& options) : options_(options) {
  const std::int64_t width = options.width;
  const torch::Device device = torch::kCPU;
  mel_mean_ = register_buffer("mel_mean", torch::scalar_tensor(options.mel_mean, torch::kFloat));
  mel_std_ = register_buffer("mel_std", torch::scalar_tensor(options.mel_std, torch::kFloat));
  conv_ = register_module("conv", std::make_shared<Conv1d>(options.bins, width, 5, device));
  in_ = register_module("in", std::make_shared<Linear>(2 * width, width, device));
  const double gain = 1 / std::sqrt(2.0 * static_cast<double>(options.depth));
  for (std::int64_t i = 0; i < options.depth; ++i) {
    layers_.push_back(register_module(
        fmt::format("layer{}", i),
        std::make_shared<TransformerLayer>(width, 0, options.heads, options.dropout, gain, device)));
  }
  norm_ = register_module("norm", std::make_shared<LayerNorm>(width, device));
  out_ = register_module("out", std::make_shared<Linear>(width, options.n_symbols, device));
}

torch::Tensor Recogniser::outputs(const torch::Tensor& mel, const torch::Tensor& lengths) const {
  const torch::Tensor padding = ~mask_of(lengths, mel.size(1)).unsqueeze(1);
  const torch::Tensor normalised = (mel - mel_mean_) / mel_std_;
  torch::Tensor x = at::relu(conv_->forward(normalised.transpose(1, 2).masked_fill(padding, 0)));
  x = x.masked_fill(padding, 0).transpose(1, 2);
  if (x.size(1) % 2 != 0) x = at::constant_pad_nd(x, {0, 0, 0, 1});
  x = in_->forward(x.unflatten(1, {-1, 2}).flatten(2));
  x = x + positions(0, x.size(1), x.size(2), mel.options());
  // A row of length 0 keeps one key: a softmax over none is not a number.
  const torch::Tensor pairs = (lengths + 1).div(2, "floor").to(torch::kInt).clamp_min(1);
  const torch::Tensor mask = mask_of(pairs, x.size(1)).unsqueeze(1).unsqueeze(1);
  for (const auto& layer : layers_) x = layer->forward(x, mask);
  return at::log_softmax(out_->forward(norm_->forward(x)), 2, mel.scalar_type());
}

std::vector<Loss> Recogniser::forward(const ModelBatch& batch) {
  const torch::Tensor scores = outputs(batch.mel, batch.mel_lengths).transpose(0, 1);
  const torch::Tensor pairs = (batch.mel_lengths + 1).div(2, "floor").to(torch::kLong).clamp_min(1);
  const torch::Tensor texts =
      batch.tokens.masked_fill(~mask_of(batch.token_lengths, batch.tokens.size(1)), 0);
  const torch::Tensor rows =
      at::ctc_loss(scores, texts.to(torch::kLong), pairs, batch.token_lengths.to(torch::kLong),
                   options_.blank, at::Reduction::None, /*zero_infinity=*/true);
  return {{"ctc", rows.masked_fill(batch.mel_lengths == 0, 0).sum(), Per::token, 1}};
}

std::string Recogniser::description() const {
  return fmt::format(
      R"({{"kind":"ctc","n_symbols":{},"blank":{},"bins":{},"width":{},"depth":{},"heads":{},"mel_mean":{},"mel_std":{}}})",
      options_.n_symbols, options_.blank, options_.bins, options_.width, options_.depth, options_.heads,
      options_.mel_mean, options_.mel_std);
}

}  // namespace penstock::train
