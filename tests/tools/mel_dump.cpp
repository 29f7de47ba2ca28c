// mel_dump AUDIO OUT [--preset NAME] [--target NAME | reference] [KEY VALUE ...]: the log-mel of raw float32
// samples as raw float32 [frames, bins]. mel_dump --targets: the instruction sets of this CPU. mel_dump
// --filterbank OUT [...]: the filters as raw float64 [bins, n_fft / 2 + 1]. Keys are MelOptions' fields.
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/features/mel.h"

namespace {

using namespace penstock;

template <typename T>
T one_of(const std::string& name, const std::map<std::string, T>& choices) {
  const auto found = choices.find(name);
  if (found == choices.end()) throw Error(fmt::format("{} is not among the choices", name));
  return found->second;
}

void set(MelOptions& o, const std::string& key, const std::string& value) {
  const std::map<std::string, std::int32_t*> integers = {
      {"sample_rate", &o.sample_rate}, {"n_fft", &o.n_fft},   {"win_length", &o.win_length},
      {"hop_length", &o.hop_length},   {"n_mels", &o.n_mels}, {"power", &o.power}};
  const std::map<std::string, double*> numbers = {
      {"fmin", &o.fmin}, {"fmax", &o.fmax}, {"magnitude_eps", &o.magnitude_eps}, {"floor", &o.floor}};
  if (const auto i = integers.find(key); i != integers.end())
    *i->second = std::stoi(value);
  else if (const auto d = numbers.find(key); d != numbers.end())
    *d->second = std::stod(value);
  else if (key == "scale")
    o.scale = one_of<MelScale>(value, {{"slaney", MelScale::slaney}, {"htk", MelScale::htk}});
  else if (key == "norm")
    o.norm = one_of<MelNorm>(value, {{"slaney", MelNorm::slaney}, {"none", MelNorm::none}});
  else if (key == "framing")
    o.framing = one_of<MelFraming>(
        value,
        {{"centered", MelFraming::centered}, {"same", MelFraming::same}, {"valid", MelFraming::valid}});
  else if (key == "pad")
    o.pad = one_of<MelPad>(value, {{"reflect", MelPad::reflect}, {"constant", MelPad::constant}});
  else if (key == "log")
    o.log = one_of<MelLog>(value, {{"ln", MelLog::ln}, {"log10", MelLog::log10}, {"db", MelLog::db}});
  else if (key == "precision")
    o.precision = one_of<MelPrecision>(value, {{"fast", MelPrecision::fast}, {"exact", MelPrecision::exact}});
  else
    throw Error(fmt::format("unknown key {}", key));
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> files;
  MelOptions options;
  std::string target;
  bool filterbank = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--targets") {
      for (const std::string& name : Mel::targets()) fmt::print("{}\n", name);
      return 0;
    }
    if (argument == "--filterbank") {
      filterbank = true;
    } else if (argument == "--preset" && i + 1 < argc) {
      options = mel_preset(argv[++i]).value();
    } else if (argument == "--target" && i + 1 < argc) {
      target = argv[++i];
    } else if (files.size() < (filterbank ? 1 : 2)) {
      files.push_back(argument);
    } else if (i + 1 < argc) {
      set(options, argument, argv[++i]);
    }
  }
  options.validate();
  if (filterbank) {
    const std::vector<double> bank = mel_filterbank(options);
    write_file(files.at(0), std::as_bytes(std::span(bank)));
    return 0;
  }
  const MappedFile file(files.at(0));
  const std::span audio(reinterpret_cast<const float*>(file.bytes().data()),
                        file.bytes().size() / sizeof(float));
  const auto frames = static_cast<std::size_t>(options.frames(static_cast<std::int64_t>(audio.size())));
  std::vector<float> out(frames * static_cast<std::size_t>(options.n_mels));
  if (target == "reference") {
    mel_reference(options, audio, out.data(), options.n_mels);
  } else {
    MelScratch scratch;
    Mel(options, target).compute(audio, out.data(), options.n_mels, scratch);
  }
  write_file(files.at(1), std::as_bytes(std::span(out)));
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
