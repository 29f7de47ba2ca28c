// The text-to-speech model: text and a piece of reference speech become a mel spectrogram, r frames a step.
//
//   tokens ──► text encoder ─────────────────────┐ cross-attention
//   reference mel ──► reference encoder ── style ┤
//   frames so far ──► prenet ──────────────────► decoder ──► mel head, stop head ──► postnet
//
// Trained with the true frames as "frames so far" (forward); spoken with its own (start, step, finish).
// One thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/layers.h"
#include "train/model.h"

namespace penstock::train {

/// Widths and depths (numbers of layers). Widths of text and decoder are multiples of head_width.
struct TtsSizes {
  std::int64_t text_width = 0, text_depth = 0;
  std::int64_t decoder_width = 0, decoder_depth = 0;
  std::int64_t head_width = 64;    ///< of one attention head
  std::int64_t prenet_width = 0;   ///< narrow: what it lets through must not be enough without the text
  std::int64_t style_width = 0;    ///< likewise, of what the reference encoder says
  std::int64_t postnet_width = 0;  ///< of the reference encoder's convolutions too
  std::int64_t postnet_depth = 5;
};

struct NamedSizes {
  std::string_view name;
  TtsSizes sizes;
};
/// nano (for a CPU), tiny, small, normal, big.
std::span<const NamedSizes> model_sizes();
/// Throws Error with the names that there are.
const TtsSizes& sizes_named(std::string_view name);

/// What the losses weigh against each other; see TtsModel::forward.
struct TtsWeights {
  double mel_l1 = 1, mel_l2 = 1;    ///< before the postnet
  double post_l1 = 1, post_l2 = 1;  ///< behind it
  double stop = 0.5;
  double stop_positive = 8;  ///< of a last group against one before it: there is one of them in a text
  double guide = 1;
};

struct TtsOptions {
  std::int64_t n_symbols = 0;  ///< tokens are 0..n_symbols - 1
  std::int64_t bins = 80;
  TtsSizes sizes = sizes_named("nano");
  std::int64_t reduction = 4;  ///< r, frames that a decoder step gives: 1, 2, 4 or 8
  std::int64_t reference_frames =
      128;  ///< of the row itself (1.5 s at hop 256 and 22,050 Hz), from its middle

  // The network sees (mel - mel_mean) / mel_std. The log-mel of hifigan and myxtts reaches from its floor,
  // ln 1e-5 = -11.5, to 2 for the loudest speech; these two map it to -3 .. 3, and speech has a deviation of
  // about 1 there. Features of another range want others: the middle of the range, and a sixth of its width.
  double mel_mean = -4.75, mel_std = 2.25;

  double dropout = 0.1;            ///< behind each attention and feed-forward, and in the postnet
  double prenet_dropout = 0.5;     ///< keeps the decoder from copying the frame before; off when speaking
  double reference_dropout = 0.1;  ///< rows that learn to do without a reference
  std::int64_t guided_layers = 2;  ///< the last ones of the decoder, one head each
  double guided_sigma = 0.2;       ///< how far from the diagonal is free, as a part of the text
  TtsWeights weights;
};

/// The state of texts that are being spoken. Copies share its memory: go on with one of them only.
struct Decoding {
  torch::Tensor mask;            ///< [rows, 1, 1, tokens] bool
  torch::Tensor style;           ///< [rows, 1, decoder width]
  std::vector<KeyValue> memory;  ///< of the text, by layer
  std::vector<Cache> caches;     ///< of the frames so far, by layer
  std::int64_t steps = 0;        ///< done
};

class TtsModel : public Model {
 public:
  /// On the meta device nothing but shapes exists.
  TtsModel(const TtsOptions& options, torch::Device device);

  /// Losses, by name; predictions are those of r frames a step (a group) from the true frames before it:
  /// - mel_l1, mel_l2, post_l1, post_l2: distances of the normalised mel before and behind the postnet, the
  /// mean
  ///   over bins, per frame.
  /// - stop: cross-entropy of "this group is the last", r times for each group, so that it counts per frame
  ///   like the others (a text's last group counts whole, be it full or not).
  /// - guide: the weights of a head that lie off the diagonal, the mean over a row's groups and the guided
  ///   layers, per row.
  std::vector<Loss> forward(const ModelBatch& batch) override;
  [[nodiscard]] std::string description() const override;

  /// What forward() compares, for frames rounded up to a multiple of r. Normalised; padding holds anything
  /// finite.
  struct Outputs {
    torch::Tensor mel, post;                ///< [rows, frames, bins] before and behind the postnet
    torch::Tensor stop;                     ///< [rows, frames / r] logits
    std::vector<torch::Tensor> alignments;  ///< [rows, frames / r, tokens] by guided layer
  };
  Outputs outputs(const ModelBatch& batch);

  /// Begins to speak. `reference` is [rows, frames, bins], as the feed delivers mels; without it, or in rows
  /// of length 0, the voice is the one that rows without a reference have learned. Room for `max_steps`
  /// steps. Wants eval() and no gradients.
  Decoding start(const torch::Tensor& tokens, const torch::Tensor& token_lengths,
                 const torch::Tensor& reference, const torch::Tensor& reference_lengths,
                 std::int64_t max_steps);
  struct Spoken {
    torch::Tensor mel;   ///< [rows, r, bins] normalised
    torch::Tensor stop;  ///< [rows] the probability that these are the last frames
  };
  /// The next r frames. `previous` are those of the step before, and are not read at the first step.
  Spoken step(Decoding& decoding, const torch::Tensor& previous);
  /// The mel ([rows, frames, bins], as the feed delivers it) from the frames of all steps, one behind the
  /// other. `lengths` ([rows] int32): valid frames of each row.
  torch::Tensor finish(const torch::Tensor& mel, const torch::Tensor& lengths);

  [[nodiscard]] torch::Tensor normalise(const torch::Tensor& mel) const {
    return (mel - mel_mean_) / mel_std_;
  }
  [[nodiscard]] torch::Tensor denormalise(const torch::Tensor& mel) const {
    return mel * mel_std_ + mel_mean_;
  }
  [[nodiscard]] const TtsOptions& options() const { return options_; }

 private:
  using Layers = std::vector<std::shared_ptr<TransformerLayer>>;
  torch::Tensor encode(const torch::Tensor& tokens, const torch::Tensor& lengths,
                       const torch::Tensor& mask) const;
  torch::Tensor style_of(const torch::Tensor& mel, const torch::Tensor& lengths) const;
  torch::Tensor decoder_input(const torch::Tensor& previous, const torch::Tensor& style,
                              std::int64_t first) const;
  torch::Tensor postnet(const torch::Tensor& mel, const torch::Tensor& valid) const;

  TtsOptions options_;
  torch::Tensor mel_mean_, mel_std_;
  torch::Tensor symbols_, text_scale_, decoder_scale_, no_style_;
  Layers text_layers_, decoder_layers_;
  std::vector<std::shared_ptr<Conv1d>> reference_convs_, postnet_convs_;
  std::shared_ptr<LayerNorm> text_norm_, decoder_norm_, reference_norm_;
  std::shared_ptr<Linear> reference_out_, style_in_, prenet_first_, prenet_second_, prenet_out_, mel_head_,
      stop_head_;
};

/// Throws Error for options that make no model, naming them.
std::shared_ptr<TtsModel> make_tts(const TtsOptions& options, torch::Device device = torch::kCPU);
/// What a description() says, with defaults for the rest (dropout, weights of the losses): the model of a
/// checkpoint. Throws Error for a text that is none of a TtsModel.
TtsOptions described_tts(std::string_view description);

}  // namespace penstock::train
