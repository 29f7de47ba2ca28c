#include "penstock/cache/pack_format.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include <fmt/format.h>
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // XXH3_64bits by what the CPU has; the plain one is compiled for SSE2
#endif

namespace penstock {
namespace {

namespace fs = std::filesystem;

template <typename T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Nothing here may overflow, whatever the numbers are.
bool sensible(const RecordFields& f, std::uint64_t end) {
  if (f.type < ElementType::float32 || f.type > ElementType::int16) return false;
  if (f.rows < 0 || f.columns < 0 || f.id_bytes > RecordHeader::most_id_bytes) return false;
  if (f.at % 64 != 0 || f.at > end || f.bytes > end) return false;
  const auto elements = static_cast<std::uint64_t>(f.rows) * static_cast<std::uint64_t>(f.columns);
  return elements <= f.bytes && f.bytes == elements * element_bytes(f.type) && f.end() <= end;
}

/// The bytes of a file from a place on, which moves forwards mostly.
class Window {
 public:
  explicit Window(const File& file) : file_(file), memory_(std::size_t{1} << 16) {}

  /// `n` bytes, or fewer at the end of the file. They stay until the next call.
  std::span<const std::byte> at(std::uint64_t offset, std::size_t n) {
    if (offset < from_ || offset + n > from_ + size_) {
      from_ = offset;
      size_ = file_.read_at(static_cast<std::int64_t>(offset), memory_);
    }
    const std::span<const std::byte> all(memory_.data(), size_);
    return all.subspan(offset - from_, std::min<std::size_t>(n, size_ - (offset - from_)));
  }

 private:
  const File& file_;
  std::vector<std::byte> memory_;
  std::uint64_t from_ = 0;
  std::size_t size_ = 0;
};

}  // namespace

std::uint64_t xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
std::uint64_t xxh3(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::uint64_t PackIdentity::fingerprint() const { return xxh3(array + '\n' + parameters); }
std::string PackIdentity::folder_name() const { return fmt::format("{}-{:016x}", array, fingerprint()); }

std::string ShardName::text() const { return fmt::format("{:05}.pack{}", number, part ? ".part" : ""); }

std::optional<ShardName> parse_shard_name(std::string_view name) {
  ShardName shard;
  if (std::from_chars(name.data(), name.data() + name.size(), shard.number).ec != std::errc{}) return {};
  for (const bool part : {false, true}) {
    shard.part = part;
    if (shard.text() == name) return shard;
  }
  return {};
}

std::vector<ShardName> find_shards(const fs::path& folder) {
  std::vector<ShardName> shards;
  std::error_code error;
  fs::directory_iterator files(folder, error);
  if (error == std::errc::no_such_file_or_directory) return shards;
  if (error) throw fs::filesystem_error("cannot be listed", folder, error);
  for (const auto& file : files)
    if (const auto shard = parse_shard_name(file.path().filename().native())) shards.push_back(*shard);
  std::ranges::sort(shards);
  return shards;
}

std::vector<std::byte> shard_header(const PackIdentity& identity) {
  const std::string text = identity.array + identity.parameters;
  const std::uint64_t size = aligned_to_64(sizeof(ShardHeader) + text.size());
  if (size > ShardHeader::most_bytes)
    throw Error(fmt::format("{}: a pack's parameters must be at most {} bytes, but are {}",
                            identity.folder_name(), ShardHeader::most_bytes - sizeof(ShardHeader),
                            text.size()));
  ShardHeader header{.header_bytes = static_cast<std::uint32_t>(size),
                     .fingerprint = identity.fingerprint(),
                     .array_bytes = static_cast<std::uint32_t>(identity.array.size()),
                     .parameters_bytes = static_cast<std::uint32_t>(identity.parameters.size())};
  std::vector<std::byte> bytes(size);
  std::memcpy(bytes.data() + sizeof header, text.data(), text.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  header.checksum = xxh3(std::span<const std::byte>(bytes).subspan(checksum_from));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

HeaderFound read_shard_header(const File& file) {
  std::vector<std::byte> bytes(sizeof(ShardHeader));
  if (file.read_at(0, bytes) < bytes.size()) return {};
  const auto header = load<ShardHeader>(bytes);
  if (header.magic != ShardHeader::expected_magic || header.header_bytes < checksum_from + 8 ||
      header.header_bytes > ShardHeader::most_bytes)
    return {};
  bytes.resize(header.header_bytes);
  if (file.read_at(0, bytes) < bytes.size()) return {};
  const std::span<const std::byte> all(bytes);
  if (xxh3(all.subspan(checksum_from)) != header.checksum) return {};
  if (header.version != ShardHeader::expected_version)
    return {.state = HeaderFound::State::newer, .version = header.version};
  if (bytes.size() < sizeof header + std::uint64_t{header.array_bytes} + header.parameters_bytes) return {};
  const std::string_view text = text_of(all.subspan(sizeof header));
  return {.state = HeaderFound::State::good,
          .version = header.version,
          .fingerprint = header.fingerprint,
          .identity = {.array = std::string(text.substr(0, header.array_bytes)),
                       .parameters = std::string(text.substr(header.array_bytes, header.parameters_bytes))}};
}

std::vector<std::byte> shard_end(std::span<const IndexEntry> index, std::uint64_t index_at,
                                 std::uint64_t fingerprint) {
  std::vector<std::byte> bytes(index.size_bytes() + sizeof(ShardFooter));
  ShardFooter footer{.fingerprint = fingerprint,
                     .index_at = index_at,
                     .count = index.size(),
                     .index_checksum = xxh3(std::as_bytes(index)),
                     .file_bytes = index_at + bytes.size()};
  footer.checksum = xxh3(std::as_bytes(std::span(&footer, 1)).subspan(checksum_from));
  std::ranges::copy(std::as_bytes(index), bytes.begin());
  std::memcpy(bytes.data() + index.size_bytes(), &footer, sizeof footer);
  return bytes;
}

std::optional<ShardFooter> read_footer(const File& file, std::uint64_t file_bytes) {
  std::array<std::byte, sizeof(ShardFooter)> bytes{};
  if (file_bytes < bytes.size()) return {};
  if (file.read_at(static_cast<std::int64_t>(file_bytes - bytes.size()), bytes) < bytes.size()) return {};
  const auto footer = load<ShardFooter>(bytes);
  const bool sound = footer.magic == ShardFooter::expected_magic &&
                     footer.checksum == xxh3(std::span<const std::byte>(bytes).subspan(checksum_from)) &&
                     footer.file_bytes == file_bytes && footer.index_at <= file_bytes - sizeof footer &&
                     footer.count == (file_bytes - sizeof footer - footer.index_at) / sizeof(IndexEntry) &&
                     (file_bytes - sizeof footer - footer.index_at) % sizeof(IndexEntry) == 0;
  return sound ? std::optional(footer) : std::nullopt;
}

IndexFound read_index(const File& file, std::uint64_t file_bytes, std::uint64_t fingerprint) {
  const auto footer = read_footer(file, file_bytes);
  if (!footer) return {.problem = "its footer is damaged or cut off"};
  if (footer->fingerprint != fingerprint) return {.problem = "its footer belongs to another pack"};
  IndexFound found{.entries = std::vector<IndexEntry>(footer->count)};
  const auto bytes = std::as_writable_bytes(std::span(found.entries));
  if (file.read_at(static_cast<std::int64_t>(footer->index_at), bytes) < bytes.size() ||
      xxh3(bytes) != footer->index_checksum || !std::ranges::all_of(found.entries, [&](const IndexEntry& e) {
        return sensible(e.fields, footer->index_at);
      }))
    return {.problem = "its index is damaged"};
  return found;
}

std::optional<RecordFields> parse_record(std::span<const std::byte> bytes, std::uint64_t fingerprint,
                                         std::uint64_t at, std::uint64_t end) {
  if (bytes.size() < sizeof(RecordHeader)) return {};
  if (std::memcmp(bytes.data(), RecordHeader::expected_magic.data(), sizeof(Magic)) != 0) return {};
  const auto header = load<RecordHeader>(bytes);
  if (header.fingerprint != fingerprint || header.fields.at != at || !sensible(header.fields, end)) return {};
  const std::size_t size = sizeof header + header.fields.id_bytes;
  if (bytes.size() < size || xxh3(bytes.subspan(checksum_from, size - checksum_from)) != header.checksum)
    return {};
  return header.fields;
}

std::vector<IndexEntry> scan_records(const File& file, std::uint64_t file_bytes, std::uint64_t fingerprint) {
  constexpr std::size_t most = sizeof(RecordHeader) + RecordHeader::most_id_bytes;
  std::vector<IndexEntry> found;
  Window window(file);
  for (std::uint64_t at = 0; at < file_bytes;) {
    const auto bytes = window.at(at, most);
    const auto fields = parse_record(bytes, fingerprint, at, file_bytes);
    if (fields) found.push_back({xxh3(bytes.subspan(sizeof(RecordHeader), fields->id_bytes)), *fields});
    at = fields ? fields->end() : at + 64;
  }
  return found;
}

bool payload_is_whole(const File& file, const RecordFields& fields, Scratch<std::byte>& scratch) {
  const std::span<std::byte> payload = scratch.of(fields.bytes);
  return file.read_at(static_cast<std::int64_t>(fields.payload_at()), payload) == payload.size() &&
         xxh3(payload) == fields.checksum;
}

}  // namespace penstock
