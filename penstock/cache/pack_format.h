// The bytes of a pack's shard files, little-endian, and how to find records in them. docs/cache_format.md
// draws them.
//
//   ShardHeader, the array's name, its parameters, zeros
//   per record: RecordHeader, id, zeros, payload, zeros      each part in front of zeros ends at a multiple
//   of 64 IndexEntry per record ShardFooter
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "penstock/cache/pack.h"
#include "penstock/core/file.h"

namespace penstock {

static_assert(std::endian::native == std::endian::little, "packs are little-endian");

constexpr std::uint64_t aligned_to_64(std::uint64_t n) { return (n + 63) & ~std::uint64_t{63}; }

using Magic = std::array<char, 8>;

// Every structure that has a checksum starts with its magic and then the checksum of all that follows.
inline constexpr std::size_t checksum_from = sizeof(Magic) + sizeof(std::uint64_t);

/// The fields up to header_bytes mean the same in every version, so that a newer one is told from a damaged
/// one.
struct ShardHeader {
  static constexpr Magic expected_magic{'P', 'S', 'T', 'K', 'P', 'A', 'C', 'K'};
  static constexpr std::uint32_t expected_version = 1;
  static constexpr std::uint32_t most_bytes = 1 << 20;

  Magic magic = expected_magic;
  std::uint64_t checksum = 0;  ///< up to header_bytes
  std::uint32_t version = expected_version;
  std::uint32_t header_bytes = 0;  ///< where the first record is
  std::uint64_t fingerprint = 0;
  std::uint32_t array_bytes = 0, parameters_bytes = 0;
};

/// What the record's header and the shard's index both say about a record.
struct RecordFields {
  std::uint64_t at = 0;  ///< of its header in the shard: a record that was moved is not one
  SourceKey source;
  std::uint64_t checksum = 0;  ///< of the payload
  std::uint64_t bytes = 0;     ///< of the payload
  ElementType type = ElementType::float32;
  std::int32_t rows = 0, columns = 0;
  std::uint32_t id_bytes = 0;
  bool operator==(const RecordFields&) const = default;

  [[nodiscard]] std::uint64_t payload_at() const;
  [[nodiscard]] std::uint64_t end() const;
};

struct RecordHeader {
  static constexpr Magic expected_magic{'P', 'S', 'T', 'K', 'R', 'E', 'C', '1'};
  static constexpr std::uint32_t most_id_bytes = 4096;

  Magic magic = expected_magic;
  std::uint64_t checksum = 0;  ///< up to the end of the id
  std::uint64_t fingerprint = 0;
  RecordFields fields;
};

struct IndexEntry {
  std::uint64_t key = 0;  ///< xxh3() of the id
  RecordFields fields;
};

struct ShardFooter {
  static constexpr Magic expected_magic{'P', 'S', 'T', 'K', 'E', 'N', 'D', '1'};

  Magic magic = expected_magic;
  std::uint64_t checksum = 0;
  std::uint64_t fingerprint = 0;
  std::uint64_t index_at = 0, count = 0;
  std::uint64_t index_checksum = 0;
  std::uint64_t file_bytes = 0;
};

// No padding: what is written is what was set.
static_assert(sizeof(ShardHeader) == 40 && sizeof(RecordFields) == 72 && sizeof(RecordHeader) == 96 &&
              sizeof(IndexEntry) == 80 && sizeof(ShardFooter) == 56);
static_assert(std::has_unique_object_representations_v<ShardHeader> &&
              std::has_unique_object_representations_v<RecordHeader> &&
              std::has_unique_object_representations_v<IndexEntry> &&
              std::has_unique_object_representations_v<ShardFooter>);

inline std::uint64_t RecordFields::payload_at() const {
  return at + aligned_to_64(sizeof(RecordHeader) + id_bytes);
}
inline std::uint64_t RecordFields::end() const { return aligned_to_64(payload_at() + bytes); }

/// `00001.pack`, or `00001.pack.part` while it is being written.
struct ShardName {
  std::uint64_t number = 0;
  bool part = false;
  [[nodiscard]] std::string text() const;
  auto operator<=>(const ShardName&) const = default;
};
std::optional<ShardName> parse_shard_name(std::string_view name);

/// The shards in a pack's folder by number; none where there is no folder. Throws
/// std::filesystem::filesystem_error.
std::vector<ShardName> find_shards(const std::filesystem::path& folder);

/// The shard's header, texts and zeros included. Throws Error when they are too long for it.
std::vector<std::byte> shard_header(const PackIdentity& identity);

struct HeaderFound {
  enum class State : std::uint8_t { good, newer, damaged };
  State state = State::damaged;
  std::uint32_t version = 0;
  std::uint64_t fingerprint = 0;  ///< this and the identity: of a good one
  PackIdentity identity;
};
/// Throws std::system_error.
HeaderFound read_shard_header(const File& file);

/// The index and the footer behind it, for a shard whose records end at `index_at`.
std::vector<std::byte> shard_end(std::span<const IndexEntry> index, std::uint64_t index_at,
                                 std::uint64_t fingerprint);

struct IndexFound {
  std::vector<IndexEntry> entries;
  std::string problem;  ///< "its footer is damaged"; empty for a good one
};
/// Throws std::system_error.
std::optional<ShardFooter> read_footer(const File& file, std::uint64_t file_bytes);
IndexFound read_index(const File& file, std::uint64_t file_bytes, std::uint64_t fingerprint);

/// The record whose header and id `bytes` starts with, if it is one of this pack and belongs at `at` in a
/// shard whose records end by `end`.
std::optional<RecordFields> parse_record(std::span<const std::byte> bytes, std::uint64_t fingerprint,
                                         std::uint64_t at, std::uint64_t end);

/// Finds the records of a shard without its index. Payloads are not compared. Throws std::system_error.
std::vector<IndexEntry> scan_records(const File& file, std::uint64_t file_bytes, std::uint64_t fingerprint);

/// Throws std::system_error.
bool payload_is_whole(const File& file, const RecordFields& fields, Scratch<std::byte>& scratch);

}  // namespace penstock
