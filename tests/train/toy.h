// A model of three losses that trains in no time, and batches for it.
#pragma once
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "penstock/device/device.h"
#include "train/model.h"

namespace penstock::train::toy {

struct ToyOptions {
  double dropout = 0;
  bool half_loss = false;      ///< breaks the contract
  bool wild_gradient = false;  ///< a finite loss whose gradient is not a number
};

class Toy final : public Model {
 public:
  static constexpr std::int32_t bins = 8, symbols = 20, width = 16;

  explicit Toy(const ToyOptions& options = {}) : options_(options) {
    text_ = register_module("text", torch::nn::Embedding(symbols, width));
    in_ = register_module("in", torch::nn::Linear(bins, width));
    out_ = register_module("out", torch::nn::Linear(width, bins));
    duration_ = register_module("duration", torch::nn::Linear(width, 1));
    seen_ = register_buffer("seen", torch::zeros({}));
  }

  std::vector<Loss> forward(const ModelBatch& b) override {
    forwards.push_back(b.shape);
    if (is_training()) seen_.add_(1);
    const auto mask = [](const torch::Tensor& lengths, std::int64_t n) {
      return torch::arange(n).unsqueeze(0).lt(lengths.unsqueeze(1)).to(torch::kFloat32).unsqueeze(2);
    };
    const auto tokens = mask(b.token_lengths, b.shape.tokens), frames = mask(b.mel_lengths, b.shape.frames);
    const auto text = text_->forward(b.tokens) * tokens;
    const auto mean = text.sum(1) / b.token_lengths.clamp_min(1).unsqueeze(1);
    auto hidden = torch::tanh(in_->forward(b.mel) + mean.unsqueeze(1));
    hidden = torch::dropout(hidden, options_.dropout, is_training());
    const auto mel = ((out_->forward(hidden).to(torch::kFloat32) - b.mel).abs() * frames).sum();
    const auto duration = ((duration_->forward(text).to(torch::kFloat32) - 1).square() * tokens).sum();
    auto style = mean.square().sum();
    if (options_.wild_gradient) style = style + (out_->bias * 0).sqrt().sum() * 0;
    if (options_.half_loss) style = style.to(torch::kBFloat16);
    return {{"mel", mel, Per::frame, 1},
            {"duration", duration, Per::token, 0.5},
            {"style", style, Per::row, 0.1}};
  }
  [[nodiscard]] std::string description() const override { return R"({"kind":"toy"})"; }

  std::vector<Shape> forwards;  ///< of all that were asked for

 private:
  ToyOptions options_;
  torch::nn::Embedding text_ = nullptr;
  torch::nn::Linear in_ = nullptr, out_ = nullptr, duration_ = nullptr;
  torch::Tensor seen_;
};

inline std::shared_ptr<Toy> make_toy(const ToyOptions& options = {}) {
  torch::manual_seed(1);
  return std::make_shared<Toy>(options);
}

/// Owns its arrays.
struct Held final : DeviceBatch::Held {
  std::vector<std::int32_t> tokens, token_lengths, mel_lengths, speakers;
  std::vector<std::int64_t> utterances;
  std::vector<float> mel;
  void use_on(StreamHandle /*stream*/) override {}
  void wait() override {}

  /// To be called when the arrays have changed.
  void show(const Shape& shape) {
    host.shape = shape, host.bins = Toy::bins;
    host.tokens = tokens, host.token_lengths = token_lengths, host.mel = mel, host.mel_lengths = mel_lengths;
    host.speakers = speakers, host.utterances = utterances;
    device = host;
  }
};

/// The first `valid` rows have lengths, all else is rubbish that must not matter.
inline std::shared_ptr<Held> random_rows(const Shape& shape, int valid, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(n)); };
  auto held = std::make_shared<Held>();
  for (int row = 0; row < shape.rows; ++row) {
    const bool good = row < valid;
    held->token_lengths.push_back(good ? 1 + below(shape.tokens) : 0);
    held->mel_lengths.push_back(good ? 1 + below(shape.frames) : 0);
    held->speakers.push_back(good ? 0 : -1);
    held->utterances.push_back(good ? row : -1);
    for (int i = 0; i < shape.tokens; ++i) held->tokens.push_back(below(Toy::symbols));
    for (int i = 0; i < shape.frames * Toy::bins; ++i)
      held->mel.push_back(static_cast<float>(below(2000)) * 1e-3f - 1);
  }
  held->show(shape);
  return held;
}

/// Rows `begin` to `end` of a batch.
inline std::shared_ptr<Held> rows_of(const Held& all, std::int32_t begin, std::int32_t end) {
  auto held = std::make_shared<Held>();
  const auto part = [&](const auto& from, auto& to, std::int32_t width) {
    to.assign(from.begin() + begin * width, from.begin() + end * width);
  };
  Shape shape = all.host.shape;
  part(all.tokens, held->tokens, shape.tokens);
  part(all.mel, held->mel, shape.frames * Toy::bins);
  part(all.token_lengths, held->token_lengths, 1);
  part(all.mel_lengths, held->mel_lengths, 1);
  part(all.speakers, held->speakers, 1);
  part(all.utterances, held->utterances, 1);
  shape.rows = end - begin;
  held->show(shape);
  return held;
}

inline Counts counts(const Held& batch) {
  Counts c{};
  for (std::size_t i = 0; i < batch.mel_lengths.size(); ++i) {
    c[0] += batch.mel_lengths[i], c[1] += batch.token_lengths[i];
    c[2] += batch.mel_lengths[i] > 0 ? 1 : 0;
  }
  return c;
}

}  // namespace penstock::train::toy
