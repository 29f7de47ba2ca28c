#include "train/setup.h"

#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock::train {

torch::Device compute_device(const Config& config) {
  if (config.world != 1) throw Error(fmt::format("world must be 1 in the trainer, but is {}", config.world));
  if (config.mel.layout != MelLayout::frames_first)
    throw Error("mel_layout must be frames_first in the trainer, but is bins_first");
  if (config.device == "cpu") return torch::kCPU;
  if (config.device == "simulated")
    throw Error("device must be cpu or cuda in the trainer, but is simulated");
  if (!links_cuda())
    throw Error(
        fmt::format("device {}: this program is built without CUDA; penstock-train-cuda is built with it",
                    config.device));
  if (!at::hasCUDA())
    throw Error(fmt::format("device {}: LibTorch finds no driver or no CUDA device", config.device));
  return torch::Device(config.device);
}

StepOptions step_options(const Config& config, const GraphsMaker& graphs) {
  const TrainSettings& t = config.train;
  const torch::Device device = compute_device(config);
  return {.device = device,
          .precision = t.precision == ComputePrecision::bf16 ? Precision::bf16 : Precision::fp32,
          .graphs = t.plan_steps ? graphs(device) : nullptr,
          .optimizer = {.weight_decay = t.weight_decay},
          .clip_norm = t.clip_norm,
          .ema_decay = t.ema_decay};
}

Counts counts_of(const Batch& batch) {
  Counts counts{};
  for (const std::int32_t n : batch.mel_lengths) counts[static_cast<std::size_t>(Per::frame)] += n;
  for (const std::int32_t n : batch.token_lengths) counts[static_cast<std::size_t>(Per::token)] += n;
  for (const std::int32_t n : batch.mel_lengths) counts[static_cast<std::size_t>(Per::row)] += n > 0;
  return counts;
}

RetraceReport report_of(const Retrace& retrace, const Feed& feed, std::int64_t update) {
  return {.retrace = retrace,
          .update = update,
          .bucket = feed.plan().batch(retrace.epoch, retrace.step).bucket,
          .ids = ids_of(feed.dataset(), retrace.utterances)};
}

std::vector<std::string> ids_of(const Dataset& dataset, std::span<const std::int64_t> utterances) {
  std::vector<std::string> ids;
  for (const std::int64_t u : utterances)
    if (u >= 0) ids.emplace_back(dataset.index.utterance(u).id);
  return ids;
}

}  // namespace penstock::train
