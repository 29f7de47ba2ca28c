#include "penstock/feed/row.h"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock {

RowJob::RowJob(const Config& config, const Dataset& dataset, const Mel& mel, const File& root,
               StageClock& clock)
    : config_(config),
      dataset_(dataset),
      mel_(mel),
      root_(root),
      clock_(clock),
      decoder_({.sample_rate = config.mel.sample_rate, .resample = config.resample}) {}

void RowJob::fill(std::int64_t member, const Row& row) {
  const auto m = static_cast<std::size_t>(member);
  const std::int64_t number = dataset_.members[m];
  const Lengths planned = dataset_.lengths[m];
  const Utterance utterance = dataset_.index.utterance(number);
  try {
    const auto bytes = probe(clock_, Stage::read, [&] { return read(utterance); });
    const auto audio = probe(clock_, Stage::decode, [&] { return decoder_.decode(bytes, utterance.path); });
    if (const std::int64_t frames = config_.mel.frames(static_cast<std::int64_t>(audio.size()));
        frames != planned.frames)
      throw SampleError(
          "decode", std::string(utterance.path),
          fmt::format("must have {} frames as its header promised, but has {}", planned.frames, frames));
    row.dirty_frames = std::max(row.dirty_frames, planned.frames);
    probe(clock_, Stage::mel, [&] { transform(audio, row); });
    row.dirty_tokens = static_cast<std::int32_t>(row.tokens.size());
    row.token_length = probe(clock_, Stage::tokens, [&] {
      return dataset_.tokenizer->encode(utterance.text, row.tokens, text_scratch_);
    });
  } catch (const SampleError& e) {
    throw SampleError(e.stage, e.path, e.cause, std::string(utterance.id));
  } catch (const Error& e) {
    throw SampleError("tokens", dataset_.index.where(number), e.what(), std::string(utterance.id));
  }
  row.mel_length = planned.frames;
  row.speaker = utterance.speaker;
  row.utterance = number;
  probe(clock_, Stage::pad, [&] { pad(row); });
}

void RowJob::clear(const Row& row) {
  row.token_length = row.mel_length = 0;
  row.speaker = -1;
  row.utterance = -1;
  probe(clock_, Stage::pad, [&] { pad(row); });
}

std::span<const std::byte> RowJob::read(const Utterance& utterance) {
  try {
    const File file = File::open(utterance.path.data(), root_.fd());
    if (file.stamp() != utterance.stamp)
      throw SampleError("read", std::string(utterance.path),
                        "has changed since it was indexed; run `penstock info --rescan` on the dataset");
    const auto bytes = bytes_.of(static_cast<std::size_t>(utterance.stamp.size));
    if (const std::size_t n = file.read_at(0, bytes); n != bytes.size())
      throw SampleError("read", std::string(utterance.path),
                        fmt::format("must have {} bytes, but ends after {}", bytes.size(), n));
    return bytes;
  } catch (const std::system_error& e) {
    throw SampleError("read", std::string(utterance.path), e.code().message());
  }
}

void RowJob::transform(std::span<const float> audio, const Row& row) {
  const bool frames_first = config_.mel.layout == MelLayout::frames_first;
  const std::ptrdiff_t bins = config_.mel.n_mels;
  const std::ptrdiff_t stride = frames_first ? bins : static_cast<std::ptrdiff_t>(row.mel.size()) / bins;
  if (config_.native_loading)
    mel_.compute(audio, row.mel.data(), stride, mel_scratch_);
  else
    mel_reference(config_.mel, audio, row.mel.data(), stride);
}

void RowJob::pad(const Row& row) {
  const auto value = static_cast<float>(config_.mel_pad_value);
  const auto bins = static_cast<std::size_t>(config_.mel.n_mels);
  const auto from = static_cast<std::size_t>(row.mel_length), to = static_cast<std::size_t>(row.dirty_frames);
  if (from < to && config_.mel.layout == MelLayout::frames_first) {
    std::fill(row.mel.begin() + from * bins, row.mel.begin() + to * bins, value);
  } else if (from < to) {
    const std::size_t frames = row.mel.size() / bins;
    for (std::size_t b = 0; b < bins; ++b)
      std::fill(row.mel.begin() + b * frames + from, row.mel.begin() + b * frames + to, value);
  }
  if (row.token_length < row.dirty_tokens)
    std::fill(row.tokens.begin() + row.token_length, row.tokens.begin() + row.dirty_tokens, SymbolTable::pad);
  row.dirty_frames = row.mel_length;
  row.dirty_tokens = row.token_length;
}

}  // namespace penstock
