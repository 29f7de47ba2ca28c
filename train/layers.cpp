#include "train/layers.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock::train {
namespace {

torch::Tensor glorot(torch::IntArrayRef sizes, std::int64_t fan_in, std::int64_t fan_out, double gain,
                     torch::Device device) {
  torch::NoGradGuard no_grad;
  const double limit = gain * std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
  return torch::empty(sizes, device).uniform_(-limit, limit);
}

}  // namespace

torch::Tensor mask_of(const torch::Tensor& lengths, std::int64_t size) {
  return torch::arange(size, lengths.options()).unsqueeze(0) < lengths.unsqueeze(1);
}

torch::Tensor positions(std::int64_t first, std::int64_t count, std::int64_t width,
                        const torch::TensorOptions& options) {
  const std::int64_t half = width / 2;
  const torch::Tensor rate =
      torch::exp(torch::arange(half, options) * (-std::log(10000.0) / static_cast<double>(half)));
  const torch::Tensor angle = torch::arange(first, first + count, options).unsqueeze(1) * rate;
  return torch::cat({angle.sin(), angle.cos()}, 1);
}

Linear::Linear(std::int64_t in, std::int64_t out, torch::Device device, double gain) {
  weight = register_parameter("weight", glorot({out, in}, in, out, gain, device));
  bias = register_parameter("bias", torch::zeros(out, device));
}

torch::Tensor Linear::forward(const torch::Tensor& x) const { return at::linear(x, weight, bias); }

LayerNorm::LayerNorm(std::int64_t width, torch::Device device) {
  weight = register_parameter("weight", torch::ones(width, device));
  bias = register_parameter("bias", torch::zeros(width, device));
}

torch::Tensor LayerNorm::forward(const torch::Tensor& x) const {
  return at::layer_norm(x, {weight.size(0)}, weight, bias);
}

Conv1d::Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, torch::Device device, double gain) {
  weight = register_parameter("weight", glorot({out, in, kernel}, in * kernel, out * kernel, gain, device));
  bias = register_parameter("bias", torch::zeros(out, device));
}

torch::Tensor Conv1d::forward(const torch::Tensor& x) const {
  return at::conv1d(x, weight, bias, 1, weight.size(2) / 2);
}

Attention::Attention(std::int64_t width, std::int64_t memory, std::int64_t heads, torch::Device device,
                     double gain)
    : heads_(heads) {
  query_ = register_module("query", std::make_shared<Linear>(width, width, device));
  key_value_ = register_module("key_value", std::make_shared<Linear>(memory, 2 * width, device));
  out_ = register_module("out", std::make_shared<Linear>(width, width, device, gain));
}

torch::Tensor Attention::queries(const torch::Tensor& x) const {
  return query_->forward(x).unflatten(2, {heads_, -1}).transpose(1, 2);
}

KeyValue Attention::memorise(const torch::Tensor& memory) const {
  const auto parts =
      key_value_->forward(memory).unflatten(2, {2, heads_, -1}).permute({2, 0, 3, 1, 4}).unbind(0);
  return {parts[0], parts[1]};
}

torch::Tensor Attention::attend(const torch::Tensor& queries, const KeyValue& memory,
                                const torch::Tensor& mask, bool causal) const {
  const auto seen = mask.defined() ? std::optional(mask) : std::nullopt;
  const torch::Tensor heads =
      at::scaled_dot_product_attention(queries, memory.key, memory.value, seen, 0.0, causal);
  return out_->forward(heads.transpose(1, 2).flatten(2));
}

torch::Tensor weights_of_head(const torch::Tensor& queries, const KeyValue& memory, const torch::Tensor& mask,
                              std::int64_t head) {
  const torch::Tensor query = queries.select(1, head), key = memory.key.select(1, head);
  torch::Tensor scores =
      at::matmul(query, key.transpose(1, 2)) / std::sqrt(static_cast<double>(query.size(2)));
  scores = scores.masked_fill(~mask.select(1, 0), -std::numeric_limits<double>::infinity());
  // Half precision is enough for the scores, not for the sum over many keys.
  return at::softmax(scores, 2, scores.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
}

KeyValue Cache::append(const KeyValue& step) {
  if (used == room.key.size(2))
    throw Error(fmt::format("decoding was given room for {} steps, and all are used", used));
  room.key.select(2, used).copy_(step.key.select(2, 0));
  room.value.select(2, used).copy_(step.value.select(2, 0));
  ++used;
  return {room.key.narrow(2, 0, used), room.value.narrow(2, 0, used)};
}

TransformerLayer::TransformerLayer(std::int64_t width, std::int64_t memory, std::int64_t heads,
                                   double dropout, double gain, torch::Device device)
    : dropout_(dropout) {
  self_norm_ = register_module("self_norm", std::make_shared<LayerNorm>(width, device));
  self_ = register_module("self", std::make_shared<Attention>(width, width, heads, device, gain));
  if (memory > 0) {
    cross_norm_ = register_module("cross_norm", std::make_shared<LayerNorm>(width, device));
    cross_ = register_module("cross", std::make_shared<Attention>(width, memory, heads, device, gain));
  }
  feed_norm_ = register_module("feed_norm", std::make_shared<LayerNorm>(width, device));
  wide_ = register_module("wide", std::make_shared<Linear>(width, 4 * width, device));
  narrow_ = register_module("narrow", std::make_shared<Linear>(4 * width, width, device, gain));
}

torch::Tensor TransformerLayer::drop(const torch::Tensor& x) const {
  return at::dropout(x, dropout_, is_training());
}

torch::Tensor TransformerLayer::feed_forward(const torch::Tensor& x) const {
  return x + drop(narrow_->forward(at::gelu(wide_->forward(feed_norm_->forward(x)))));
}

torch::Tensor TransformerLayer::forward(const torch::Tensor& x, const torch::Tensor& mask) const {
  const torch::Tensor normed = self_norm_->forward(x);
  return feed_forward(x + drop(self_->attend(self_->queries(normed), self_->memorise(normed), mask, false)));
}

torch::Tensor TransformerLayer::decode(const torch::Tensor& x, const KeyValue& memory,
                                       const torch::Tensor& mask, Cache* cache,
                                       torch::Tensor* alignment) const {
  const torch::Tensor normed = self_norm_->forward(x);
  KeyValue before = self_->memorise(normed);
  if (cache != nullptr) before = cache->append(before);
  // One query behind the cache sees all of it; a whole sequence has its padding behind the valid places.
  torch::Tensor y = x + drop(self_->attend(self_->queries(normed), before, {}, cache == nullptr));

  const torch::Tensor queries = cross_->queries(cross_norm_->forward(y));
  if (alignment != nullptr) *alignment = weights_of_head(queries, memory, mask, 0);
  y = y + drop(cross_->attend(queries, memory, mask, false));
  return feed_forward(y);
}

}  // namespace penstock::train
