// Writes a pack so that it can be killed at any moment: shards grow under a temporary name and are sealed
// (index, sync, rename) when they are full or the build ends.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "penstock/cache/pack.h"

namespace penstock {

struct PackWriterOptions {
  std::uint64_t shard_bytes = std::uint64_t{1} << 30;
  bool wait = false;  ///< for another build of this pack to end, instead of throwing
};

/// One writer per pack at a time, over all processes.
class PackWriter {
 public:
  /// Makes the folder where there is none, takes its lock, and seals every complete record that a killed
  /// build left behind: a Pack that is opened afterwards sees them. Throws Error: another build is running
  /// (with its process number), or the folder cannot be written.
  PackWriter(const std::filesystem::path& folder, const PackIdentity& identity,
             const PackWriterOptions& options = {});
  /// Without finish() the unsealed shard stays for the next writer to recover.
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  /// Any thread. One sequential write; a full shard is sealed beside the next one's writing. Throws Error
  /// when it cannot be written (disk full), now and in every later call: the unsealed shard is removed,
  /// sealed ones stay. Throws Error, and changes nothing, for a record that does not fit together: a payload
  /// that is not rows x columns, an id of more than 4096 bytes.
  void append(const PackRecord& record);
  /// Seals what is there. Also the right end for a build that was interrupted. Nothing to seal leaves no
  /// file.
  void finish();

  /// Rewrites every shard that is damaged or holds a record that `keep` refuses or that is not live: what is
  /// kept goes to new shards, the old ones are removed after those are sealed. Kept records are checked on
  /// the way; a bad one is dropped. Returns how many were dropped. `pack` is this folder's, opened after the
  /// writer and after its last finish(); throws Error when it cannot have seen everything. Killed on the way,
  /// it leaves records twice at worst. Shards of a newer version stay as they are.
  std::int64_t rewrite(const Pack& pack, const std::function<bool(const PackEntry&)>& keep);

  [[nodiscard]] std::uint64_t bytes_written() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Removes a pack that nobody builds; feeds that have it open go on. Throws Error, also when a build is
/// running.
void remove_pack(const std::filesystem::path& folder);

}  // namespace penstock
