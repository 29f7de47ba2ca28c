// Batches of noise for the tests of models.
#pragma once
#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "train/model.h"

namespace penstock::train {

/// Valid parts from torch's generator; padding as the feed leaves it (0).
inline ModelBatch random_batch(const std::vector<std::int32_t>& token_lengths,
                               const std::vector<std::int32_t>& mel_lengths, std::int32_t tokens,
                               std::int32_t frames, std::int64_t bins, std::int64_t n_symbols) {
  const auto rows = static_cast<std::int64_t>(token_lengths.size());
  const auto before = [&](const torch::Tensor& lengths, std::int64_t size) {
    return torch::arange(size, torch::kInt).unsqueeze(0) < lengths.unsqueeze(1);
  };
  ModelBatch batch;
  batch.shape = {static_cast<std::int32_t>(rows), tokens, frames};
  batch.token_lengths = torch::tensor(token_lengths, torch::kInt);
  batch.mel_lengths = torch::tensor(mel_lengths, torch::kInt);
  batch.tokens =
      torch::randint(4, n_symbols, {rows, tokens}, torch::kInt) * before(batch.token_lengths, tokens);
  batch.mel = (torch::randn({rows, frames, bins}) * 2 - 5) * before(batch.mel_lengths, frames).unsqueeze(2);
  batch.speakers = torch::where(batch.mel_lengths > 0, 0, -1).to(torch::kInt);
  return batch;
}

/// Rows [first, first + count) of a batch.
inline ModelBatch some_rows(const ModelBatch& batch, std::int64_t first, std::int64_t count) {
  const auto part = [&](const torch::Tensor& x) { return x.narrow(0, first, count).contiguous(); };
  return {{static_cast<std::int32_t>(count), batch.shape.tokens, batch.shape.frames},
          part(batch.tokens),
          part(batch.token_lengths),
          part(batch.mel),
          part(batch.mel_lengths),
          part(batch.speakers)};
}

/// Weighted sum of the losses.
inline torch::Tensor total(const std::vector<Loss>& losses) {
  torch::Tensor sum = losses.front().sum * losses.front().weight;
  for (std::size_t i = 1; i < losses.size(); ++i) sum = sum + losses[i].sum * losses[i].weight;
  return sum;
}

}  // namespace penstock::train
