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

/// Weights, gradients, moments and averages are one vector each, of which a parameter's are a part: then
/// norm, AdamW, EMA and zeroing are one operation each, however many parameters there are. One thread.
class Optimizer {
 public:
  /// Moves the parameters' values into memory of its own (the tensors stay what they are, and so do modules
  /// that hold them). Gradients are made here once, and stay where they are. Throws Error for a parameter
  /// that is not float32 or appears twice.
  Optimizer(const NamedTensors& parameters, const AdamWOptions& options, double ema_decay);

  /// Global norm clip (0: none), at::_fused_adamw_ and EMA; nothing where `bad` ([] float32, on the device)
  /// is not 0 or the norm is not finite. `learning_rate` is a tensor ([] float32, on the device). Returns the
  /// norm before clipping. No host synchronisation on an accelerator.
  torch::Tensor update(const torch::Tensor& learning_rate, double clip_norm, const torch::Tensor& bad);
  void zero_gradients();

  /// Everything that a resumed run needs, as it is (not copies): "exp_avg.<name>", "exp_avg_sq.<name>",
  /// "ema.<name>", "step".
  [[nodiscard]] NamedTensors state() const;
  /// The averaged weights by parameter name; empty without EMA.
  [[nodiscard]] NamedTensors averaged() const;

 private:
  struct Part {
    std::string name;
    std::int64_t offset = 0;
    std::vector<std::int64_t> sizes;
  };
  [[nodiscard]] NamedTensors parts(const torch::Tensor& of, const std::string& prefix) const;

  AdamWOptions options_;
  double ema_decay_ = 0;
  std::vector<Part> parts_;
  torch::Tensor weights_, gradients_, exp_avg_, exp_avg_sq_, ema_, step_;
};

/// A learning rate for every update: finite and positive up to and behind the last one.
struct Schedule {
  enum class Kind : std::uint8_t { constant, cosine, noam } kind = Kind::cosine;
  double peak = 1e-3;          ///< above 0
  std::int64_t warm_up = 100;  ///< updates; goes first where it is longer than `total`
  std::int64_t total = 1000;   ///< updates; behind them cosine's floor stays
  double floor = 0.01;  ///< of the peak, for cosine and Noam; at least 1e-6 of it, whatever is asked for
  /// `update` counts from 0.
  [[nodiscard]] double at(std::int64_t update) const;
};

}  // namespace penstock::train
