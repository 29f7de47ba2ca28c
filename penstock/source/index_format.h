// The bytes of an index file, little-endian, and a checked view of them.
//
//   IndexHeader
//   ManifestEntry[manifests]     names, sizes and mtimes of the manifest files
//   StringPlace[speakers]        speaker names
//   CharacterCount[characters]   by code point
//   names                        the text of the names above, then zeros up to a multiple of 8
//   ------------------------------------------------------- `head_checksum` covers the file up to here
//   Record[utterances]           each with a checksum of its own
//   strings                      of each record in turn: id NUL text NUL path NUL problem NUL
//
// The first part is small whatever the number of utterances, so it is checked when the file is opened; a
// record is checked when it is read. The file ends with a NUL, so that a path always ends inside of it.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "penstock/core/types.h"
#include "penstock/source/index.h"

namespace penstock {

static_assert(std::endian::native == std::endian::little, "index files are little-endian");

struct IndexHeader {
  static constexpr std::array<char, 8> expected_magic{'P', 'S', 'T', 'K', 'I', 'D', 'X', '\n'};
  static constexpr std::uint32_t expected_version = 1;

  std::array<char, 8> magic = expected_magic;
  std::uint32_t version = expected_version;
  std::uint32_t split_by_id = 0;    ///< 1: validation is decided by id_hash, not by Record::validation
  std::uint64_t head_checksum = 0;  ///< hash_bytes of the head with this field 0
  std::uint64_t key = 0;            ///< which dataset and paths this is the index of
  std::uint64_t clean_version = 0;
  std::uint64_t file_size = 0;
  std::uint64_t manifests = 0, speakers = 0, characters = 0;
  std::uint64_t utterances = 0;
  std::uint64_t records_at = 0, strings_at = 0;  ///< byte offsets in the file
};

struct StringPlace {
  std::uint32_t at = 0;  ///< in names
  std::uint32_t size = 0;
};

struct ManifestEntry {
  StringPlace name;
  FileStamp stamp;
};

struct Record {
  std::uint64_t checksum = 0;  ///< hash_bytes of the record with this field 0
  std::uint64_t id_hash = 0;
  std::uint64_t strings_at = 0;  ///< in strings
  std::uint32_t id_size = 0, text_size = 0, path_size = 0, problem_size = 0;
  std::int32_t speaker = 0;
  std::int32_t line = 0;
  std::int32_t characters = 0;
  std::uint16_t file = 0;
  std::uint16_t validation = 0;
  AudioInfo audio;
  FileStamp stamp;

  /// Of its strings, NULs included.
  [[nodiscard]] std::uint64_t strings_size() const {
    return std::uint64_t{id_size} + text_size + path_size + problem_size + 4;
  }
  [[nodiscard]] std::uint64_t compute_checksum() const;
};

// No padding: what is written is what was set, and the same dataset gives the same bytes.
static_assert(sizeof(IndexHeader) == 96 && sizeof(ManifestEntry) == 24 && sizeof(Record) == 88 &&
              sizeof(CharacterCount) == 16);
static_assert(std::has_unique_object_representations_v<IndexHeader> &&
              std::has_unique_object_representations_v<Record>);

/// Over whole 64-bit words; one changed bit always changes the result.
std::uint64_t hash_bytes(std::span<const std::byte> bytes);

/// The checksum that belongs into a file's header.
std::uint64_t head_checksum(const IndexHeader& header, std::span<const std::byte> file);

/// Index bytes whose head is sound. Does not own them.
class IndexView {
 public:
  /// Nothing for bytes that are no index of this version, are damaged in their head, or are cut off. O(1) in
  /// the number of utterances.
  static std::optional<IndexView> check(std::span<const std::byte> bytes);

  [[nodiscard]] const IndexHeader& header() const { return header_; }
  [[nodiscard]] ManifestEntry manifest(std::size_t i) const;
  [[nodiscard]] std::string_view name(StringPlace place) const;
  [[nodiscard]] std::string_view speaker(std::size_t i) const;
  [[nodiscard]] std::span<const CharacterCount> characters() const;

  /// Nothing when it is damaged. i < header().utterances.
  [[nodiscard]] std::optional<Record> record(std::size_t i) const;

  struct Strings {
    std::string_view id, text, path, problem;
  };
  [[nodiscard]] Strings strings(const Record& record) const;

 private:
  IndexView(const IndexHeader& header, std::span<const std::byte> bytes);

  IndexHeader header_;
  std::span<const std::byte> bytes_;
  std::size_t speakers_at_, characters_at_, names_at_;
};

}  // namespace penstock
