// One training step: the only implementation, for training with any accumulation and for validation.
//
//   Step step(model, {.clip_norm = 1});
//   step.warm_up(plan.shapes(), bins);                   // every shape once, largest first
//   for (...) { step.add(batch, window); step.add(batch, window); step.update(lr); ... step.figures() ... }
//
// With `graphs` (CUDA), warm_up() captures forward and backward of each shape, and once what ends a window;
// add() and update() then replay them. Without, the same code runs eagerly. A batch whose shape has no plan
// after warm_up() is a retrace and runs eagerly too, as do all of its shape: a graph's memory is never given
// back, and shapes that nobody planned may be many. Nothing in here waits for the device but warm_up(),
// evaluate() and figures() with `wait`. One thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/device/device.h"
#include "train/graph.h"
#include "train/model.h"
#include "train/optimizer.h"
#include "train/retraced.h"

namespace penstock::train {

enum class Precision : std::uint8_t { fp32, bf16 };

struct StepOptions {
  torch::Device device = torch::kCPU;
  Precision precision = Precision::fp32;
  /// Null (the CPU; plan_steps: false): nothing is captured; shapes are still warmed up and counted.
  std::shared_ptr<Graphs> graphs;
  AdamWOptions optimizer;
  double clip_norm = 1.0;    ///< of all gradients together; 0: none
  double ema_decay = 0.999;  ///< 0: no averaged weights
};

/// What one update did. Read from the device some updates later.
struct Figures {
  std::int64_t update = 0;                             ///< counted from 0 since the Step was made
  double loss = 0;                                     ///< weighted sum of the means
  std::vector<std::pair<std::string, double>> losses;  ///< means by name, without weights
  double grad_norm = 0;                                ///< before clipping
  bool skipped = false;                                ///< loss or gradient not finite: nothing was changed
  /// That an accelerator spent on the window's batches and the update, by its own clock.
  std::optional<double> device_ms;
};

class Step {
 public:
  /// Moves the model to the device and sets it to training. Its parameters are the Optimizer's from here on,
  /// so what holds them must not replace them.
  Step(std::shared_ptr<Model> model, const StepOptions& options);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Plans these shapes, largest first, with rows of length 0; leaves weights, optimizer and random numbers
  /// as they were. Throws Error for a model that cannot be captured.
  void warm_up(std::span<const Shape> shapes, std::int32_t bins);

  /// Forward and backward of one batch of a window whose valid elements (over all its batches and ranks) are
  /// `window`. Returns the retrace that it caused, if it did: from then on its shape is known. The batch
  /// may be let go of at once. Throws Error for losses that break the model's contract.
  std::optional<Retrace> add(const DeviceBatch& batch, const Counts& window);
  /// The end of a window: clip, AdamW with this learning rate, EMA, gradients zero again. With a loss or a
  /// gradient that is not finite nothing changes but the gradients. Throws Error without a batch since the
  /// last one.
  void update(double learning_rate);
  /// Figures of updates that are done, oldest first; with `wait` of all.
  std::vector<Figures> figures(bool wait = false);

  /// Sums of the losses of a batch, without gradients or dropout; same code, always eagerly. Waits.
  std::vector<std::pair<std::string, double>> evaluate(const DeviceBatch& batch);
  /// Sum of weight * sum / count over the model's losses, by name: comparable with Figures::loss. Throws
  /// Error for a name that no batch has had so far.
  [[nodiscard]] double weighted_mean(const std::vector<std::pair<std::string, double>>& sums,
                                     const Counts& counts) const;

  [[nodiscard]] std::int64_t retraces() const;
  [[nodiscard]] std::int64_t planned() const;  ///< shapes, those of retraces too
  [[nodiscard]] Model& model() const;
  [[nodiscard]] Optimizer& optimizer() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::train
