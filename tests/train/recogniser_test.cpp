#include "examples/ctc/recogniser.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/train/random_batch.h"

namespace penstock::train {
namespace {

const RecogniserOptions options = {
    .n_symbols = 11, .bins = 6, .width = 32, .depth = 2, .heads = 2, .dropout = 0};

/// The last row is empty; the one before has more symbols than pairs of frames.
ModelBatch batch_of_texts() {
  torch::manual_seed(2);
  return random_batch({9, 5, 8, 0}, {39, 26, 6, 0}, 9, 40, options.bins, options.n_symbols);
}

TEST(Recogniser, ItsLossFalls) {
  const ModelBatch batch = batch_of_texts();
  Recogniser model(options);
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(3e-3));
  double first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    optimizer.zero_grad();
    const torch::Tensor loss = total(model.forward(batch)) / (9 + 5);
    loss.backward();
    optimizer.step();
    (i == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, first / 4);

  // What it says without repetitions and blanks is the text.
  model.eval();
  torch::NoGradGuard no_grad;
  const torch::Tensor best = model.outputs(batch.mel, batch.mel_lengths).argmax(2);
  for (std::int64_t row = 0; row < 2; ++row) {
    std::vector<std::int64_t> said, text;
    std::int64_t before = options.blank;
    for (std::int64_t i = 0; i < (batch.mel_lengths[row].item<int>() + 1) / 2; ++i) {
      const auto symbol = best[row][i].item<std::int64_t>();
      if (symbol != before && symbol != options.blank) said.push_back(symbol);
      before = symbol;
    }
    for (int i = 0; i < batch.token_lengths[row].item<int>(); ++i)
      text.push_back(batch.tokens[row][i].item<int>());
    EXPECT_EQ(said, text);
  }
}

TEST(Recogniser, PaddingChangesNothing) {
  const ModelBatch batch = batch_of_texts();
  Recogniser model(options);
  ModelBatch changed = batch;
  changed.tokens = torch::where(mask_of(batch.token_lengths, 9), batch.tokens, 10).to(torch::kInt);
  changed.mel = torch::where(mask_of(batch.mel_lengths, 40).unsqueeze(2), batch.mel,
                             std::numeric_limits<float>::quiet_NaN());
  const torch::Tensor a = total(model.forward(batch)), b = total(model.forward(changed));
  EXPECT_EQ(a.item<float>(), b.item<float>());
  EXPECT_GT(a.item<float>(), 0);
  b.backward();
  for (const auto& p : model.parameters()) EXPECT_TRUE(torch::isfinite(p.grad()).all().item<bool>());
}

TEST(Recogniser, EmptyRowsGiveNothingAndFiniteGradients) {
  Recogniser model(options);
  const torch::Tensor loss =
      total(model.forward(random_batch({0, 0}, {0, 0}, 8, 16, options.bins, options.n_symbols)));
  EXPECT_EQ(loss.item<float>(), 0);
  loss.backward();
  for (const auto& p : model.parameters()) EXPECT_TRUE(torch::isfinite(p.grad()).all().item<bool>());
}

}  // namespace
}  // namespace penstock::train
