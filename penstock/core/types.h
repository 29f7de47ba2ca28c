// The nouns that stages hand to each other.
#pragma once
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace penstock {

/// What a file's header says about its audio.
struct AudioInfo {
  std::int64_t samples = 0;  ///< per channel, at the file's own rate
  std::int32_t sample_rate = 0;
  std::int32_t channels = 0;
};

/// A file as it was when it was indexed; a difference means that it has changed since.
struct FileStamp {
  std::int64_t size = 0;
  std::int64_t mtime_ns = 0;
  auto operator<=>(const FileStamp&) const = default;
};

/// One line of a dataset. The views point into the mapped index and live as long as it does.
struct Utterance {
  std::string_view id;
  std::string_view text;        ///< as the manifest has it, UTF-8
  std::string_view path;        ///< audio file: absolute, or below the dataset's folder; NUL-terminated
  std::int32_t speaker = 0;     ///< number in the index's speaker table
  std::int32_t line = 0;        ///< in its manifest, from 1
  std::int32_t characters = 0;  ///< of the cleaned text: what the tokenizer counts
  bool validation = false;      ///< belongs to the validation split
  AudioInfo audio;
  FileStamp stamp;
  std::string_view problem;  ///< why it cannot be used; empty for a good one
};

/// The size of a batch's arrays. Every batch has one of a plan's few shapes.
struct Shape {
  std::int32_t rows = 0;
  std::int32_t tokens = 0;
  std::int32_t frames = 0;
  auto operator<=>(const Shape&) const = default;
};

/// What an array is made of. The numbers are part of the cache's format.
enum class ElementType : std::uint32_t { float32 = 1, float16 = 2, int32 = 3, int16 = 4 };
constexpr std::size_t element_bytes(ElementType type) {
  return type == ElementType::float16 || type == ElementType::int16 ? 2 : 4;
}

/// Which length of its row an array follows.
enum class Along : std::uint8_t { frames, tokens, nothing };

/// An array beside the mel (`extra`): [rows, frames, width], [rows, tokens, width] or [rows, width], padded
/// with 0.
struct ExtraArray {
  std::string_view name;
  Along along = Along::nothing;
  std::int32_t width = 1;
  ElementType type = ElementType::float32;  ///< float32 or int32
  std::span<const std::byte> data;
};

/// A full batch. Copies share the memory; it stays as it is for as long as any copy lives.
///
/// Rows of length 0 are padding (see `remainder`). Lengths are always the true ones.
struct Batch {
  Shape shape;
  std::int32_t bins = 0;
  std::int64_t epoch = 0;
  std::int64_t step = 0;

  std::span<const std::int32_t> tokens;         ///< [rows, tokens], PAD behind each text
  std::span<const std::int32_t> token_lengths;  ///< [rows]
  std::span<const float> mel;                   ///< [rows, frames, bins] or [rows, bins, frames] (mel_layout)
  std::span<const std::int32_t> mel_lengths;    ///< [rows]
  std::span<const std::int32_t> speakers;       ///< [rows], -1 in a row of length 0
  std::span<const std::int64_t> utterances;     ///< [rows] index numbers, -1 in a row of length 0
  std::span<const std::uint8_t> replaced;       ///< [rows] 1 where a bad sample's place was filled by rule
  std::span<const ExtraArray> extras;           ///< in the order of the configuration

  /// Every array above lies in here, so that one copy takes the whole batch. The first `small_bytes` hold
  /// lengths, speakers, utterances and replaced.
  std::span<const std::byte> block;
  std::size_t small_bytes = 0;

  std::shared_ptr<const void> memory;  ///< owns what the spans show
  /// For a consumer that writes into it all the same: set before `memory` goes, it has padding cleared anew.
  std::atomic<bool>* written = nullptr;
};

}  // namespace penstock
