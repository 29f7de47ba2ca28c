// AdamW with everything on the device: moments, step count, averaged weights (EMA), and whether to change
// anything.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace penstock::train {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.98, eps = 1e-9, weight_decay = 0.01;
};

/// Named as the model's parameters, in their order.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

class Optimizer {
 public:
  /// Gradients are made here once, and stay where they are.
  Optimizer(NamedTensors parameters, const AdamWOptions& options, double ema_decay);

  /// Global norm clip (0: none), at::_fused_adamw_ and EMA; nothing where `bad` ([] float32, on the device)
  /// or the norm says so. `learning_rate` is a tensor. Returns the norm before clipping. No host
  /// synchronisation.
  torch::Tensor update(const torch::Tensor& learning_rate, double clip_norm, const torch::Tensor& bad);
  void zero_gradients();

  /// Everything that a resumed run needs, as it is (not copies): "exp_avg.<name>", "exp_avg_sq.<name>",
  /// "ema.<name>", "step".
  [[nodiscard]] NamedTensors state() const;
  /// The averaged weights by parameter name; empty without EMA.
  [[nodiscard]] NamedTensors averaged() const;
};

/// A learning rate for every update: finite and positive up to and behind the last one.
struct Schedule {
  enum class Kind : std::uint8_t { constant, cosine, noam } kind = Kind::cosine;
  double peak = 1e-3;
  std::int64_t warm_up = 100;  ///< updates
  std::int64_t total = 1000;   ///< updates; behind them the floor stays
  double floor = 0.01;         ///< of the peak
  [[nodiscard]] double at(std::int64_t update) const;
};

}  // namespace penstock::train
