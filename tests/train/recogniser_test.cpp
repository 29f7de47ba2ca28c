#include "examples/ctc/recogniser.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/ctc/hearing.h"
#include "tests/train/random_batch.h"

namespace penstock::train {
namespace {

const RecogniserOptions options = {
    .n_symbols = 11, .bins = 6, .width = 32, .depth = 2, .heads = 2, .dropout = 0};

/// The last row is empty; the one before has more symbols than pairs of frames.
ModelBatch batch_of_texts() {
  torch::set_num_threads(1);  // over tensors of this size, threads only wait for each other
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

  model.eval();
  const std::vector<Tokens> heard = hear(model, batch.mel, batch.mel_lengths);
  ASSERT_EQ(heard.size(), 4u);
  for (std::size_t row = 0; row < 2; ++row) {
    const std::int32_t* text = batch.tokens[static_cast<std::int64_t>(row)].data_ptr<std::int32_t>();
    EXPECT_EQ(heard[row],
              Tokens(text, text + batch.token_lengths[static_cast<std::int64_t>(row)].item<int>()));
  }
  EXPECT_THAT(heard[3], testing::IsEmpty());
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

TEST(EditDistance, IsTheLeastNumberOfChanges) {
  const Tokens kitten = {10, 8, 19, 19, 4, 13}, sitting = {18, 8, 19, 19, 8, 13, 6};
  EXPECT_EQ(edit_distance(kitten, sitting), 3);
  EXPECT_EQ(edit_distance(sitting, kitten), 3);
  EXPECT_EQ(edit_distance(kitten, kitten), 0);
  EXPECT_EQ(edit_distance(kitten, {}), 6);
  EXPECT_EQ(edit_distance({}, sitting), 7);
}

}  // namespace
}  // namespace penstock::train
