// The row job: one utterance from its file into one row of a batch. This is what workers do all day.
#pragma once
#include <cstdint>
#include <optional>

#include "penstock/core/config.h"
#include "penstock/core/file.h"
#include "penstock/decode/decode.h"
#include "penstock/features/mel.h"
#include "penstock/features/text.h"
#include "penstock/feed/dataset.h"
#include "penstock/feed/slots.h"
#include "penstock/monitor/probe.h"

namespace penstock {

/// One per worker; allocates nothing once its scratch has grown to the longest clip (PCM WAV at the wanted
/// rate).
class RowJob {
 public:
  /// All of these must outlive the job. `root` is the folder that relative audio paths start at.
  RowJob(const Config& config, const Dataset& dataset, const Mel& mel, const File& root, StageClock& clock);

  /// Reads, decodes and transforms member `member` of the dataset into the row, padding included.
  /// Throws SampleError; the row may then be filled with another member.
  void fill(std::int64_t member, const Row& row);
  /// A row of length 0.
  void clear(const Row& row);

 private:
  std::span<const std::byte> read(const Utterance& utterance);
  void transform(std::span<const float> audio, const Row& row);
  void pad(const Row& row);

  const Config& config_;
  const Dataset& dataset_;
  const Mel& mel_;
  const File& root_;
  StageClock& clock_;
  Decoder decoder_;
  MelScratch mel_scratch_;
  TextScratch text_scratch_;
  Scratch<std::byte> bytes_;
};

}  // namespace penstock
