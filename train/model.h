// The seam between the trainer and what it trains.
//
//   struct Recogniser : Model { std::vector<Loss> forward(const ModelBatch& batch) override; ... };
//
// Everything that the trainer does (plans, accumulation, validation, checkpoints) goes through this
// interface.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "penstock/core/mel_options.h"
#include "penstock/core/types.h"

namespace penstock::train {

/// What a loss is counted per.
enum class Per : std::uint8_t { frame, token, row };

/// Valid frames, tokens and rows (those of length above 0), in the order of Per.
using Counts = std::array<double, 3>;

/// A batch as tensors on the model's device. They are static inside a shape: a plan's own memory, into which
/// every batch of that shape is put, so lengths are values of tensors and never of the host.
struct ModelBatch {
  Shape shape;
  torch::Tensor tokens;         ///< [rows, tokens] int32, 0 behind each text
  torch::Tensor token_lengths;  ///< [rows] int32
  torch::Tensor mel;            ///< [rows, frames, bins] float32, as the feed delivers it (not normalised)
  torch::Tensor mel_lengths;    ///< [rows] int32
  torch::Tensor speakers;       ///< [rows] int32, -1 in a row of length 0
};

/// A term of what is minimised: the sum over all valid elements of a batch. The step divides it by the count
/// of the whole window (all batches of an accumulation, all ranks), so that a window gives the same gradients
/// however it is cut.
struct Loss {
  std::string name;
  torch::Tensor sum;  ///< [] float32
  Per per = Per::frame;
  double weight = 1;
};

/// Parameters and buffers are those of the torch module: their names are the checkpoint's. forward() must
/// - be static inside a shape: the same operations in the same order, nothing that depends on values or reads
/// one back,
/// - give the same sums whatever padded tokens, frames and rows of length 0 contain, and finite gradients for
/// such rows.
class Model : public torch::nn::Module {
 public:
  virtual std::vector<Loss> forward(const ModelBatch& batch) = 0;
  /// What a checkpoint must hold for the weights to mean anything, as JSON text: kind, sizes, normalisation.
  /// Two models with the same text have the same tensors.
  [[nodiscard]] virtual std::string description() const = 0;
};

/// With which (mel - mean) / deviation has the size that layers like, whatever the preset: its floor and
/// loudest speech lie three deviations from the mean.
struct MelRange {
  double mean = 0, deviation = 1;
};
MelRange mel_range(const MelOptions& mel);

}  // namespace penstock::train
