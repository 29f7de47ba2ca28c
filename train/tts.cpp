#include "train/tts.h"

#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/core/error.h"

namespace penstock::train {
namespace {

constexpr std::int64_t kernel = 5;  // of the convolutions: 58 ms at hop 256 and 22,050 Hz
constexpr double tanh_gain = 5.0 / 3.0, relu_gain = 1.4142135623730951;  // keep a signal's size through them

// Text width and depth, decoder width and depth, head, prenet, style, postnet width and depth.
constexpr auto table = std::to_array<NamedSizes>({
    {"nano", {128, 3, 192, 4, 64, 64, 32, 128, 5}},
    {"tiny", {256, 4, 768, 8, 64, 128, 64, 256, 5}},
    {"small", {384, 6, 1024, 12, 64, 256, 128, 512, 5}},
    {"normal", {512, 8, 1536, 16, 64, 256, 192, 512, 5}},
    {"big", {768, 10, 2048, 20, 64, 256, 256, 512, 5}},
});

void require(bool good, std::string_view what, auto found) {
  if (!good) throw Error(fmt::format("model: {}, but is {}", what, found));
}

template <typename T>
using Values = std::initializer_list<std::pair<const char*, T>>;

void check(const TtsOptions& o) {
  const TtsSizes& s = o.sizes;
  require(o.n_symbols > 0, "n_symbols must be positive", o.n_symbols);
  require(o.bins > 0, "bins must be positive", o.bins);
  require(o.reduction > 0 && o.reduction <= 8 && 8 % o.reduction == 0, "reduction must be 1, 2, 4 or 8",
          o.reduction);
  require(s.head_width > 0, "head_width must be positive", s.head_width);
  for (const auto& [name, width] :
       Values<std::int64_t>{{"text_width", s.text_width}, {"decoder_width", s.decoder_width}}) {
    require(width > 0 && width % s.head_width == 0 && width % 2 == 0,
            fmt::format("{} must be even and a multiple of head_width, {}", name, s.head_width), width);
  }
  for (const auto& [name, size] : Values<std::int64_t>{{"text_depth", s.text_depth},
                                                       {"decoder_depth", s.decoder_depth},
                                                       {"prenet_width", s.prenet_width},
                                                       {"style_width", s.style_width},
                                                       {"postnet_width", s.postnet_width},
                                                       {"postnet_depth", s.postnet_depth},
                                                       {"reference_frames", o.reference_frames}}) {
    require(size > 0, fmt::format("{} must be positive", name), size);
  }
  require(o.guided_layers >= 0 && o.guided_layers <= s.decoder_depth,
          fmt::format("guided_layers must be between 0 and decoder_depth, {}", s.decoder_depth),
          o.guided_layers);
  require(o.guided_sigma > 0, "guided_sigma must be positive", o.guided_sigma);
  require(o.mel_std > 0, "mel_std must be positive", o.mel_std);
  for (const auto& [name, rate] : Values<double>{{"dropout", o.dropout},
                                                 {"prenet_dropout", o.prenet_dropout},
                                                 {"reference_dropout", o.reference_dropout}}) {
    require(rate >= 0 && rate < 1, fmt::format("{} must be at least 0 and below 1", name), rate);
  }
}

/// Groups of r frames, the last one full or not.
torch::Tensor groups_of(const torch::Tensor& lengths, std::int64_t r) {
  return (lengths + (r - 1)).div(r, "floor").to(torch::kInt);
}

/// Padded to whole groups: the feed's shapes are multiples of 8 already, unless the user names others.
torch::Tensor whole_groups(const torch::Tensor& mel, std::int64_t r) {
  const std::int64_t missing = (r - mel.size(1) % r) % r;
  return missing == 0 ? mel : at::constant_pad_nd(mel, {0, 0, 0, missing});
}

/// Which keys attention may see: a row of length 0 keeps one, as a softmax over none is not a number. What
/// comes of it is masked.
torch::Tensor key_mask(const torch::Tensor& lengths, std::int64_t size) {
  return mask_of(lengths.clamp_min(1), size).unsqueeze(1).unsqueeze(1);
}

}  // namespace

std::span<const NamedSizes> model_sizes() { return table; }

const TtsSizes& sizes_named(std::string_view name) {
  std::string names;
  for (const NamedSizes& each : table) {
    if (each.name == name) return each.sizes;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
  }
  throw Error(fmt::format("model size must be one of {}, but is {}", names, name));
}

TtsModel::TtsModel(const TtsOptions& options, torch::Device device) : options_(options) {
  check(options);
  const TtsSizes& s = options.sizes;
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out, double gain = 1) {
    return register_module(name, std::make_shared<Linear>(in, out, device, gain));
  };
  const auto norm = [&](const char* name, std::int64_t width) {
    return register_module(name, std::make_shared<LayerNorm>(width, device));
  };
  const auto layers = [&](const char* name, std::int64_t depth, std::int64_t width, std::int64_t memory) {
    Layers made;
    // The residual is a sum over all layers: each adds a part that keeps its size whatever the depth.
    const double gain = 1 / std::sqrt(static_cast<double>((memory > 0 ? 3 : 2) * depth));
    for (std::int64_t i = 0; i < depth; ++i) {
      made.push_back(register_module(fmt::format("{}{}", name, i),
                                     std::make_shared<TransformerLayer>(width, memory, width / s.head_width,
                                                                        options.dropout, gain, device)));
    }
    return made;
  };

  mel_mean_ = register_buffer(
      "mel_mean", torch::scalar_tensor(options.mel_mean, torch::dtype(torch::kFloat).device(device)));
  mel_std_ = register_buffer(
      "mel_std", torch::scalar_tensor(options.mel_std, torch::dtype(torch::kFloat).device(device)));

  torch::Tensor symbols = torch::empty({options.n_symbols, s.text_width}, device);
  symbols.normal_();
  symbols_ = register_parameter("symbols", symbols);
  text_scale_ = register_parameter("text_scale", torch::ones({}, device));
  text_layers_ = layers("text", s.text_depth, s.text_width, 0);
  text_norm_ = norm("text_norm", s.text_width);

  for (std::int64_t i = 0; i < 3; ++i) {
    reference_convs_.push_back(register_module(
        fmt::format("reference{}", i), std::make_shared<Conv1d>(i == 0 ? options.bins : s.postnet_width,
                                                                s.postnet_width, kernel, device, relu_gain)));
  }
  reference_norm_ = norm("reference_norm", s.postnet_width);
  reference_out_ = linear("reference_out", s.postnet_width, s.style_width);
  no_style_ = register_parameter("no_style", torch::zeros(s.style_width, device));
  style_in_ = linear("style_in", s.style_width, s.decoder_width);

  prenet_first_ = linear("prenet_first", options.bins, s.prenet_width, relu_gain);
  prenet_second_ = linear("prenet_second", s.prenet_width, s.prenet_width, relu_gain);
  prenet_out_ = linear("prenet_out", s.prenet_width, s.decoder_width);
  decoder_scale_ = register_parameter("decoder_scale", torch::ones({}, device));
  decoder_layers_ = layers("decoder", s.decoder_depth, s.decoder_width, s.text_width);
  decoder_norm_ = norm("decoder_norm", s.decoder_width);
  mel_head_ = linear("mel_head", s.decoder_width, options.reduction * options.bins);
  stop_head_ = linear("stop_head", s.decoder_width, 1);

  for (std::int64_t i = 0; i < s.postnet_depth; ++i) {
    const bool last = i + 1 == s.postnet_depth;
    postnet_convs_.push_back(register_module(
        fmt::format("postnet{}", i), std::make_shared<Conv1d>(i == 0 ? options.bins : s.postnet_width,
                                                              last ? options.bins : s.postnet_width, kernel,
                                                              device, last ? 1 : tanh_gain)));
  }
}

torch::Tensor TtsModel::encode(const torch::Tensor& tokens, const torch::Tensor& lengths,
                               const torch::Tensor& mask) const {
  const torch::Tensor known = tokens.masked_fill(~mask_of(lengths, tokens.size(1)), 0);
  torch::Tensor x = at::embedding(symbols_, known);
  x = x + text_scale_ * positions(0, x.size(1), x.size(2), symbols_.options());
  for (const auto& layer : text_layers_) x = layer->forward(x, mask);
  return text_norm_->forward(x);
}

torch::Tensor TtsModel::style_of(const torch::Tensor& mel, const torch::Tensor& lengths) const {
  // A crop of fixed length from the middle of the valid frames. Where those are fewer, the rest is masked, so
  // its indices have only to lie inside.
  const std::int64_t frames = options_.reference_frames;
  const torch::Tensor start = (lengths - frames).clamp_min(0).div(2, "floor").to(torch::kLong);
  const torch::Tensor index =
      (start.unsqueeze(1) + torch::arange(frames, start.options())).clamp_max(mel.size(1) - 1);
  const torch::Tensor valid = mask_of(lengths, frames).unsqueeze(1);
  torch::Tensor x = mel.gather(1, index.unsqueeze(2).expand({-1, -1, mel.size(2)})).transpose(1, 2);
  for (const auto& conv : reference_convs_) x = at::relu(conv->forward(x.masked_fill(~valid, 0)));

  const torch::Tensor count = lengths.clamp(1, frames).unsqueeze(1);
  const torch::Tensor mean = x.masked_fill(~valid, 0).sum(2) / count;
  const torch::Tensor style = at::tanh(reference_out_->forward(reference_norm_->forward(mean)));
  torch::Tensor there = (lengths > 0).unsqueeze(1);
  if (is_training() && options_.reference_dropout > 0) {
    there = there & (torch::rand({lengths.size(0), 1}, mel.options()) >= options_.reference_dropout);
  }
  return style_in_->forward(torch::where(there, style, no_style_)).unsqueeze(1);
}

torch::Tensor TtsModel::decoder_input(const torch::Tensor& previous, const torch::Tensor& style,
                                      std::int64_t first) const {
  const auto drop = [&](const torch::Tensor& x) {
    return at::dropout(x, options_.prenet_dropout, is_training());
  };
  torch::Tensor x = drop(at::relu(prenet_first_->forward(previous)));
  x = prenet_out_->forward(drop(at::relu(prenet_second_->forward(x)))) + style;
  return x + decoder_scale_ * positions(first, x.size(1), x.size(2), symbols_.options());
}

torch::Tensor TtsModel::postnet(const torch::Tensor& mel, const torch::Tensor& valid) const {
  const torch::Tensor padding = ~valid.unsqueeze(1);
  torch::Tensor x = mel.transpose(1, 2);
  for (std::size_t i = 0; i < postnet_convs_.size(); ++i) {
    x = postnet_convs_[i]->forward(x.masked_fill(padding, 0));
    if (i + 1 < postnet_convs_.size()) x = at::dropout(at::tanh(x), options_.dropout, is_training());
  }
  return mel + x.transpose(1, 2);
}

TtsModel::Outputs TtsModel::outputs(const ModelBatch& batch) {
  const std::int64_t r = options_.reduction;
  const torch::Tensor padded = whole_groups(batch.mel, r);
  const std::int64_t rows = padded.size(0), frames = padded.size(1), bins = padded.size(2);
  const torch::Tensor valid = mask_of(batch.mel_lengths, frames);
  const torch::Tensor mel = normalise(padded).masked_fill(~valid.unsqueeze(2), 0);
  const torch::Tensor mask = key_mask(batch.token_lengths, batch.tokens.size(1));
  const torch::Tensor text = encode(batch.tokens, batch.token_lengths, mask);
  const torch::Tensor style = style_of(mel, batch.mel_lengths);

  // A group is told the last frame of the one before; the first one is told zeros.
  const torch::Tensor last = mel.view({rows, frames / r, r, bins}).select(2, r - 1);
  torch::Tensor x =
      decoder_input(at::constant_pad_nd(last.narrow(1, 0, frames / r - 1), {0, 0, 1, 0}), style, 0);
  Outputs out;
  for (std::size_t i = 0; i < decoder_layers_.size(); ++i) {
    const bool guided = i + static_cast<std::size_t>(options_.guided_layers) >= decoder_layers_.size();
    torch::Tensor alignment;
    x = decoder_layers_[i]->decode(x, decoder_layers_[i]->memorise(text), mask, nullptr,
                                   guided ? &alignment : nullptr);
    if (guided) out.alignments.push_back(alignment);
  }
  x = decoder_norm_->forward(x);
  // Losses are summed in the type of the mel, also where autocast computes in a shorter one.
  out.mel = mel_head_->forward(x).view({rows, frames, bins}).to(mel.scalar_type());
  out.stop = stop_head_->forward(x).squeeze(2).to(mel.scalar_type());
  out.post = postnet(out.mel, valid).to(mel.scalar_type());
  return out;
}

std::vector<Loss> TtsModel::forward(const ModelBatch& batch) {
  const Outputs out = outputs(batch);
  const std::int64_t r = options_.reduction;
  const torch::Tensor target = normalise(whole_groups(batch.mel, r));
  const torch::Tensor valid = mask_of(batch.mel_lengths, target.size(1)).unsqueeze(2);
  const torch::Tensor before = (out.mel - target).masked_fill(~valid, 0);
  const torch::Tensor behind = (out.post - target).masked_fill(~valid, 0);
  const double per_bin = 1 / static_cast<double>(options_.bins);

  const torch::Tensor groups = groups_of(batch.mel_lengths, r).unsqueeze(1);
  const torch::Tensor group = torch::arange(target.size(1) / r, groups.options()).unsqueeze(0);
  const TtsWeights& weights = options_.weights;
  const torch::Tensor stop = torch::where(
      group == groups - 1, at::softplus(-out.stop) * weights.stop_positive, at::softplus(out.stop));
  std::vector<Loss> losses = {
      {"mel_l1", before.abs().sum() * per_bin, Per::frame, weights.mel_l1},
      {"mel_l2", before.square().sum() * per_bin, Per::frame, weights.mel_l2},
      {"post_l1", behind.abs().sum() * per_bin, Per::frame, weights.post_l1},
      {"post_l2", behind.square().sum() * per_bin, Per::frame, weights.post_l2},
      {"stop", stop.masked_fill(group >= groups, 0).sum() * static_cast<double>(r), Per::frame, weights.stop},
  };
  if (out.alignments.empty()) return losses;

  // How far along the text and the speech are, in the middle of a token and of a group.
  const auto type = target.scalar_type();
  const torch::Tensor tokens = batch.token_lengths.clamp_min(1).to(type).view({-1, 1, 1});
  const torch::Tensor text = (torch::arange(batch.tokens.size(1), target.options()) + 0.5) / tokens;
  const torch::Tensor many = groups.clamp_min(1).to(type);
  const torch::Tensor speech = ((group.to(type) + 0.5) / many).unsqueeze(2);
  const double sharpness = 0.5 / (options_.guided_sigma * options_.guided_sigma);
  const torch::Tensor off = (1 - at::exp((text - speech).square() * -sharpness)) / many.unsqueeze(2);
  torch::Tensor weight = out.alignments.front();
  for (std::size_t i = 1; i < out.alignments.size(); ++i) weight = weight + out.alignments[i];
  losses.push_back({"guide",
                    (weight * off).masked_fill((group >= groups).unsqueeze(2), 0).sum() /
                        static_cast<double>(out.alignments.size()),
                    Per::row, weights.guide});
  return losses;
}

Decoding TtsModel::start(const torch::Tensor& tokens, const torch::Tensor& token_lengths,
                         const torch::Tensor& reference, const torch::Tensor& reference_lengths,
                         std::int64_t max_steps) {
  Decoding decoding;
  decoding.mask = key_mask(token_lengths, tokens.size(1));
  const torch::Tensor text = encode(tokens, token_lengths, decoding.mask);
  if (reference.defined()) {
    const torch::Tensor valid = mask_of(reference_lengths, reference.size(1)).unsqueeze(2);
    decoding.style = style_of(normalise(reference).masked_fill(~valid, 0), reference_lengths);
  } else {
    decoding.style = style_in_->forward(no_style_.expand({tokens.size(0), -1})).unsqueeze(1);
  }
  for (const auto& layer : decoder_layers_) {
    decoding.memory.push_back(layer->memorise(text));
    const torch::Tensor& like = decoding.memory.back().key;
    const auto room = [&] {
      return torch::empty({like.size(0), like.size(1), max_steps, like.size(3)}, like.options());
    };
    decoding.caches.push_back({{room(), room()}, 0});
  }
  return decoding;
}

TtsModel::Spoken TtsModel::step(Decoding& decoding, const torch::Tensor& previous) {
  const std::int64_t rows = decoding.mask.size(0), r = options_.reduction;
  const torch::Tensor told = decoding.steps == 0 ? torch::zeros({rows, 1, options_.bins}, symbols_.options())
                                                 : previous.narrow(1, r - 1, 1);
  torch::Tensor x = decoder_input(told, decoding.style, decoding.steps);
  for (std::size_t i = 0; i < decoder_layers_.size(); ++i) {
    x = decoder_layers_[i]->decode(x, decoding.memory[i], decoding.mask, &decoding.caches[i], nullptr);
  }
  ++decoding.steps;
  x = decoder_norm_->forward(x);
  return {mel_head_->forward(x).view({rows, r, options_.bins}),
          at::sigmoid(stop_head_->forward(x)).flatten()};
}

torch::Tensor TtsModel::finish(const torch::Tensor& mel, const torch::Tensor& lengths) {
  return denormalise(postnet(mel, mask_of(lengths, mel.size(1))));
}

std::string TtsModel::description() const {
  const TtsSizes& s = options_.sizes;
  const nlohmann::ordered_json json = {{"kind", "tts"},
                                       {"n_symbols", options_.n_symbols},
                                       {"bins", options_.bins},
                                       {"reduction", options_.reduction},
                                       {"reference_frames", options_.reference_frames},
                                       {"mel_mean", options_.mel_mean},
                                       {"mel_std", options_.mel_std},
                                       {"text_width", s.text_width},
                                       {"text_depth", s.text_depth},
                                       {"decoder_width", s.decoder_width},
                                       {"decoder_depth", s.decoder_depth},
                                       {"head_width", s.head_width},
                                       {"prenet_width", s.prenet_width},
                                       {"style_width", s.style_width},
                                       {"postnet_width", s.postnet_width},
                                       {"postnet_depth", s.postnet_depth}};
  return json.dump();
}

TtsOptions described_tts(std::string_view description) {
  try {
    const auto json = nlohmann::json::parse(description);
    if (json.at("kind") != "tts")
      throw Error(fmt::format("model: kind must be tts, but is {}", json["kind"].dump()));
    const auto number = [&](const char* name) { return json.at(name).get<std::int64_t>(); };
    return {.n_symbols = number("n_symbols"),
            .bins = number("bins"),
            .sizes = {.text_width = number("text_width"),
                      .text_depth = number("text_depth"),
                      .decoder_width = number("decoder_width"),
                      .decoder_depth = number("decoder_depth"),
                      .head_width = number("head_width"),
                      .prenet_width = number("prenet_width"),
                      .style_width = number("style_width"),
                      .postnet_width = number("postnet_width"),
                      .postnet_depth = number("postnet_depth")},
            .reduction = number("reduction"),
            .reference_frames = number("reference_frames"),
            .mel_mean = json.at("mel_mean").get<double>(),
            .mel_std = json.at("mel_std").get<double>()};
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("model: its description cannot be read: {}", e.what()));
  }
}

std::shared_ptr<TtsModel> make_tts(const TtsOptions& options, torch::Device device) {
  return std::make_shared<TtsModel>(options, device);
}

}  // namespace penstock::train
