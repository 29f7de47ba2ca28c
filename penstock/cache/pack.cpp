#include "penstock/cache/pack.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "penstock/cache/pack_format.h"
#include "penstock/core/bus_guard.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// A sealed shard that is open. Its file never changes, unless somebody does it to us.
struct Shard {
  File file;
  FileStamp stamp;  ///< when it was opened
  std::span<const std::byte> mapped;
  mutable std::atomic<bool> changed = false;

  Shard(File opened, const FileStamp& as) : file(std::move(opened)), stamp(as) {
    // Records are read whole and in any order: what lies beside one is not wanted.
    ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_RANDOM);
  }
  Shard(const Shard&) = delete;
  ~Shard() {
    if (!mapped.empty()) ::munmap(const_cast<std::byte*>(mapped.data()), mapped.size());
  }

  void map() {
    const auto size = static_cast<std::size_t>(stamp.size);
    void* p = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd(), 0);
    if (p == MAP_FAILED) throw std::system_error(errno, std::generic_category());
    mapped = {static_cast<const std::byte*>(p), size};
    ::madvise(p, size, MADV_RANDOM);
  }

  /// write() and truncate() move the stamp before a byte of theirs can be seen, so what was read before this
  /// returns true was the file as it was opened.
  [[nodiscard]] bool as_opened() const {
    // Relaxed: the flag only saves the time of trying; whoever misses it finds out here.
    if (!changed.load(std::memory_order_relaxed) && file.stamp() == stamp) return true;
    changed.store(true, std::memory_order_relaxed);
    return false;
  }
};

/// (id key, source name) -> the newest entry of them: open addressing, numbers from 1, 0 is free.
class KeyTable {
 public:
  void build(std::span<const PackEntry> entries) {
    slots_.assign(std::bit_ceil(2 * entries.size() + 1), 0);
    for (const PackEntry& entry : entries)
      slots_[slot(entries, entry.key, entry.source.name)] = entry.number + 1;
  }
  [[nodiscard]] const PackEntry* find(std::span<const PackEntry> entries, std::uint64_t key,
                                      std::uint64_t name) const {
    if (entries.empty()) return nullptr;
    const std::uint32_t number = slots_[slot(entries, key, name)];
    return number == 0 ? nullptr : &entries[number - 1];
  }

 private:
  /// Where the key is, or belongs.
  [[nodiscard]] std::size_t slot(std::span<const PackEntry> entries, std::uint64_t key,
                                 std::uint64_t name) const {
    const auto is_other = [&](const PackEntry& e) { return e.key != key || e.source.name != name; };
    std::size_t i = key & (slots_.size() - 1);
    while (slots_[i] != 0 && is_other(entries[slots_[i] - 1])) i = (i + 1) & (slots_.size() - 1);
    return i;
  }
  std::vector<std::uint32_t> slots_;
};

RecordFields fields_of(const PackEntry& e) {
  return {.at = e.offset - aligned_to_64(sizeof(RecordHeader) + e.id_bytes),
          .source = e.source,
          .checksum = e.checksum,
          .bytes = e.bytes,
          .type = e.type,
          .rows = e.rows,
          .columns = e.columns,
          .id_bytes = e.id_bytes};
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

/// Why a record, read as a whole, is not what the index says; empty when it is.
std::string differs(std::span<const std::byte> bytes, const PackEntry& entry, std::uint64_t fingerprint) {
  const RecordFields expected = fields_of(entry);
  const auto found = parse_record(bytes, fingerprint, expected.at, expected.end());
  if (!found) return "its header is damaged";
  if (*found != expected) return "its header and the shard's index differ";
  const std::size_t id_end = sizeof(RecordHeader) + entry.id_bytes, payload_at = entry.offset - expected.at;
  if (xxh3(bytes.subspan(sizeof(RecordHeader), entry.id_bytes)) != entry.key)
    return "its id and the shard's index differ";
  const std::uint64_t checksum = xxh3(bytes.subspan(payload_at, entry.bytes));
  if (checksum != entry.checksum)
    return fmt::format("its checksum must be {:016x}, but is {:016x}", entry.checksum, checksum);
  if (!is_zero(bytes.subspan(id_end, payload_at - id_end)) ||
      !is_zero(bytes.subspan(payload_at + entry.bytes)))
    return "its padding is not zero";
  return {};
}

}  // namespace

struct Pack::State {
  fs::path folder;
  std::uint64_t fingerprint = 0;
  PackOptions options;
  std::vector<std::unique_ptr<Shard>> shards;
  std::vector<std::string> names, problems, damaged;
  std::vector<PackEntry> entries;
  KeyTable table;
  /// By entry. Relaxed is enough: the bytes come from the file, not from the thread that set a flag, and to
  /// compare twice or to read the slower way does no harm.
  enum Flag : std::uint8_t { verified = 1, on_disk = 2 };
  std::vector<std::atomic<std::uint8_t>> flags;

  /// False when a shard has gone since the folder was listed: somebody rewrites the pack.
  bool open_all() {
    shards.clear(), names.clear(), problems.clear(), damaged.clear(), entries.clear();
    return std::ranges::all_of(find_shards(folder),
                               [&](const ShardName& s) { return s.part || open(s.text()); });
  }

  bool open(const std::string& name) {
    try {
      File file = File::open((folder / name).c_str());
      const FileStamp stamp = file.stamp();
      add(name, std::make_unique<Shard>(std::move(file), stamp));
    } catch (const std::system_error& e) {
      if (e.code() == std::errc::no_such_file_or_directory) return false;
      if (e.code() != std::errc::io_error && e.code() != std::errc::is_a_directory &&
          e.code() != std::errc::invalid_argument)
        throw;
      problem(name, fmt::format("cannot be read: {}", e.code().message()));
    }
    return true;
  }

  void problem(const std::string& name, const std::string& what, bool its_damage = true) {
    problems.push_back(fmt::format("{}: {}", name, what));
    if (its_damage && (damaged.empty() || damaged.back() != name)) damaged.push_back(name);
  }

  void add(const std::string& name, std::unique_ptr<Shard> shard) {
    const HeaderFound header = read_shard_header(shard->file);
    if (header.state == HeaderFound::State::newer)
      return problem(name,
                     fmt::format("was written by a newer version (format {}, this one reads {})",
                                 header.version, ShardHeader::expected_version),
                     false);
    if (header.state == HeaderFound::State::good && header.fingerprint != fingerprint)
      return problem(name,
                     fmt::format("belongs to another pack (fingerprint must be {:016x}, but is {:016x})",
                                 fingerprint, header.fingerprint));
    if (header.state == HeaderFound::State::damaged) problem(name, "its header is damaged");

    const auto size = static_cast<std::uint64_t>(shard->stamp.size);
    IndexFound index = read_index(shard->file, size, fingerprint);
    if (!index.problem.empty()) {
      index.entries = scan_records(shard->file, size, fingerprint);
      problem(name,
              fmt::format("{}: {} records were found by scanning", index.problem, index.entries.size()));
    }
    if (index.entries.empty()) return;
    for (const IndexEntry& e : index.entries) add(e);
    if (options.mapped) shard->map();
    names.push_back(name);
    shards.push_back(std::move(shard));
  }

  void add(const IndexEntry& e) {
    entries.push_back({.key = e.key,
                       .source = e.fields.source,
                       .checksum = e.fields.checksum,
                       .offset = e.fields.payload_at(),
                       .bytes = e.fields.bytes,
                       .type = e.fields.type,
                       .rows = e.fields.rows,
                       .columns = e.fields.columns,
                       .shard = static_cast<std::uint32_t>(shards.size()),
                       .number = static_cast<std::uint32_t>(entries.size()),
                       .id_bytes = e.fields.id_bytes});
  }

  [[nodiscard]] const Shard& shard(const PackEntry& entry) const { return *shards[entry.shard]; }
  [[nodiscard]] std::string where(const PackEntry& entry) const {
    return fmt::format("{}/{}: the record at byte {}", (folder / "").parent_path().filename().string(),
                       names[entry.shard], fields_of(entry).at);
  }
  [[nodiscard]] bool has(const PackEntry& entry, Flag flag) const {
    return (flags[entry.number].load(std::memory_order_relaxed) & flag) != 0;
  }
  void set(const PackEntry& entry, Flag flag) {
    flags[entry.number].fetch_or(flag, std::memory_order_relaxed);
  }
  void clear(const PackEntry& entry, Flag flag) {
    flags[entry.number].fetch_and(static_cast<std::uint8_t>(~flag), std::memory_order_relaxed);
  }
  [[nodiscard]] bool to_verify(const PackEntry& entry) const {
    return options.verify && !has(entry, verified);
  }

  void will_need(const PackEntry& entry) {
    if (entry.bytes == 0) return;
    const int fd = shard(entry).file.fd();
    // The middle speaks for the record: its ends share pages with its neighbours, and asking for every page
    // would cost more than reading ahead what is there. (mincore() says nothing about files that belong to
    // others.)
    std::byte one{};
    const iovec into{&one, 1};
    if (::preadv2(fd, &into, 1, static_cast<off_t>(entry.offset + entry.bytes / 2), RWF_NOWAIT) == 1) return;
    ::posix_fadvise(fd, static_cast<off_t>(entry.offset), static_cast<off_t>(entry.bytes),
                    POSIX_FADV_WILLNEED);
    set(entry, on_disk);
  }

  /// To map pages that come from the disk, and to unmap them when others need the room, costs more than to
  /// copy them: such a record is read with pread(), and through the mapping when it is found in memory.
  bool comes_from_disk(const PackEntry& entry) {
    if (to_verify(entry)) will_need(entry);  // nobody may have asked; it takes no time beside the hash
    if (!has(entry, on_disk)) return false;
    clear(entry, on_disk);
    return true;
  }

  /// The way of a record in memory. False for others, and when the mapping does not show the record as it was
  /// written: then it is up to read_from_file(), which also knows what to say. The hash comes before `take`,
  /// so that it also brings the record into the CPU's cache.
  template <typename Take>
  bool take_mapped(const PackEntry& entry, Take take) {
    const Shard& from = shard(entry);
    if (from.mapped.empty() || from.changed.load(std::memory_order_relaxed) || comes_from_disk(entry))
      return false;
    const auto payload = from.mapped.subspan(entry.offset, entry.bytes);
    const bool verify = to_verify(entry);
    bool taken = false;
    const bool whole = survives_truncation(payload, [&] {
      if (verify && xxh3(payload) != entry.checksum) return;
      take(payload);
      taken = true;
    });
    if (!whole || !taken || !from.as_opened()) return false;
    if (verify) set(entry, verified);
    return true;
  }

  void read_from_file(const PackEntry& entry, std::span<std::byte> into) {
    const Shard& from = shard(entry);
    const std::size_t got = from.file.read_at(static_cast<std::int64_t>(entry.offset), into);
    if (got < into.size())
      throw RecordError(
          fmt::format("{} is cut off: {} bytes of {} are left", where(entry), got, into.size()));
    if (!to_verify(entry) && from.as_opened()) return;
    const std::uint64_t checksum = xxh3(into);
    if (checksum != entry.checksum)
      throw RecordError(fmt::format("{} is damaged: its checksum must be {:016x}, but is {:016x}",
                                    where(entry), entry.checksum, checksum));
    set(entry, verified);
  }
};

Pack::Pack() : state_(std::make_unique<State>()) {}
Pack::Pack(Pack&&) noexcept = default;
Pack& Pack::operator=(Pack&&) noexcept = default;
Pack::~Pack() = default;

Pack::Pack(const fs::path& folder, const PackIdentity& identity, const PackOptions& options) : Pack() {
  state_->folder = folder;
  state_->fingerprint = identity.fingerprint();
  state_->options = options;
  try {
    for (int tries = 0; !state_->open_all(); ++tries)
      if (tries == 100)
        throw Error(
            fmt::format("{}: cannot be opened: its shards go as soon as they are listed", folder.string()));
  } catch (const std::system_error& e) {
    throw Error(fmt::format("{}: cannot be opened: {}", folder.string(), e.code().message()));
  }
  state_->table.build(state_->entries);
  state_->flags = std::vector<std::atomic<std::uint8_t>>(state_->entries.size());
}

const PackEntry* Pack::find(std::string_view id, std::uint64_t source_name) const {
  return state_->table.find(state_->entries, xxh3(id), source_name);
}
std::span<const PackEntry> Pack::entries() const { return state_->entries; }
bool Pack::live(const PackEntry& entry) const {
  return state_->table.find(state_->entries, entry.key, entry.source.name)->number == entry.number;
}

void Pack::read(const PackEntry& entry, std::span<std::byte> into) const try {
  if (into.size() != entry.bytes)
    throw Error(
        fmt::format("{} has {} bytes, but is read into {}", state_->where(entry), entry.bytes, into.size()));
  const auto copy = [&](std::span<const std::byte> payload) {
    std::memcpy(into.data(), payload.data(), payload.size());
  };
  if (!entry.bytes || state_->take_mapped(entry, copy)) return;
  state_->read_from_file(entry, into);
} catch (const std::system_error& e) {
  throw RecordError(fmt::format("{} cannot be read: {}", state_->where(entry), e.code().message()));
}

void Pack::read_with(const PackEntry& entry, Scratch<std::byte>& scratch, Use use, void* context) const try {
  if (state_->take_mapped(entry, [&](std::span<const std::byte> payload) { use(context, payload); })) return;
  const std::span<std::byte> payload = scratch.of(entry.bytes);
  state_->read_from_file(entry, payload);
  use(context, payload);
} catch (const std::system_error& e) {
  throw RecordError(fmt::format("{} cannot be read: {}", state_->where(entry), e.code().message()));
}

void Pack::will_need(const PackEntry& entry) const { state_->will_need(entry); }

std::string Pack::check(const PackEntry& entry, Scratch<std::byte>& scratch) const {
  const RecordFields fields = fields_of(entry);
  const std::span<std::byte> bytes = scratch.of(fields.end() - fields.at);
  try {
    const std::size_t got = state_->shard(entry).file.read_at(static_cast<std::int64_t>(fields.at), bytes);
    if (got < bytes.size()) return fmt::format("it is cut off: {} bytes of {} are left", got, bytes.size());
  } catch (const std::system_error& e) {
    return fmt::format("it cannot be read: {}", e.code().message());
  }
  return differs(bytes, entry, state_->fingerprint);
}

std::string Pack::id(const PackEntry& entry) const try {
  const RecordFields fields = fields_of(entry);
  std::vector<std::byte> bytes(sizeof(RecordHeader) + entry.id_bytes);
  const std::size_t got = state_->shard(entry).file.read_at(static_cast<std::int64_t>(fields.at), bytes);
  if (got < bytes.size() || parse_record(bytes, state_->fingerprint, fields.at, fields.end()) != fields)
    throw RecordError(
        fmt::format("{} is damaged: its header and the shard's index differ", state_->where(entry)));
  return {reinterpret_cast<const char*>(bytes.data()) + sizeof(RecordHeader), entry.id_bytes};
} catch (const std::system_error& e) {
  throw RecordError(fmt::format("{} cannot be read: {}", state_->where(entry), e.code().message()));
}

std::span<const std::string> Pack::problems() const { return state_->problems; }
std::span<const std::string> Pack::shards() const { return state_->names; }
std::span<const std::string> Pack::damaged_shards() const { return state_->damaged; }
const fs::path& Pack::folder() const { return state_->folder; }

}  // namespace penstock
