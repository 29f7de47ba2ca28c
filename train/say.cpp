#include "train/say.h"

#include <cmath>
#include <system_error>

#include <fmt/format.h>

#include "penstock/core/config.h"
#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/decode/decode.h"
#include "penstock/features/griffin_lim.h"
#include "penstock/features/mel.h"
#include "penstock/features/text.h"
#include "train/checkpoint.h"
#include "train/safetensors.h"
#include "train/tts.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;

/// A checkpoint, and the run that it belongs to.
struct Place {
  fs::path run, checkpoint;
};

Place find(const fs::path& given) {
  const fs::path path = fs::weakly_canonical(given);
  if (fs::exists(path / "state.json")) return {.run = path.parent_path().parent_path(), .checkpoint = path};
  const std::optional<fs::path> newest = latest_checkpoint(path);
  if (!newest)
    throw Error(fmt::format(
        "{}: must be a run's folder with a checkpoint, or a checkpoint (state.json), but is neither",
        given.string()));
  return {.run = path, .checkpoint = *newest};
}

Config config_of(const fs::path& run) {
  ConfigLoader loader;
  loader.load_yaml(run / "config.yaml");
  return loader.config();
}

torch::Tensor tokens_of(const fs::path& run, const Config& config, const std::string& text) {
  const auto tokenizer =
      character_tokenizer(SymbolTable::load(run / "symbols.txt"), {.add_blank = config.add_blank});
  TextScratch scratch;
  const auto units = static_cast<std::int32_t>(clean_text(text, scratch).size());
  if (units == 0) throw Error("the text must have a character to say, but has none");
  torch::Tensor tokens = torch::zeros({1, tokenizer->length(units)}, torch::kInt);
  const auto count = tokenizer->encode(
      text, {tokens.data_ptr<std::int32_t>(), static_cast<std::size_t>(tokens.numel())}, scratch);
  return tokens.narrow(1, 0, count);
}

/// [1, frames, bins]
torch::Tensor mel_of(const fs::path& clip, const MelOptions& options) {
  try {
    const File file = File::open(clip.c_str());
    std::vector<std::byte> bytes(static_cast<std::size_t>(file.stamp().size));
    bytes.resize(file.read_at(0, bytes));
    Decoder decoder({.sample_rate = options.sample_rate});
    const std::span<const float> audio = decoder.decode(bytes, clip.string());
    torch::Tensor mel =
        torch::empty({1, options.frames(static_cast<std::int64_t>(audio.size())), options.n_mels});
    MelScratch scratch;
    Mel(options).compute(audio, mel.data_ptr<float>(), options.n_mels, scratch);
    return mel;
  } catch (const std::system_error& e) {
    throw Error(fmt::format("{}: cannot be read: {}", clip.string(), e.code().message()));
  } catch (const SampleError& e) {
    throw Error(e.what());  // it is no sample of a dataset, and cannot be skipped
  }
}

/// The averages forget the weights that training began with by e^-(updates x (1 - decay)): before that is
/// little, they are worse than the weights themselves.
bool take_averages(TtsModel& model, const fs::path& checkpoint, std::int64_t updates, double decay) {
  if (decay <= 0 || static_cast<double>(updates) * (1 - decay) < 5) return false;
  NamedTensors averages;
  for (auto& [name, tensor] : load_safetensors(checkpoint / "optimizer.safetensors").tensors)
    if (name.starts_with("ema.")) averages.emplace_back(name.substr(4), tensor);
  if (averages.empty()) return false;
  NamedTensors parameters;
  for (const auto& each : model.named_parameters()) parameters.emplace_back(each.key(), each.value());
  assign(parameters, averages, (checkpoint / "optimizer.safetensors").string());
  return true;
}

torch::Tensor length_of(const torch::Tensor& rows) { return torch::full({1}, rows.size(1), torch::kInt); }

}  // namespace

Speech say(const SayOptions& options) {
  const torch::NoGradGuard no_grad;
  const Place place = find(options.checkpoint);
  const Config config = config_of(place.run);
  const RunState state = load_state(place.checkpoint);
  const std::shared_ptr<TtsModel> model = make_tts(described_tts(state.model));
  load_tensors(place.checkpoint, *model, nullptr);
  Speech speech{.sample_rate = config.mel.sample_rate, .bins = config.mel.n_mels};
  speech.averaged = take_averages(*model, place.checkpoint, state.update, config.train.ema_decay);
  model->eval();

  const torch::Tensor tokens = tokens_of(place.run, config, options.text);
  const torch::Tensor reference =
      options.reference ? mel_of(*options.reference, config.mel) : torch::Tensor();
  const std::int64_t r = model->options().reduction;
  const auto most = static_cast<std::int64_t>(std::ceil(options.most_seconds * config.mel.sample_rate /
                                                        static_cast<double>(config.mel.hop_length * r)));
  Decoding decoding = model->start(tokens, length_of(tokens), reference,
                                   reference.defined() ? length_of(reference) : torch::Tensor(), most);
  std::vector<torch::Tensor> groups;
  while (!speech.ended && decoding.steps < most) {
    const TtsModel::Spoken spoken = model->step(decoding, groups.empty() ? torch::Tensor() : groups.back());
    groups.push_back(spoken.mel);
    speech.ended = spoken.stop.item<float>() > 0.5f;
  }
  const torch::Tensor all = at::cat(groups, 1);
  const torch::Tensor mel = model->finish(all, length_of(all)).contiguous();
  speech.frames = mel.size(1);
  speech.mel.assign(mel.const_data_ptr<float>(), mel.const_data_ptr<float>() + mel.numel());
  speech.audio = griffin_lim(config.mel, speech.mel);
  return speech;
}

}  // namespace penstock::train
