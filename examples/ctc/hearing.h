// What a recogniser heard, beside what was said.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "examples/ctc/recogniser.h"

namespace penstock::train {

using Tokens = std::vector<std::int32_t>;

/// The likeliest symbol of each pair of frames, without repetitions and blanks, for each row. Greedy: the
/// likeliest text may be another one. Without gradients; the model should be in eval().
std::vector<Tokens> hear(const Recogniser& model, const torch::Tensor& mel, const torch::Tensor& lengths);

/// How many tokens have to be put in, left out or changed to make one of the other.
std::int64_t edit_distance(std::span<const std::int32_t> a, std::span<const std::int32_t> b);

}  // namespace penstock::train
