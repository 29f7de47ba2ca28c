#include "train/step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>

#include "fake_graphs.h"
#include "penstock/core/error.h"
#include "toy.h"
#include "train/bf16.h"

namespace penstock::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
using toy::counts;
using toy::Held;
using toy::make_toy;
using toy::random_rows;
using toy::rows_of;
using toy::Toy;

constexpr Shape shape{16, 12, 20};

/// Weights, buffers, optimizer: all that training changes.
std::vector<torch::Tensor> everything(const Step& step) {
  std::vector<torch::Tensor> result;
  for (const auto& t : step.model().parameters()) result.push_back(t.detach().clone());
  for (const auto& t : step.model().buffers()) result.push_back(t.detach().clone());
  for (const auto& [name, t] : step.optimizer().state()) result.push_back(t.clone());
  return result;
}

void expect_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(torch::equal(a[i], b[i])) << i << "\n" << a[i] << b[i];
}

double greatest_difference(const Model& a, const Model& b) {
  double most = 0;
  const auto left = a.parameters(), right = b.parameters();
  for (std::size_t i = 0; i < left.size(); ++i)
    most = std::max(most, (left[i] - right[i]).abs().max().item<double>());
  return most;
}

/// One window of one batch.
void train_on(Step& step, const std::shared_ptr<Held>& batch, double rate = 1e-2) {
  step.add(DeviceBatch(batch), counts(*batch));
  step.update(rate);
}

TEST(Step, AWindowOfTwoBatchesIsOneOfTheirRows) {
  Step whole(make_toy(), {}), halves(make_toy(), {});
  for (unsigned i = 0; i < 5; ++i) {
    const auto all = random_rows(shape, 13, i);
    train_on(whole, all);
    for (const int begin : {0, 8}) halves.add(DeviceBatch(rows_of(*all, begin, begin + 8)), counts(*all));
    halves.update(1e-2);
  }
  EXPECT_LT(greatest_difference(whole.model(), halves.model()), 1e-5);
  const auto a = whole.figures(true), b = halves.figures(true);
  ASSERT_EQ(a.size(), 5u);
  ASSERT_EQ(b.size(), 5u);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].loss, b[i].loss, 1e-5);
    EXPECT_NEAR(a[i].grad_norm, b[i].grad_norm, 1e-5);
  }
  EXPECT_LT(a.back().loss, a.front().loss) << "nothing was learnt";
}

TEST(Step, RowsOfLengthZeroChangeNothing) {
  Step with(make_toy(), {}), without(make_toy(), {});
  const auto all = random_rows(shape, 9, 3);
  train_on(with, all);
  train_on(without, rows_of(*all, 0, 9));
  EXPECT_LT(greatest_difference(with.model(), without.model()), 1e-6);
  // A window without anything valid is an update with gradients of zero.
  train_on(with, random_rows(shape, 0, 4));
  const auto figures = with.figures(true);
  EXPECT_FALSE(figures.back().skipped);
  EXPECT_EQ(figures.back().loss, 0);
  EXPECT_EQ(figures.back().grad_norm, 0);
}

TEST(Step, GradientsStayWhereTheyAre) {
  Step step(make_toy(), {});
  std::vector<void*> before, after;
  for (const auto& p : step.model().parameters()) before.push_back(p.grad().data_ptr());
  for (unsigned i = 0; i < 3; ++i) train_on(step, random_rows(shape, 16, i));
  for (const auto& p : step.model().parameters()) {
    after.push_back(p.grad().data_ptr());
    EXPECT_EQ(p.grad().abs().max().item<float>(), 0);
  }
  EXPECT_EQ(before, after);
}

TEST(Step, WarmUpLeavesEverythingAsItWas) {
  const auto model = make_toy({.dropout = 0.5});
  Step step(model, {});
  train_on(step, random_rows(shape, 16, 1));
  const auto before = everything(step);
  const torch::Tensor generator = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  const std::vector<Shape> shapes{{16, 12, 20}, {4, 30, 100}, {16, 40, 25}, {16, 8, 25}};
  model->forwards.clear();
  step.warm_up(shapes, Toy::bins);
  EXPECT_THAT(model->forwards, ElementsAre(shapes[2], shapes[3], shapes[1], shapes[0])) << "largest first";
  expect_equal(before, everything(step));
  EXPECT_TRUE(torch::equal(generator, at::globalContext().defaultGenerator(torch::kCPU).get_state()));
  for (const auto& p : model->parameters()) EXPECT_EQ(p.grad().abs().max().item<float>(), 0);
  EXPECT_EQ(step.planned(), 4);
  EXPECT_EQ(step.figures(true).size(), 1u) << "of the update before alone";

  step.add(DeviceBatch(random_rows(shape, 16, 1)), {1, 1, 1});
  EXPECT_THAT([&] { step.warm_up(shapes, Toy::bins); }, ThrowsMessage<Error>(HasSubstr("inside")));
}

TEST(Step, ABatchWithoutAPlanIsARetraceOnce) {
  Step step(make_toy(), {});
  const std::vector<Shape> shapes{shape, {16, 24, 40}};
  step.warm_up(shapes, Toy::bins);
  EXPECT_FALSE(step.add(DeviceBatch(random_rows(shape, 16, 1)), {1, 1, 1}));
  const auto odd = random_rows({2, 12, 24}, 2, 1);
  odd->host.epoch = 3, odd->host.step = 7;
  const auto retrace = step.add(DeviceBatch(odd), {1, 1, 1});
  ASSERT_TRUE(retrace);
  EXPECT_EQ(retrace->shape, (Shape{2, 12, 24}));
  EXPECT_EQ(retrace->epoch, 3);
  EXPECT_EQ(retrace->step, 7);
  EXPECT_THAT(retrace->utterances, ElementsAre(0, 1));
  EXPECT_EQ(retrace->cause, "shape (2, 12, 24) is none of the 2 that were planned");
  EXPECT_FALSE(step.add(DeviceBatch(odd), {1, 1, 1}));
  EXPECT_EQ(step.retraces(), 1);
  EXPECT_EQ(step.planned(), 3);
}

TEST(Step, WhatIsNotFiniteChangesNothing) {
  Step step(make_toy(), {}), never(make_toy(), {});
  const auto good = random_rows(shape, 16, 1), bad = random_rows(shape, 16, 2);
  bad->mel[0] = std::numeric_limits<float>::quiet_NaN();
  train_on(step, good);
  const auto before = everything(step);
  // One bad batch spoils its window.
  step.add(DeviceBatch(good), counts(*good));
  step.add(DeviceBatch(bad), counts(*good));
  step.update(1e-2);
  for (const auto& p : step.model().parameters()) EXPECT_EQ(p.grad().abs().max().item<float>(), 0);
  step.model().buffers()[0].copy_(torch::ones({}));  // the toy counts its forward passes
  expect_equal(before, everything(step));
  train_on(step, good);
  for (int i = 0; i < 2; ++i) train_on(never, good);
  expect_equal(everything(never), everything(step));

  const auto figures = step.figures(true);
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_FALSE(figures[0].skipped);
  EXPECT_TRUE(figures[1].skipped);
  EXPECT_TRUE(std::isnan(figures[1].loss));
  EXPECT_FALSE(figures[2].skipped);
  EXPECT_EQ(figures[2].update, 2);
}

TEST(Step, AGradientThatIsNotFiniteChangesNothing) {
  Step step(make_toy({.wild_gradient = true}), {});
  const auto weights = step.model().parameters()[0].detach().clone();
  train_on(step, random_rows(shape, 16, 1));
  const auto figures = step.figures();
  EXPECT_TRUE(std::isfinite(figures.at(0).loss));
  EXPECT_FALSE(std::isfinite(figures.at(0).grad_norm));
  EXPECT_TRUE(figures.at(0).skipped);
  EXPECT_TRUE(torch::equal(weights, step.model().parameters()[0]));
}

TEST(Step, EvaluationIsTheSameLossAndChangesNothing) {
  Step step(make_toy({.dropout = 0.5}), {}), plain(make_toy(), {});
  const auto batch = random_rows(shape, 11, 5);
  const Counts window = counts(*batch);
  EXPECT_THAT(
      [&] {
        static_cast<void>(step.weighted_mean({{"mel", 1}}, window));
      },
      ThrowsMessage<Error>(HasSubstr("no loss mel")));
  const auto before = everything(step);
  const auto sums = step.evaluate(DeviceBatch(batch));
  EXPECT_EQ(sums, step.evaluate(DeviceBatch(batch)));
  expect_equal(before, everything(step));
  EXPECT_TRUE(step.model().is_training());
  EXPECT_EQ(step.planned(), 0) << "its plans are its own";
  for (const auto& p : step.model().parameters()) EXPECT_EQ(p.grad().abs().max().item<float>(), 0);

  train_on(plain, batch);
  const Figures figures = plain.figures(true).at(0);
  EXPECT_NEAR(step.weighted_mean(sums, window), figures.loss, 1e-5);
  ASSERT_EQ(figures.losses.size(), 3u);
  double loss = 0;
  const double weights[] = {1, 0.5, 0.1};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(figures.losses[i].first, sums[i].first);
    EXPECT_NEAR(figures.losses[i].second, sums[i].second / window[i], 1e-5);
    loss += weights[i] * figures.losses[i].second;
  }
  EXPECT_NEAR(loss, figures.loss, 1e-5);
}

TEST(Step, AStepInBfloat16IsNearOneInFloat32) {
  Step full(make_toy(), {}), half(make_toy(), {.precision = Precision::bf16});
  for (unsigned i = 0; i < 10; ++i) {
    const auto batch = random_rows(shape, 16, i % 2);
    train_on(full, batch);
    train_on(half, batch);
  }
  const auto a = full.figures(true), b = half.figures(true);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].loss, b[i].loss, 0.02 * a[i].loss);
    EXPECT_NE(a[i].loss, b[i].loss) << "was not bfloat16";
  }
  EXPECT_LT(b.back().loss, b.front().loss);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU)) << "is left on";
}

// Every kernel that oneDNN and torch choose by size: an illegal instruction would end the test.
TEST(Bf16, ProductsOfAllSizesRun) {
  prepare_bf16();
  for (const int n : {1, 2, 7, 16, 31, 64, 200})
    for (const int k : {1, 8, 33, 64, 256}) {
      const auto a = torch::randn({n, k}), b = torch::randn({k, n});
      const auto product = torch::matmul(a.to(torch::kBFloat16), b.to(torch::kBFloat16)).to(torch::kFloat32);
      EXPECT_LT((product - torch::matmul(a, b)).abs().max().item<double>(), 0.03 * k + 0.1);
    }
  const auto image = torch::randn({2, 80, 100}, torch::kBFloat16),
             kernel = torch::randn({80, 80, 5}, torch::kBFloat16);
  EXPECT_TRUE(torch::conv1d(image, kernel).isfinite().all().item<bool>());
  const auto q = torch::randn({2, 4, 64, 32}, torch::kBFloat16);
  EXPECT_TRUE(torch::scaled_dot_product_attention(q, q, q).isfinite().all().item<bool>());
}

TEST(CapturedStep, EachShapeIsCapturedOnceAndTheUpdateOnce) {
  const auto graphs = std::make_shared<FakeGraphs>();
  const auto model = make_toy();
  Step step(model, {.graphs = graphs});
  const Shape large{16, 24, 40}, odd{2, 12, 24};
  step.warm_up(std::vector{shape, large}, Toy::bins);
  EXPECT_THAT(graphs->calls, ElementsAre("capture 0", "capture 1", "capture 2"));
  EXPECT_THAT(model->forwards, ElementsAre(large, shape)) << "largest first, and nothing in the update";

  graphs->calls.clear();
  model->forwards.clear();
  for (const Shape& s : {shape, large, shape}) step.add(DeviceBatch(random_rows(s, 2, 1)), {1, 1, 1});
  step.update(1e-2);
  EXPECT_THAT(graphs->calls, ElementsAre("replay 1", "replay 0", "replay 1", "replay 2"));
  EXPECT_THAT(model->forwards, ElementsAre(shape, large, shape));

  graphs->calls.clear();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(step.add(DeviceBatch(random_rows(odd, 2, 1)), {1, 1, 1}).has_value(), i == 0);
    step.update(1e-2);
  }
  EXPECT_THAT(graphs->calls, ElementsAre("replay 2", "replay 2")) << "what nobody planned runs eagerly";
  graphs->calls.clear();
  step.evaluate(DeviceBatch(random_rows(shape, 2, 1)));
  EXPECT_THAT(graphs->calls, IsEmpty()) << "without gradients it is another piece of work";
}

TEST(CapturedStep, WarmUpLeavesEverythingAsItWas) {
  Step step(make_toy({.dropout = 0.5}), {.graphs = std::make_shared<FakeGraphs>()});
  train_on(step, random_rows(shape, 16, 1));
  const auto before = everything(step);
  const torch::Tensor generator = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  step.warm_up(std::vector{shape, Shape{16, 24, 40}}, Toy::bins);
  expect_equal(before, everything(step));
  EXPECT_TRUE(torch::equal(generator, at::globalContext().defaultGenerator(torch::kCPU).get_state()));
  for (const auto& p : step.model().parameters()) EXPECT_EQ(p.grad().abs().max().item<float>(), 0);
}

/// Windows of one to three batches of three shapes, one of which nobody planned, with dropout, other learning
/// rates and a batch that is not finite.
struct Course {
  std::vector<Figures> figures;
  std::vector<torch::Tensor> end;
};
Course course(const StepOptions& options) {
  Step step(make_toy({.dropout = 0.3}), options);
  const std::vector<Shape> shapes{shape, {16, 24, 40}, {5, 12, 24}};
  step.warm_up(std::span(shapes).first(2), Toy::bins);
  unsigned seed = 0;
  Course result;
  for (int window = 0; window < 12; ++window) {
    std::vector<std::shared_ptr<Held>> batches;
    Counts all{};
    for (int i = 0; i <= window % 3; ++i, ++seed) {
      const Shape& s = shapes[seed % 3];
      batches.push_back(random_rows(s, s.rows - static_cast<int>(seed % 4), seed));
      for (std::size_t k = 0; k < all.size(); ++k) all[k] += counts(*batches.back())[k];
    }
    if (window == 7) batches.front()->mel[0] = std::numeric_limits<float>::quiet_NaN();
    for (auto& batch : batches) {
      step.add(DeviceBatch(batch), all);
      std::ranges::fill(batch->mel, 1e9f);  // it was let go of
      batch.reset();
    }
    step.update(1e-2 / (1 + window));
    for (Figures& f : step.figures(window % 2 == 0)) result.figures.push_back(std::move(f));
  }
  EXPECT_EQ(step.retraces(), 1);
  result.end = everything(step);
  return result;
}

TEST(CapturedStep, ItsResultsAreTheEagerOnesBitForBit) {
  const auto graphs = std::make_shared<FakeGraphs>();
  const Course eager = course({}), captured = course({.graphs = graphs});
  EXPECT_EQ(graphs->captured, 3u);
  expect_equal(eager.end, captured.end);
  ASSERT_EQ(eager.figures.size(), 12u);
  ASSERT_EQ(captured.figures.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    const Figures &a = eager.figures[i], &b = captured.figures[i];
    EXPECT_EQ(a.update, b.update);
    EXPECT_EQ(a.skipped, i == 7);
    EXPECT_EQ(b.skipped, i == 7);
    if (i == 7) continue;  // not numbers
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
}

TEST(Step, MisuseIsNamed) {
  Step step(make_toy(), {}), half(make_toy({.half_loss = true}), {});
  EXPECT_THAT([&] { step.update(1e-3); }, ThrowsMessage<Error>(HasSubstr("needs a batch")));
  const auto batch = random_rows(shape, 16, 1);
  EXPECT_THAT(
      [&] {
        half.add(DeviceBatch(batch), {1, 1, 1});
      },
      ThrowsMessage<Error>(HasSubstr("loss style must be one float32, but is BFloat16")));
  batch->tokens.pop_back();
  batch->show(shape);
  EXPECT_THAT(
      [&] {
        step.add(DeviceBatch(batch), {1, 1, 1});
      },
      ThrowsMessage<Error>(
          HasSubstr("tokens of a batch of shape (16, 12, 20) must have 192 elements, but has 191")));
}

}  // namespace
}  // namespace penstock::train
