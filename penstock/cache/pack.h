// A pack: one array (mels or samples, tokens, an extra) of every utterance, in shard files that are mapped
// and never parsed. docs/cache_format.md draws the bytes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/core/types.h"

namespace penstock {

/// What a record was made from. It is used only for a source whose key is the same.
struct SourceKey {
  std::uint64_t name = 0;   ///< which source: xxh3() of the audio file's path, also for a text or an extra
  FileStamp stamp;          ///< its state; of a text the length and the xxh3()
  std::int64_t offset = 0;  ///< where in the file, for files that hold several utterances
  bool operator==(const SourceKey&) const = default;
};

/// XXH3, 64 bits.
std::uint64_t xxh3(std::span<const std::byte> bytes);
std::uint64_t xxh3(std::string_view text);

/// What a pack holds, and everything that shapes its records. A difference makes another pack.
struct PackIdentity {
  std::string array;       ///< mel or pcm, tokens, or an extra's name: letters, digits and _
  std::string parameters;  ///< lines `key: value` in a fixed order; people read them in `penstock cache list`
  [[nodiscard]] std::uint64_t fingerprint() const;
  [[nodiscard]] std::string folder_name() const;  ///< mel-0123456789abcdef
  bool operator==(const PackIdentity&) const = default;
};

/// An array as it is stored: [rows, columns], packed. The payload has rows x columns elements.
struct PackRecord {
  std::string_view id;
  SourceKey source;
  ElementType type = ElementType::float32;
  std::int32_t rows = 0, columns = 0;
  std::span<const std::byte> payload;
};

/// A record of a pack, as the shard's index describes it.
struct PackEntry {
  std::uint64_t key = 0;  ///< xxh3() of the id
  SourceKey source;
  std::uint64_t checksum = 0;  ///< XXH3-64 of the payload
  std::uint64_t offset = 0;    ///< of the payload in its shard
  std::uint64_t bytes = 0;     ///< of the payload
  ElementType type = ElementType::float32;
  std::int32_t rows = 0, columns = 0;
  std::uint32_t shard = 0;   ///< which of the pack's open shards
  std::uint32_t number = 0;  ///< among the pack's entries
  std::uint32_t id_bytes = 0;
};

/// A record that cannot be used: damaged, cut off, or gone.
class RecordError : public Error {
 public:
  using Error::Error;
};

struct PackOptions {
  bool mapped = true;  ///< records in memory are read through a mapping; false: all with pread
  bool verify = true;  ///< a record's checksum is compared the first time it is read in this process
};

/// Reads a pack. Immutable but for what has been verified; all threads share one. Sealed shards never change,
/// so a build may go on beside it; what it adds is seen by the next Pack.
class Pack {
 public:
  Pack();  ///< an empty one
  /// Opens every sealed shard in `folder`; a folder that is not there is an empty pack. A shard whose index
  /// is damaged is scanned for its records; one that cannot be used is left out. problems() names both.
  /// Throws Error when the system refuses (permissions, too many open files).
  Pack(const std::filesystem::path& folder, const PackIdentity& identity, const PackOptions& options = {});
  Pack(Pack&&) noexcept;
  Pack& operator=(Pack&&) noexcept;
  ~Pack();

  /// The newest record of this id from the source of this name, or none: train and validation data may have
  /// the same ids. Both are told apart by their 64-bit hashes.
  [[nodiscard]] const PackEntry* find(std::string_view id, std::uint64_t source_name) const;
  /// All records in the order in which they were written, those included that a newer one has replaced.
  [[nodiscard]] std::span<const PackEntry> entries() const;
  /// The newest of its id and source.
  [[nodiscard]] bool live(const PackEntry& entry) const;

  /// Copies the payload; `into` has its size. Throws RecordError, also when the file is cut off or changed
  /// under us; `into` may be partly written then. Allocates nothing.
  void read(const PackEntry& entry, std::span<std::byte> into) const;
  /// Hands the payload to `use(std::span<const std::byte>)`: mapped memory, or `scratch` where the record is
  /// not in memory or the pack is not mapped. `use` may be left without unwinding when the file is cut off
  /// meanwhile, and may be called a second time with bytes that were read anew: it must hold nothing, and
  /// what it wrote must not be used when this throws RecordError. Allocates nothing once the scratch has
  /// grown.
  template <typename Use>
  void read(const PackEntry& entry, Scratch<std::byte>& scratch, Use&& use) const {
    read_with(
        entry, scratch,
        [](void* context, std::span<const std::byte> payload) {
          (*static_cast<std::remove_reference_t<Use>*>(context))(payload);
        },
        &use);
  }

  /// Asks the kernel to read the record from disk soon. Returns at once, and costs little when it is in
  /// memory.
  void will_need(const PackEntry& entry) const;

  /// Everything about a record is compared: its header with the index, its id with the key, its payload with
  /// the checksum. Empty, or what is wrong.
  [[nodiscard]] std::string check(const PackEntry& entry, Scratch<std::byte>& scratch) const;
  /// The id as the record has it; throws RecordError.
  [[nodiscard]] std::string id(const PackEntry& entry) const;

  [[nodiscard]] std::span<const std::string> problems() const;  ///< `00001.pack: its index is damaged (...)`
  /// File names of the shards; PackEntry::shard counts them.
  [[nodiscard]] std::span<const std::string> shards() const;
  /// File names of shards that are damaged beyond their records (see problems()): to be rewritten or removed.
  [[nodiscard]] std::span<const std::string> damaged_shards() const;
  [[nodiscard]] const std::filesystem::path& folder() const;

 private:
  using Use = void (*)(void* context, std::span<const std::byte> payload);
  void read_with(const PackEntry& entry, Scratch<std::byte>& scratch, Use use, void* context) const;

  struct State;
  std::unique_ptr<State> state_;
};

/// A pack as `cache list` shows it, from its shards' headers and sizes.
struct PackSummary {
  PackIdentity identity;
  std::filesystem::path folder;
  std::uint64_t fingerprint = 0;
  std::int64_t shards = 0, records = 0;
  std::uint64_t bytes = 0;             ///< of all files
  std::int64_t written_ns = 0;         ///< mtime of the newest shard
  std::int64_t used_ns = 0;            ///< when a feed last opened it; see mark_used()
  std::vector<std::string> leftovers;  ///< unfinished files of builds that are not running any more
  std::string problem;                 ///< not empty: why it cannot be read (another version, damaged)
};

/// All packs in a folder, by name.
std::vector<PackSummary> list_packs(const std::filesystem::path& cache_folder);

/// Remembers that the pack is in use (the mtime of its lock file). Does nothing where it may not write.
void mark_used(const std::filesystem::path& pack_folder);

}  // namespace penstock
