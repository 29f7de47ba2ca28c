#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <set>

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "tests/train/random_batch.h"
#include "train/bf16.h"
#include "train/tts.h"

namespace penstock::train {
namespace {

using testing::HasSubstr;
using torch::Tensor;

/// Small enough for finite differences, with more than one of everything. No dropout.
TtsOptions small_options() {
  return {.n_symbols = 11,
          .bins = 6,
          .sizes = {.text_width = 8,
                    .text_depth = 2,
                    .decoder_width = 16,
                    .decoder_depth = 3,
                    .head_width = 4,
                    .prenet_width = 5,
                    .style_width = 3,
                    .postnet_width = 7,
                    .postnet_depth = 3},
          .reduction = 2,
          .reference_frames = 8,
          .dropout = 0,
          .prenet_dropout = 0,
          .reference_dropout = 0};
}

std::shared_ptr<TtsModel> seeded(const TtsOptions& options, std::uint64_t seed = 7) {
  torch::set_num_threads(1);  // over tensors of this size, threads only wait for each other
  torch::manual_seed(seed);
  auto model = make_tts(options);
  // Biases and scales start as constants, which would hide some mistakes.
  torch::NoGradGuard no_grad;
  for (const auto& p : model->parameters()) p.add_(torch::randn_like(p), 0.05);
  return model;
}

/// A text of each kind: full, short, shorter than the reference crop, none.
ModelBatch mixed_batch(const TtsOptions& options) {
  return random_batch({9, 5, 2, 0}, {24, 17, 5, 0}, 9, 24, options.bins, options.n_symbols);
}

/// The names of all operations that `work` calls, in their order.
std::vector<std::string> operations(const std::function<void()>& work) {
  static std::mutex mutex;
  static std::vector<std::string> names;
  names.clear();
  const at::CallbackHandle handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        const std::lock_guard lock(mutex);
        names.emplace_back(call.name());
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  work();
  at::removeCallback(handle);
  return names;
}

std::vector<Tensor> gradients(TtsModel& model, const ModelBatch& batch) {
  for (auto& p : model.parameters()) p.mutable_grad() = Tensor();
  total(model.forward(batch)).backward();
  std::vector<Tensor> all;
  for (const auto& p : model.parameters())
    all.push_back(p.grad().defined() ? p.grad().clone() : torch::zeros_like(p));
  return all;
}

double largest_difference(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(Tts, GradientsAreThoseOfFiniteDifferences) {
  const TtsOptions options = small_options();
  auto model = seeded(options);
  model->to(torch::kDouble);
  ModelBatch batch = mixed_batch(options);
  batch.mel = batch.mel.to(torch::kDouble);
  const std::vector<Tensor> found = gradients(*model, batch);

  torch::NoGradGuard no_grad;
  const auto named = model->named_parameters();
  for (std::size_t i = 0; i < named.size(); ++i) {
    const Tensor flat = named[i].value().view(-1), gradient = found[i].view(-1);
    // The element that matters most, and two others.
    std::set<std::int64_t> elements = {gradient.abs().argmax().item<std::int64_t>(), 0, flat.numel() / 2};
    for (const std::int64_t e : elements) {
      const double was = flat[e].item<double>(), h = 1e-6;
      flat[e] = was + h;
      const double above = total(model->forward(batch)).item<double>();
      flat[e] = was - h;
      const double below = total(model->forward(batch)).item<double>();
      flat[e] = was;
      const double expected = (above - below) / (2 * h), is = gradient[e].item<double>();
      EXPECT_NEAR(is, expected, 1e-5 * std::max(1.0, std::abs(expected)))
          << named[i].key() << "[" << e << "]";
    }
  }
}

TEST(Tts, EveryParameterHasAGradient) {
  TtsOptions options = small_options();
  options.reference_dropout = 0.5;  // of eight rows, some have a reference and some do without
  auto model = seeded(options);
  const ModelBatch batch = random_batch({9, 5, 2, 4, 9, 5, 2, 4}, {24, 17, 5, 9, 24, 17, 5, 9}, 9, 24,
                                        options.bins, options.n_symbols);
  const auto found = gradients(*model, batch);
  const auto named = model->named_parameters();
  for (std::size_t i = 0; i < named.size(); ++i) {
    EXPECT_GT(found[i].abs().max().item<double>(), 0) << named[i].key();
  }
}

TEST(Tts, AFrameChangesNothingBeforeIt) {
  const TtsOptions options = small_options();
  auto model = seeded(options);
  torch::NoGradGuard no_grad;
  const ModelBatch batch = random_batch({9}, {24}, 9, 24, options.bins, options.n_symbols);
  const auto before = model->outputs(batch);
  // The reference is a crop of the row, frames 8..15: behind it, only the decoder sees a frame.
  for (std::int64_t t = 16; t < 24; ++t) {
    ModelBatch changed = batch;
    changed.mel = batch.mel.clone();
    changed.mel.select(1, t).add_(3);
    const auto after = model->outputs(changed);
    const std::int64_t group = t / options.reduction + 1;  // the first one that may know
    const std::int64_t frame = group * options.reduction;
    EXPECT_TRUE(torch::equal(after.mel.narrow(1, 0, frame), before.mel.narrow(1, 0, frame))) << t;
    EXPECT_TRUE(torch::equal(after.stop.narrow(1, 0, group), before.stop.narrow(1, 0, group))) << t;
    // The last frame of a group is what the next one is told.
    if (t % options.reduction == options.reduction - 1 && frame < 24) {
      EXPECT_GT(largest_difference(after.mel.select(1, frame), before.mel.select(1, frame)), 1e-4) << t;
    }
  }
}

TEST(Tts, TheReferenceIsTheMiddleOfTheValidFrames) {
  const TtsOptions options = small_options();
  auto model = seeded(options);
  torch::NoGradGuard no_grad;
  const ModelBatch batch = random_batch({9}, {20}, 9, 24, options.bins, options.n_symbols);
  const Tensor before = model->outputs(batch).mel.select(1, 0);
  for (std::int64_t t = 0; t < 24; ++t) {
    ModelBatch changed = batch;
    changed.mel = batch.mel.clone();
    changed.mel.select(1, t).add_(3);
    const double difference = largest_difference(model->outputs(changed).mel.select(1, 0), before);
    if (t >= 6 && t < 14) {
      EXPECT_GT(difference, 1e-6) << t;
    } else {
      EXPECT_EQ(difference, 0) << t;
    }
  }
}

TEST(Tts, PaddingChangesNoSumAndNoGradient) {
  const TtsOptions options = small_options();
  auto model = seeded(options);
  const ModelBatch batch = mixed_batch(options);
  ModelBatch changed = batch;
  const Tensor tokens = torch::arange(9, torch::kInt).unsqueeze(0) < batch.token_lengths.unsqueeze(1);
  const Tensor frames = torch::arange(24, torch::kInt).unsqueeze(0) < batch.mel_lengths.unsqueeze(1);
  changed.tokens = torch::where(tokens, batch.tokens, 1 << 20).to(torch::kInt);
  changed.mel = torch::where(frames.unsqueeze(2), batch.mel, std::numeric_limits<float>::quiet_NaN());

  const auto losses = model->forward(batch), others = model->forward(changed);
  ASSERT_EQ(losses.size(), 6U);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_GT(losses[i].sum.item<float>(), 0) << losses[i].name;
    EXPECT_EQ(losses[i].sum.item<float>(), others[i].sum.item<float>()) << losses[i].name;
  }
  const auto a = gradients(*model, batch), b = gradients(*model, changed);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
}

TEST(Tts, ALargerShapeGivesTheSameSums) {
  const TtsOptions options = small_options();
  auto model = seeded(options);
  const ModelBatch batch = mixed_batch(options);
  ModelBatch larger = batch;
  larger.shape = {5, 12, 33};  // not even whole groups
  larger.tokens = at::constant_pad_nd(batch.tokens, {0, 3, 0, 1});
  larger.mel = at::constant_pad_nd(batch.mel, {0, 0, 0, 9, 0, 1});
  larger.token_lengths = at::constant_pad_nd(batch.token_lengths, {0, 1});
  larger.mel_lengths = at::constant_pad_nd(batch.mel_lengths, {0, 1});
  larger.speakers = at::constant_pad_nd(batch.speakers, {0, 1}, -1);
  const auto losses = model->forward(batch), others = model->forward(larger);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const float sum = losses[i].sum.item<float>();
    EXPECT_NEAR(others[i].sum.item<float>(), sum, 1e-6 * std::max(1.0F, sum) * 4) << losses[i].name;
  }
}

TEST(Tts, EmptyRowsGiveNothingAndFiniteGradients) {
  const TtsOptions options = small_options();
  auto model = seeded(options);
  const ModelBatch batch = random_batch({0, 0}, {0, 0}, 8, 16, options.bins, options.n_symbols);
  for (const Loss& loss : model->forward(batch)) EXPECT_EQ(loss.sum.item<float>(), 0) << loss.name;
  for (const Tensor& gradient : gradients(*model, batch)) EXPECT_EQ(gradient.abs().max().item<float>(), 0);
}

TEST(Tts, TheSumsOfABatchAreThoseOfItsHalves) {
  const TtsOptions options = small_options();
  auto model = seeded(options);
  std::vector<std::int32_t> tokens, frames;
  for (std::int32_t i = 0; i < 16; ++i) {
    tokens.push_back(i == 11 ? 0 : 3 + i % 8);
    frames.push_back(i == 11 ? 0 : 40 - 2 * i - i % 3);
  }
  const ModelBatch batch = random_batch(tokens, frames, 10, 40, options.bins, options.n_symbols);
  const auto whole = gradients(*model, batch);
  const auto first = gradients(*model, some_rows(batch, 0, 8)),
             second = gradients(*model, some_rows(batch, 8, 8));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const double size = std::max(1.0, whole[i].abs().max().item<double>());
    EXPECT_LT(largest_difference(whole[i], first[i] + second[i]), 1e-5 * size) << i;
  }
  const auto losses = model->forward(batch), a = model->forward(some_rows(batch, 0, 8)),
             b = model->forward(some_rows(batch, 8, 8));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double sum = losses[i].sum.item<double>();
    EXPECT_NEAR(a[i].sum.item<double>() + b[i].sum.item<double>(), sum, 1e-5 * std::abs(sum))
        << losses[i].name;
  }
}

TEST(Tts, StopAndGuideAreWhatTheHeaderSays) {
  const TtsOptions options = small_options();
  auto model = seeded(options);
  torch::NoGradGuard no_grad;
  const ModelBatch batch = mixed_batch(options);
  const auto out = model->outputs(batch);
  const auto losses = model->forward(batch);
  double stop = 0, guide = 0;
  for (std::int64_t row = 0; row < 3; ++row) {
    const int groups = (batch.mel_lengths[row].item<int>() + 1) / 2,
              tokens = batch.token_lengths[row].item<int>();
    for (int g = 0; g < groups; ++g) {
      const double p = 1 / (1 + std::exp(-out.stop[row][g].item<double>()));
      stop -= 2 * (g == groups - 1 ? options.weights.stop_positive * std::log(p) : std::log(1 - p));
      for (const Tensor& alignment : out.alignments) {
        double sum = 0;
        for (int n = 0; n < tokens; ++n) {
          const double weight = alignment[row][g][n].item<double>();
          const double away = (n + 0.5) / tokens - (g + 0.5) / groups;
          guide += weight * (1 - std::exp(-away * away / (2 * 0.2 * 0.2))) / groups / 2;
          sum += weight;
        }
        EXPECT_NEAR(sum, 1, 1e-6);
      }
    }
  }
  EXPECT_EQ(losses[4].name, "stop");
  EXPECT_NEAR(losses[4].sum.item<double>(), stop, 1e-5 * stop);
  EXPECT_EQ(losses[5].name, "guide");
  EXPECT_EQ(losses[5].per, Per::row);
  EXPECT_NEAR(losses[5].sum.item<double>(), guide, 1e-5 * guide);
}

TEST(Tts, StepsGiveWhatTrainingGives) {
  TtsOptions options = small_options();
  options.dropout = options.prenet_dropout = options.reference_dropout = 0.5;  // of no effect here
  for (const std::int64_t r : {1, 2, 4, 8}) {
    options.reduction = r;
    auto model = seeded(options);
    model->eval();
    torch::NoGradGuard no_grad;
    const ModelBatch batch = random_batch({9, 5}, {24, 18}, 9, 24, options.bins, options.n_symbols);
    const auto trained = model->outputs(batch);
    const Tensor mel = model->normalise(batch.mel);

    Decoding decoding = model->start(batch.tokens, batch.token_lengths, batch.mel, batch.mel_lengths, 24 / r);
    std::vector<Tensor> frames;
    for (std::int64_t i = 0; i < 24 / r; ++i) {
      const auto step = model->step(decoding, i == 0 ? Tensor() : mel.narrow(1, r * (i - 1), r));
      frames.push_back(step.mel);
      for (std::int64_t row = 0; row < 2; ++row) {
        if (r * i >= batch.mel_lengths[row].item<int>()) continue;
        EXPECT_LT(largest_difference(step.mel[row], trained.mel[row].narrow(0, r * i, r)), 1e-5)
            << r << " " << i;
        EXPECT_LT(largest_difference(step.stop[row], trained.stop[row][i].sigmoid()), 1e-5) << r << " " << i;
      }
    }
    EXPECT_THROW(model->step(decoding, mel.narrow(1, 0, r)), Error);

    const Tensor finished = model->finish(torch::cat(frames, 1), batch.mel_lengths);
    for (std::int64_t row = 0; row < 2; ++row) {
      const int length = batch.mel_lengths[row].item<int>();
      EXPECT_LT(largest_difference(finished[row].narrow(0, 0, length),
                                   model->denormalise(trained.post[row].narrow(0, 0, length))),
                1e-5 * options.mel_std);
    }
  }
}

TEST(Tts, AShapeOfOneGroupIsEnough) {
  TtsOptions options = small_options();
  options.reduction = 8;
  auto model = seeded(options);
  const ModelBatch batch = random_batch({3, 1}, {8, 1}, 8, 8, options.bins, options.n_symbols);
  for (const Tensor& gradient : gradients(*model, batch))
    EXPECT_TRUE(torch::isfinite(gradient).all().item<bool>());
}

TEST(Tts, NoReferenceIsOneOfLengthZero) {
  const TtsOptions options = small_options();
  auto model = seeded(options);
  model->eval();
  torch::NoGradGuard no_grad;
  const ModelBatch batch = random_batch({9, 5}, {24, 18}, 9, 24, options.bins, options.n_symbols);
  Decoding none = model->start(batch.tokens, batch.token_lengths, {}, {}, 1);
  Decoding empty =
      model->start(batch.tokens, batch.token_lengths, batch.mel, torch::zeros_like(batch.mel_lengths), 1);
  Decoding given = model->start(batch.tokens, batch.token_lengths, batch.mel, batch.mel_lengths, 1);
  const Tensor a = model->step(none, {}).mel, b = model->step(empty, {}).mel, c = model->step(given, {}).mel;
  EXPECT_LT(largest_difference(a, b), 1e-6);
  EXPECT_GT(largest_difference(a, c), 1e-4);
}

TEST(Tts, DropoutIsForTrainingAlone) {
  TtsOptions options = small_options();
  options.prenet_dropout = 0.5;
  auto model = seeded(options);
  torch::NoGradGuard no_grad;
  const ModelBatch batch = mixed_batch(options);
  const auto once = [&] { return total(model->forward(batch)).item<double>(); };
  EXPECT_NE(once(), once());
  model->eval();
  EXPECT_EQ(once(), once());
}

TEST(Tts, OneBatchIsLearned) {
  TtsOptions options = small_options();
  options.sizes.text_width = options.sizes.decoder_width = options.sizes.postnet_width = 32;
  options.sizes.prenet_width = options.sizes.style_width = 16;
  auto model = seeded(options);
  const ModelBatch batch = mixed_batch(options);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
  const double frames = 24 + 17 + 5;
  double first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    optimizer.zero_grad();
    const Tensor loss = total(model->forward(batch)) / frames;
    loss.backward();
    optimizer.step();
    (i == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, first / 2);
}

TEST(Tts, ASeedGivesTheSameModelAgain) {
  const auto one = seeded(small_options(), 3), same = seeded(small_options(), 3),
             other = seeded(small_options(), 4);
  const auto a = one->parameters(), b = same->parameters(), c = other->parameters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::equal(a[i], b[i]));
    EXPECT_FALSE(torch::equal(a[i], c[i]));
  }
}

// What a captured step needs: whatever the lengths are, the same operations run, and none asks for a value or
// makes a tensor whose size is one.
TEST(Tts, OperationsDependOnTheShapeAlone) {
  static std::vector<std::string> operations;
  TtsOptions options = small_options();
  options.dropout = options.prenet_dropout = options.reference_dropout = 0.5;
  auto model = seeded(options);
  const auto recorded = [&](const ModelBatch& batch) {
    for (auto& p : model->parameters()) p.mutable_grad() = torch::zeros_like(p);
    operations.clear();
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& f) -> std::unique_ptr<at::ObserverContext> {
          operations.emplace_back(f.name());
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
    total(model->forward(batch)).backward();
    at::removeCallback(handle);
    return operations;
  };
  const auto mixed = recorded(mixed_batch(options));
  const auto full =
      recorded(random_batch({9, 9, 9, 9}, {24, 24, 24, 24}, 9, 24, options.bins, options.n_symbols));
  const auto empty =
      recorded(random_batch({0, 0, 0, 0}, {0, 0, 0, 0}, 9, 24, options.bins, options.n_symbols));
  EXPECT_EQ(mixed, full);
  EXPECT_EQ(mixed, empty);
  EXPECT_THAT(mixed, testing::Contains("aten::scaled_dot_product_attention"));
  for (const char* name : {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero",
                           "aten::masked_select", "aten::index", "aten::equal", "aten::repeat_interleave"}) {
    EXPECT_THAT(mixed, testing::Not(testing::Contains(name)));
  }
}

TEST(Tts, InBfloat16TheLossesAreNear) {
  prepare_bf16();
  const TtsOptions options = small_options();
  auto model = seeded(options);
  const ModelBatch batch = mixed_batch(options);
  const auto exact = model->forward(batch);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const auto rough = model->forward(batch);
  const auto found = gradients(*model, batch);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double sum = exact[i].sum.item<double>();
    EXPECT_EQ(rough[i].sum.scalar_type(), torch::kFloat) << exact[i].name;
    EXPECT_NEAR(rough[i].sum.item<double>(), sum, 0.02 * sum) << exact[i].name;
  }
  for (const Tensor& gradient : found) EXPECT_TRUE(torch::isfinite(gradient).all().item<bool>());
}

TEST(Tts, SizesAreWhatTheirNamesSay) {
  std::vector<double> millions;
  for (const NamedSizes& each : model_sizes()) {
    const auto model = make_tts({.n_symbols = 100, .sizes = each.sizes}, torch::kMeta);
    double count = 0;
    for (const auto& p : model->parameters()) count += static_cast<double>(p.numel()) * 1e-6;
    millions.push_back(count);
  }
  ASSERT_EQ(millions.size(), 5U);
  EXPECT_THAT(millions[0], testing::AllOf(testing::Gt(2), testing::Lt(6)));
  // A decoder layer has (4 + 2 + 8) width^2 + 2 width x text weights, a layer of the text 12 text^2.
  const double layers[] = {0, 8 * (14 * .768 * .768 + 2 * .768 * .256) + 4 * 12 * .256 * .256,
                           12 * (14 * 1.024 * 1.024 + 2 * 1.024 * .384) + 6 * 12 * .384 * .384,
                           16 * (14 * 1.536 * 1.536 + 2 * 1.536 * .512) + 8 * 12 * .512 * .512,
                           20 * (14 * 2.048 * 2.048 + 2 * 2.048 * .768) + 10 * 12 * .768 * .768};
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_GT(millions[i], layers[i]);
    EXPECT_LT(millions[i], layers[i] + 11);  // the rest: postnet, reference encoder, heads, biases
  }
  EXPECT_THROW(
      {
        try {
          sizes_named("huge");
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), HasSubstr("nano, tiny, small, normal, big"));
          throw;
        }
      },
      Error);
}

TEST(Tts, OptionsThatMakeNoModelAreNamed) {
  const auto message = [](auto change) -> std::string {
    TtsOptions options = small_options();
    change(options);
    try {
      make_tts(options, torch::kMeta);
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_EQ(message([](TtsOptions&) {}), "none");
  EXPECT_EQ(message([](TtsOptions& o) { o.reduction = 3; }),
            "model: reduction must be 1, 2, 4 or 8, but is 3");
  EXPECT_THAT(message([](TtsOptions& o) { o.n_symbols = 0; }), HasSubstr("n_symbols"));
  EXPECT_THAT(message([](TtsOptions& o) { o.sizes.decoder_width = 18; }), HasSubstr("decoder_width"));
  EXPECT_THAT(message([](TtsOptions& o) { o.guided_layers = 4; }), HasSubstr("guided_layers"));
  EXPECT_THAT(message([](TtsOptions& o) { o.prenet_dropout = 1; }), HasSubstr("prenet_dropout"));
}

TEST(Tts, ADescriptionMakesTheModelAgain) {
  TtsOptions options = small_options();
  options.reduction = 8;
  options.mel_std = 1.7;
  const auto model = make_tts(options);
  const auto again = make_tts(described_tts(model->description()));
  EXPECT_EQ(again->description(), model->description());
  const auto a = model->named_parameters(), b = again->named_parameters();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].key(), b[i].key());
    EXPECT_EQ(a[i].value().sizes(), b[i].value().sizes());
  }
  EXPECT_THROW(described_tts(R"({"kind":"ctc"})"), Error);
  EXPECT_THROW(described_tts(R"({"kind":"tts"})"), Error);
  EXPECT_THROW(described_tts("{"), Error);
}

TEST(Tts, NormalisationIsInvertibleAndStored) {
  TtsOptions options = small_options();
  options.mel_mean = -6;
  options.mel_std = 2;
  const auto model = make_tts(options);
  const Tensor mel = torch::linspace(-11.5, 2, 100);
  EXPECT_LT(largest_difference(model->denormalise(model->normalise(mel)), mel), 1e-5);
  EXPECT_EQ(model->named_buffers()["mel_mean"].item<float>(), -6);
  EXPECT_EQ(model->named_buffers()["mel_std"].item<float>(), 2);
  EXPECT_NE(model->description(), make_tts(small_options())->description());
  EXPECT_EQ(model->description(), make_tts(options)->description());
}

// What a CUDA graph needs, as far as a CPU can tell.
TEST(Tts, ABatchsOperationsDependOnItsShapeAloneAndReadNothingBack) {
  const std::set<std::string> reading = {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero",
                                         "aten::nonzero", "aten::equal"};
  const auto reads = [&](const std::vector<std::string>& names) {
    return std::ranges::any_of(names, [&](const std::string& name) { return reading.contains(name); });
  };
  EXPECT_TRUE(reads(operations([] { torch::ones({}).item<float>(); }))) << "the test sees nothing";

  TtsOptions options = small_options();
  options.dropout = options.prenet_dropout = options.reference_dropout = 0.1;
  const auto model = seeded(options);
  const auto of = [&](const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& frames) {
    const ModelBatch batch = random_batch(tokens, frames, 9, 24, options.bins, options.n_symbols);
    return operations([&] { gradients(*model, batch); });
  };
  const std::vector<std::string> mixed = of({9, 5, 2, 0}, {24, 17, 5, 0});
  EXPECT_FALSE(reads(mixed));
  EXPECT_EQ(mixed, of({0, 0, 0, 0}, {0, 0, 0, 0}));
  EXPECT_EQ(mixed, of({9, 9, 9, 9}, {24, 24, 24, 24}));
}

}  // namespace
}  // namespace penstock::train
