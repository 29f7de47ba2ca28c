// What models are made of: layers over [rows, time, width], and masks from lengths.
//
// Weights are drawn from torch's generator in the order of construction, so a seed set by the caller gives
// the same model again. On the meta device nothing is drawn or allocated: a model of any size can be counted.
// Everything works in the type of its input, float or double, and under autocast.
#pragma once
#include <cstdint>
#include <memory>

#include <torch/torch.h>

namespace penstock::train {

/// [rows, size] bool: true before each length ([rows], int32). Made on the device, as all that follows from
/// it.
torch::Tensor mask_of(const torch::Tensor& lengths, std::int64_t size);

/// [count, width]: sines, then cosines, of the places first, first + 1, ... in wavelengths from 2 pi to
/// 20,000 pi. `width` is even.
torch::Tensor positions(std::int64_t first, std::int64_t count, std::int64_t width,
                        const torch::TensorOptions& options);

struct Linear : torch::nn::Module {
  /// Weights uniform (Glorot) times `gain`, bias 0.
  Linear(std::int64_t in, std::int64_t out, torch::Device device, double gain = 1);
  torch::Tensor forward(const torch::Tensor& x) const;
  torch::Tensor weight, bias;
};

/// Over the last dimension.
struct LayerNorm : torch::nn::Module {
  LayerNorm(std::int64_t width, torch::Device device);
  torch::Tensor forward(const torch::Tensor& x) const;
  torch::Tensor weight, bias;
};

/// Over [rows, in, time], as long as its input; `kernel` is odd. The caller masks the input: a convolution
/// would carry padding into valid frames.
struct Conv1d : torch::nn::Module {
  Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, torch::Device device, double gain = 1);
  torch::Tensor forward(const torch::Tensor& x) const;
  torch::Tensor weight, bias;
};

/// Of one attention: [rows, heads, time, width / heads] each.
struct KeyValue {
  torch::Tensor key, value;
};

/// Multi-head attention in its parts, so that keys and values can be kept between the steps of a decoder.
struct Attention : torch::nn::Module {
  /// `memory`: the width of what is attended to. `gain` as in Linear, for the last projection.
  Attention(std::int64_t width, std::int64_t memory, std::int64_t heads, torch::Device device, double gain);

  torch::Tensor queries(const torch::Tensor& x) const;  ///< [rows, heads, time, width / heads]
  KeyValue memorise(const torch::Tensor& memory) const;
  /// `mask` ([rows, 1, 1, keys] bool, or undefined): the keys that are seen, at least one in each row.
  /// `causal`: query t sees keys 0..t.
  torch::Tensor attend(const torch::Tensor& queries, const KeyValue& memory, const torch::Tensor& mask,
                       bool causal) const;

 private:
  std::int64_t heads_;
  std::shared_ptr<Linear> query_, key_value_, out_;
};

/// The weights of one head that attend() uses without showing them: [rows, queries, keys].
torch::Tensor weights_of_head(const torch::Tensor& queries, const KeyValue& memory, const torch::Tensor& mask,
                              std::int64_t head);

/// Self-attention of a decoder that goes step by step: the keys and values so far, in memory for all steps.
struct Cache {
  KeyValue room;
  std::int64_t used = 0;
  /// Those of one more step; returns all so far. Throws Error when the room is full.
  KeyValue append(const KeyValue& step);
};

/// One layer of a pre-norm transformer: self-attention, attention to a memory (if it has one), feed-forward.
struct TransformerLayer : torch::nn::Module {
  /// `memory`: the width of the memory; 0: none. `gain` is that of the projections into the residual.
  TransformerLayer(std::int64_t width, std::int64_t memory, std::int64_t heads, double dropout, double gain,
                   torch::Device device);

  /// As an encoder: every place sees the valid ones of `mask`.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) const;
  /// As a decoder: every place sees those before it, and the valid ones of the memory. With a `cache`, `x` is
  /// the place behind those in it. `alignment`, if not null, gets the weights of head 0 over the memory.
  torch::Tensor decode(const torch::Tensor& x, const KeyValue& memory, const torch::Tensor& mask,
                       Cache* cache, torch::Tensor* alignment) const;
  KeyValue memorise(const torch::Tensor& memory) const { return cross_->memorise(memory); }

 private:
  torch::Tensor feed_forward(const torch::Tensor& x) const;
  torch::Tensor drop(const torch::Tensor& x) const;

  double dropout_;
  std::shared_ptr<LayerNorm> self_norm_, cross_norm_, feed_norm_;
  std::shared_ptr<Attention> self_, cross_;
  std::shared_ptr<Linear> wide_, narrow_;
};

}  // namespace penstock::train
