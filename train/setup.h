// From settings and batches to what a step needs, for train() and retrace().
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/step.h"
#include "train/trainer.h"

namespace penstock::train {

/// Throws Error for what the trainer cannot do: several ranks, a device that is not there, mels that are not
/// [frames, bins].
torch::Device compute_device(const Config& config);
StepOptions step_options(const Config& config, const GraphsMaker& graphs);
/// Valid frames, tokens and rows.
Counts counts_of(const Batch& batch);
RetraceReport report_of(const Retrace& retrace, const Feed& feed, std::int64_t update);
std::vector<std::string> ids_of(const Dataset& dataset, std::span<const std::int64_t> utterances);

}  // namespace penstock::train
