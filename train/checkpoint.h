// RUN/checkpoints/step-00001200/{model.safetensors, optimizer.safetensors, state.json}.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "penstock/feed/feed.h"
#include "train/model.h"
#include "train/optimizer.h"

namespace penstock::train {

/// Where a run stands, beside its tensors.
struct RunState {
  std::int64_t update = 0;          ///< updates done
  FeedState feed;                   ///< behind the last batch that was used
  std::string random;               ///< the generator's state, base64
  std::string device_random;        ///< that of the accelerator's; empty on the CPU
  int threads = 0;                  ///< torch's: sums depend on it
  std::string model, mel, symbols;  ///< what must stay the same: the keys behind it, as JSON text
  std::string order;                ///< likewise what may change, but starts a new epoch
  double best_validation = std::numeric_limits<double>::quiet_NaN();  ///< the least so far; NaN: none
  std::int64_t skipped_in_a_row = 0;                                  ///< updates that were not finite
};

/// Written to a temporary folder, synced, renamed; then checkpoints older than the last `keep` (1 or more)
/// go, but never the best one, and what a killed writer left. One of the same update is replaced. `best`:
/// this one is the best by validation so far (RUN/checkpoints/best names it). Throws Error naming the path; a
/// failure leaves what was there.
void save_checkpoint(const std::filesystem::path& run, const Model& model, const Optimizer& optimizer,
                     const RunState& state, int keep, bool best);
/// The newest whole one of a run; none when there is none. Half-written ones are passed over.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& run);
/// Throws Error naming the path and what is wrong with it.
RunState load_state(const std::filesystem::path& checkpoint);
/// Weights and optimizer; `optimizer` may be null. Averages that one side alone has are left out, or start at
/// the weights. Throws Error naming the path and the first tensor that differs.
void load_tensors(const std::filesystem::path& checkpoint, Model& model, Optimizer* optimizer);

/// The generator of torch for this device, as text and back.
std::string random_state(torch::Device device = torch::kCPU);
void set_random_state(const std::string& state, torch::Device device = torch::kCPU);

}  // namespace penstock::train
