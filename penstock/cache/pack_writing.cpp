#include "penstock/cache/pack_writing.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "penstock/cache/pack_writer.h"
#include "penstock/core/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// For calls that return -1 and set errno.
long must(long result) {
  if (result < 0) throw std::system_error(errno, std::generic_category());
  return result;
}

iovec part_of(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

void write_at(const File& file, std::uint64_t at, std::span<iovec> parts) {
  while (!parts.empty()) {
    const ssize_t n =
        ::pwritev(file.fd(), parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    auto left = static_cast<std::size_t>(must(n));
    at += left;
    while (!parts.empty() && left >= parts[0].iov_len) {
      left -= parts[0].iov_len;
      parts = parts.subspan(1);
    }
    if (left > 0) parts[0] = {static_cast<std::byte*>(parts[0].iov_base) + left, parts[0].iov_len - left};
  }
}

void write_at(const File& file, std::uint64_t at, std::span<const std::byte> bytes) {
  iovec part = part_of(bytes);
  write_at(file, at, std::span(&part, 1));
}

/// Who has the lock, from what it wrote there.
std::string holder(const File& lock) {
  std::array<char, 32> text{};
  const ssize_t n = ::pread(lock.fd(), text.data(), text.size(), 0);
  const std::string_view pid(text.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  return pid.empty() ? "another process" : fmt::format("process {}", pid.substr(0, pid.find('\n')));
}

/// False when somebody else has it. Whoever lists packs holds it for microseconds, so one look is not enough.
bool try_lock(const File& lock, bool wait) {
  for (int tries = 0; ::flock(lock.fd(), wait ? LOCK_EX : LOCK_EX | LOCK_NB) != 0;) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) must(-1);
    if (++tries == 5) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool is_still_there(const File& lock, const fs::path& path) {
  struct stat ours {
  }, theirs{};
  must(::fstat(lock.fd(), &ours));
  return ::stat(path.c_str(), &theirs) == 0 && ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

/// The one who has the lock may remove the pack, and the lock with it: then we begin again.
void take_lock(PackPlace& place, bool wait) {
  do {
    fs::create_directories(place.path);
    place.folder = File::open_folder(place.path);
    place.lock = File(::openat(place.folder.fd(), "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (place.lock.fd() < 0 && errno == ENOENT) continue;
    must(place.lock.fd());
    if (!try_lock(place.lock, wait))
      throw Error(fmt::format("{} is building this pack ({}): wait for it or stop it", holder(place.lock),
                              place.path.filename().string()));
  } while (place.lock.fd() < 0 || !is_still_there(place.lock, place.path / "lock"));
}

}  // namespace

PackPlace take_place(const fs::path& path, const PackIdentity& identity, bool wait) {
  PackPlace place{
      .path = (path / "").parent_path(), .identity = identity, .fingerprint = identity.fingerprint()};
  try {
    take_lock(place, wait);
    const std::string pid = fmt::format("{}\n", ::getpid());
    must(::ftruncate(place.lock.fd(), 0));
    write_at(place.lock, 0, std::as_bytes(std::span(pid)));
  } catch (const std::system_error& e) {
    throw Error(fmt::format("{}: cannot be written: {}", path.string(), e.code().message()));
  }
  return place;
}

void remove_pack(const fs::path& folder) try {
  if (!fs::exists(folder)) return;
  const PackPlace place = take_place(folder, {}, false);
  for (const ShardName& shard : find_shards(place.path)) fs::remove(place.path / shard.text());
  // The lock goes last, and the folder only if it is empty then: whoever has come meanwhile keeps it.
  fs::remove(place.path / "lock");
  std::error_code not_empty;
  fs::remove(place.path, not_empty);
} catch (const fs::filesystem_error& e) {
  throw Error(fmt::format("{}: cannot be removed: {}", folder.string(), e.code().message()));
}

Error cannot_write(const PackPlace& place, const ShardName& name, int code) {
  return Error(
      fmt::format("{}: cannot be written: {}", (place.path / name.text()).string(), std::strerror(code)));
}

PartShard::PartShard(const PackPlace& place, std::uint64_t number) : place_(place), name_{number, true} {
  const std::vector<std::byte> header = shard_header(place.identity);
  file_ = File(static_cast<int>(
      must(::openat(place.folder.fd(), name_.text().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644))));
  try {
    write_at(file_, 0, header);
  } catch (...) {
    remove();
    throw;
  }
  end_ = header.size();
}

PartShard::PartShard(const PackPlace& place, std::uint64_t number, File file, std::vector<IndexEntry> whole)
    : place_(place), name_{number, true}, file_(std::move(file)), index_(std::move(whole)) {
  end_ = index_.back().fields.end();
  must(::ftruncate(file_.fd(), static_cast<off_t>(end_)));
  write_at(file_, 0, shard_header(place.identity));  // the first record is behind it, whatever became of it
}

void PartShard::append(RecordHeader header, std::string_view id, std::span<const std::byte> payload) {
  header.fields.at = end_;
  std::array<std::byte, aligned_to_64(sizeof(RecordHeader) + RecordHeader::most_id_bytes)> head{};
  static constexpr std::array<std::byte, 64> zeros{};
  const RecordFields& f = header.fields;
  const std::size_t size = sizeof header + id.size();
  std::memcpy(head.data() + sizeof header, id.data(), id.size());
  std::memcpy(head.data(), &header, sizeof header);
  header.checksum = xxh3(std::span<const std::byte>(head).subspan(checksum_from, size - checksum_from));
  std::memcpy(head.data(), &header, sizeof header);

  std::array<iovec, 3> parts{part_of(std::span(head).first(f.payload_at() - f.at)), part_of(payload),
                             part_of(std::span(zeros).first(f.end() - f.payload_at() - f.bytes))};
  index_.push_back({xxh3(id), f});
  write_at(file_, end_, parts);
  end_ = f.end();
}

void PartShard::start_writeback() {
  constexpr std::uint64_t step = 8 << 20;
  if (end_ - written_back_ < step) return;
  // Only advice: what cannot be written is found by fsync.
  ::sync_file_range(file_.fd(), static_cast<off_t>(written_back_), static_cast<off_t>(end_ - written_back_),
                    SYNC_FILE_RANGE_WRITE);
  written_back_ = end_;
}

void PartShard::seal(const ShardName& sealed) {
  write_at(file_, end_, shard_end(index_, end_, place_.fingerprint));
  must(::fsync(file_.fd()));
  const int folder = place_.folder.fd();
  must(::renameat(folder, name_.text().c_str(), folder, sealed.text().c_str()));
  must(::fsync(folder));
}

void PartShard::remove() const { ::unlinkat(place_.folder.fd(), name_.text().c_str(), 0); }

std::uint64_t recover(const PackPlace& place) {
  const std::vector<ShardName> shards = find_shards(place.path);
  std::uint64_t next = shards.empty() ? 0 : shards.back().number + 1;
  Scratch<std::byte> scratch;
  for (const ShardName& shard : shards) {
    if (!shard.part) continue;
    try {
      File file(
          static_cast<int>(must(::openat(place.folder.fd(), shard.text().c_str(), O_RDWR | O_CLOEXEC))));
      if (read_shard_header(file).state == HeaderFound::State::newer) continue;
      auto records = scan_records(file, static_cast<std::uint64_t>(file.stamp().size), place.fingerprint);
      std::erase_if(records, [&](const IndexEntry& e) { return !payload_is_whole(file, e.fields, scratch); });
      if (records.empty()) {
        must(::unlinkat(place.folder.fd(), shard.text().c_str(), 0));
        continue;
      }
      const bool taken = std::ranges::binary_search(shards, ShardName{shard.number, false});
      PartShard(place, shard.number, std::move(file), std::move(records))
          .seal({taken ? next++ : shard.number, false});
    } catch (const std::system_error& e) {
      throw cannot_write(place, shard, e.code().value());
    }
  }
  return next;
}

}  // namespace penstock
