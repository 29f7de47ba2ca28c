#include "train/optimizer.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock::train {
namespace {

/// Parts start on a cache line, as tensors of their own would.
constexpr std::int64_t align = 16;
/// The norm is taken over pieces of this size first: in parallel, but with a result that no number of threads
/// changes, and with small rounding errors.
constexpr std::int64_t piece = 4096;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

Optimizer::Optimizer(const NamedTensors& parameters, const AdamWOptions& options, double ema_decay)
    : options_(options), ema_decay_(ema_decay) {
  if (parameters.empty()) throw Error("optimizer: there must be a parameter to train, but there is none");
  const torch::NoGradGuard no_grad;
  std::int64_t size = 0;
  std::set<const void*> seen;
  const torch::Device device = parameters.front().second.device();
  for (const auto& [name, tensor] : parameters) {
    if (tensor.scalar_type() != torch::kFloat32 || tensor.device() != device)
      throw Error(fmt::format("optimizer: {} must be float32 on {}, but is {} on {}", name, device.str(),
                              c10::toString(tensor.scalar_type()), tensor.device().str()));
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second)
      throw Error(fmt::format("optimizer: {} is the same tensor as a parameter before it", name));
    parts_.push_back({name, size, tensor.sizes().vec()});
    size = round_up(size + tensor.numel(), align);
  }
  const auto vector = [n = std::max(piece, round_up(size, piece)), device] {
    return torch::zeros({n}, torch::dtype(torch::kFloat32).device(device));
  };
  weights_ = vector(), gradients_ = vector(), exp_avg_ = vector(), exp_avg_sq_ = vector();
  step_ = torch::zeros({}, weights_.options());

  const NamedTensors weights = parts(weights_, ""), gradients = parts(gradients_, "");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor parameter = parameters[i].second;
    weights[i].second.copy_(parameter);
    parameter.set_data(weights[i].second);
    parameter.mutable_grad() = gradients[i].second;
  }
  if (ema_decay > 0) ema_ = weights_.clone();
}

torch::Tensor Optimizer::update(const torch::Tensor& learning_rate, double clip_norm,
                                const torch::Tensor& bad) {
  const torch::NoGradGuard no_grad;
  torch::Tensor norm =
      at::linalg_vector_norm(at::linalg_vector_norm(gradients_.view({-1, piece}), 2, at::IntArrayRef{1}), 2);
  const torch::Tensor skip = at::isfinite(norm).logical_not().logical_or(bad.ne(0)).to(torch::kFloat32);
  const torch::Tensor go = 1 - skip;
  // AdamW divides gradients by the scale anyway (it is made for mixed precision): clipping costs nothing.
  std::optional<at::Tensor> scale;
  if (clip_norm > 0) scale = ((norm + 1e-6) / clip_norm).clamp_min(1);
  step_.add_(go);
  at::_fused_adamw_({weights_}, {gradients_}, {exp_avg_}, {exp_avg_sq_}, {}, {step_}, learning_rate,
                    options_.beta1, options_.beta2, options_.weight_decay, options_.eps, false, false, scale,
                    skip);
  if (ema_.defined()) ema_.lerp_(weights_, go * (1 - ema_decay_));
  return norm;
}

void Optimizer::zero_gradients() {
  const torch::NoGradGuard no_grad;
  gradients_.zero_();
}

NamedTensors Optimizer::parts(const torch::Tensor& of, const std::string& prefix) const {
  NamedTensors result;
  for (const Part& p : parts_)
    result.emplace_back(prefix + p.name,
                        of.narrow(0, p.offset, c10::multiply_integers(p.sizes)).view(p.sizes));
  return result;
}

NamedTensors Optimizer::state() const {
  NamedTensors result = parts(exp_avg_, "exp_avg.");
  for (auto& named : parts(exp_avg_sq_, "exp_avg_sq.")) result.push_back(std::move(named));
  if (ema_.defined())
    for (auto& named : parts(ema_, "ema.")) result.push_back(std::move(named));
  result.emplace_back("step", step_);
  return result;
}

NamedTensors Optimizer::averaged() const { return ema_.defined() ? parts(ema_, "") : NamedTensors(); }

}  // namespace penstock::train
