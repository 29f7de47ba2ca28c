#include "penstock/cache/pack_writer.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <future>
#include <mutex>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "penstock/cache/pack_writing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

RecordHeader header_of(const PackRecord& record, const PackPlace& place) {
  const auto elements = static_cast<std::uint64_t>(record.rows) * static_cast<std::uint64_t>(record.columns);
  if (record.rows < 0 || record.columns < 0 || record.payload.size() != elements * element_bytes(record.type))
    throw Error(
        fmt::format("{}: the payload of \"{}\" must be {} x {} elements of {} bytes, but has {} bytes",
                    place.path.filename().string(), record.id, record.rows, record.columns,
                    element_bytes(record.type), record.payload.size()));
  if (record.id.size() > RecordHeader::most_id_bytes)
    throw Error(fmt::format("{}: an id must be at most {} bytes long, but one has {}",
                            place.path.filename().string(), RecordHeader::most_id_bytes, record.id.size()));
  return {.fingerprint = place.fingerprint,
          .fields = {.source = record.source,
                     .checksum = xxh3(record.payload),
                     .bytes = record.payload.size(),
                     .type = record.type,
                     .rows = record.rows,
                     .columns = record.columns,
                     .id_bytes = static_cast<std::uint32_t>(record.id.size())}};
}

void seal(const PackPlace& place, PartShard& shard) {
  try {
    shard.seal({shard.name().number, false});
  } catch (const std::system_error& e) {
    shard.remove();
    throw cannot_write(place, shard.name(), e.code().value());
  }
}

}  // namespace

struct PackWriter::State {
  PackPlace place;
  PackWriterOptions options;
  std::atomic<std::uint64_t> bytes_written = 0;

  std::mutex mutex;  // of all below
  std::uint64_t next_number = 0;
  std::shared_ptr<PartShard> open;
  std::vector<std::string> sealed;  ///< names of the shards that this writer has made
  std::string failure;              ///< not empty: what every call says from now on
  std::future<void> sealing;        ///< the last member: its destructor waits for what uses the others

  State(PackPlace where, const PackWriterOptions& how)
      : place(std::move(where)), options(how), next_number(recover(place)) {}

  /// Ends the build: what is not sealed goes.
  [[noreturn]] void fail(const std::string& why) {
    failure = why;
    if (open) open->remove();
    open.reset();
    if (sealing.valid())
      sealing.wait();  // it ends sealed or removed, and the first failure is the one to tell
    throw Error(failure);
  }

  void start_sealing() {
    if (sealing.valid()) sealing.get();
    sealed.push_back(ShardName{open->name().number, false}.text());
    sealing = std::async(std::launch::async, [this, shard = std::move(open)] { seal(place, *shard); });
  }

  void remove(std::span<const std::string> shards) {
    const std::lock_guard lock(mutex);
    for (const std::string& name : shards) {
      if (::unlinkat(place.folder.fd(), name.c_str(), 0) != 0 && errno != ENOENT)
        throw Error(
            fmt::format("{}: cannot be removed: {}", (place.path / name).string(), std::strerror(errno)));
      std::erase(sealed, name);
    }
    ::fsync(place.folder.fd());
  }

  void write(const RecordHeader& header, const PackRecord& record) {
    const std::uint64_t bytes = header.fields.end();  // `at` is 0 here
    if (open && !open->empty() && open->sealed_bytes(bytes) > options.shard_bytes) start_sealing();
    ShardName name{open ? open->name().number : next_number, true};
    try {
      if (!open) open = std::make_shared<PartShard>(place, next_number++);
      open->append(header, record.id, record.payload);
      open->start_writeback();
      bytes_written += bytes;
    } catch (const std::system_error& e) {
      throw cannot_write(place, name, e.code().value());
    }
  }
};

PackWriter::PackWriter(const fs::path& folder, const PackIdentity& identity, const PackWriterOptions& options)
    : state_(std::make_unique<State>(take_place(folder, identity, options.wait), options)) {}

PackWriter::~PackWriter() = default;

void PackWriter::append(const PackRecord& record) {
  State& s = *state_;
  const RecordHeader header = header_of(record, s.place);
  const std::lock_guard lock(s.mutex);
  if (!s.failure.empty()) throw Error(s.failure);
  try {
    s.write(header, record);
  } catch (const std::exception& e) {
    s.fail(e.what());
  }
}

void PackWriter::finish() {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (!s.failure.empty()) throw Error(s.failure);
  try {
    if (s.open) s.start_sealing();
    if (s.sealing.valid()) s.sealing.get();
  } catch (const std::exception& e) {
    s.fail(e.what());
  }
}

std::uint64_t PackWriter::bytes_written() const { return state_->bytes_written; }

namespace {

bool is_in(std::span<const std::string> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// What to do with a pack's entries and shards, both by number.
struct RewritePlan {
  std::vector<bool> keep, rewrite;
};

RewritePlan plan_rewrite(const Pack& pack, const std::function<bool(const PackEntry&)>& keep) {
  RewritePlan plan;
  for (const std::string& name : pack.shards()) plan.rewrite.push_back(is_in(pack.damaged_shards(), name));
  for (const PackEntry& entry : pack.entries()) {
    plan.keep.push_back(pack.live(entry) && keep(entry));
    if (!plan.keep.back()) plan.rewrite[entry.shard] = true;
  }
  return plan;
}

/// False for a record that is bad.
bool copy_record(const Pack& pack, const PackEntry& entry, PackWriter& writer, Scratch<std::byte>& scratch) {
  if (!pack.check(entry, scratch).empty()) return false;
  std::string id;
  const std::span<std::byte> payload = scratch.of(entry.bytes);
  try {
    id = pack.id(entry);
    pack.read(entry, payload);
  } catch (const RecordError&) {
    return false;
  }
  writer.append({id, entry.source, entry.type, entry.rows, entry.columns, payload});
  return true;
}

}  // namespace

std::int64_t PackWriter::rewrite(const Pack& pack, const std::function<bool(const PackEntry&)>& keep) {
  State& s = *state_;
  std::error_code error;
  if (!fs::equivalent(pack.folder(), s.place.path, error))
    throw Error(
        fmt::format("rewrite: {} must be the pack in {}", pack.folder().string(), s.place.path.string()));
  const auto seen = [&](const std::string& name) {
    return is_in(pack.shards(), name) || is_in(pack.damaged_shards(), name);
  };
  {
    const std::lock_guard lock(s.mutex);
    if (s.open || !std::ranges::all_of(s.sealed, seen))
      throw Error(fmt::format("rewrite: {} must be opened after the last finish()", pack.folder().string()));
  }

  const RewritePlan plan = plan_rewrite(pack, keep);
  Scratch<std::byte> scratch;
  std::int64_t dropped = 0;
  for (const PackEntry& entry : pack.entries())
    if (plan.rewrite[entry.shard] && !(plan.keep[entry.number] && copy_record(pack, entry, *this, scratch)))
      ++dropped;
  finish();

  std::vector<std::string> old(pack.damaged_shards().begin(), pack.damaged_shards().end());
  for (std::size_t i = 0; i < plan.rewrite.size(); ++i)
    if (plan.rewrite[i]) old.push_back(pack.shards()[i]);
  s.remove(old);
  return dropped;
}

}  // namespace penstock
