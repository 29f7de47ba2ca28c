// The steps of writing a pack on disk: its lock, a shard that grows and is sealed, what a killed build left
// behind.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "penstock/cache/pack_format.h"
#include "penstock/core/file.h"

namespace penstock {

/// The folder of a pack that is being written.
struct PackPlace {
  std::filesystem::path path;
  PackIdentity identity;
  std::uint64_t fingerprint = 0;
  File folder, lock;
};

/// Makes the folder where there is none and locks it. Throws Error, see PackWriter.
PackPlace take_place(const std::filesystem::path& path, const PackIdentity& identity, bool wait);

/// The one message for whatever the system refuses while a shard is written.
Error cannot_write(const PackPlace& place, const ShardName& name, int code);

/// A shard under its temporary name. One thread at a time.
class PartShard {
 public:
  /// A new file with a header. Throws std::system_error.
  PartShard(const PackPlace& place, std::uint64_t number);
  /// What a killed build left: its whole records, in a file that is cut off behind the last one. Throws
  /// std::system_error.
  PartShard(const PackPlace& place, std::uint64_t number, File file, std::vector<IndexEntry> whole);

  /// Of the file that seal() would leave, with one more record that takes `more` bytes.
  [[nodiscard]] std::uint64_t sealed_bytes(std::uint64_t more) const {
    return end_ + more + (index_.size() + 1) * sizeof(IndexEntry) + sizeof(ShardFooter);
  }
  [[nodiscard]] bool empty() const { return index_.empty(); }
  [[nodiscard]] ShardName name() const { return name_; }

  /// One write behind the last record; sets what depends on the place. Throws std::system_error.
  void append(RecordHeader header, std::string_view id, std::span<const std::byte> payload);
  /// Lets the disk begin with what has been written, so that sealing finds little left to do.
  void start_writeback();
  /// Index, footer, sync, and its last name: `sealed`. Throws std::system_error.
  void seal(const ShardName& sealed);
  void remove() const;

 private:
  const PackPlace& place_;
  ShardName name_;
  File file_;
  std::uint64_t end_ = 0, written_back_ = 0;
  std::vector<IndexEntry> index_;
};

/// Seals every whole record in unsealed shards, which have no owner any more; what holds none is removed.
/// Those of a newer version stay. Returns the number that the next shard gets. Throws Error.
std::uint64_t recover(const PackPlace& place);

}  // namespace penstock
