#include "penstock/source/index_format.h"

#include <cstring>

#include "penstock/core/random.h"

namespace penstock {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Continues a hash. The multiplication is by an odd number and so loses nothing: equal results need equal
/// words.
std::uint64_t hash_on(std::uint64_t h, std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8)
    h = std::rotl((h ^ load<std::uint64_t>(bytes, at)) * 0x9e3779b97f4a7c15u, 29);
  return h;
}

/// Sizes that make sense together; nothing here may overflow, whatever the numbers are.
bool sections_fit(const IndexHeader& h, std::uint64_t file_size) {
  constexpr std::uint64_t many = 1u << 31;
  if (h.file_size != file_size || h.manifests > many || h.speakers > many || h.characters > many)
    return false;
  const std::uint64_t names_at = sizeof(IndexHeader) + h.manifests * sizeof(ManifestEntry) +
                                 h.speakers * sizeof(StringPlace) + h.characters * sizeof(CharacterCount);
  return names_at <= h.records_at && h.records_at <= h.strings_at && h.strings_at < file_size &&
         h.records_at % 8 == 0 && (h.strings_at - h.records_at) % sizeof(Record) == 0 &&
         (h.strings_at - h.records_at) / sizeof(Record) == h.utterances;
}

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes) { return mix(hash_on(bytes.size(), bytes)); }

std::uint64_t head_checksum(const IndexHeader& header, std::span<const std::byte> file) {
  IndexHeader unsigned_header = header;
  unsigned_header.head_checksum = 0;
  const std::uint64_t h = hash_on(header.records_at, std::as_bytes(std::span(&unsigned_header, 1)));
  return mix(hash_on(h, file.subspan(sizeof header, header.records_at - sizeof header)));
}

std::uint64_t Record::compute_checksum() const {
  Record unsigned_record = *this;
  unsigned_record.checksum = 0;
  return hash_bytes(std::as_bytes(std::span(&unsigned_record, 1)));
}

std::optional<IndexView> IndexView::check(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(IndexHeader)) return {};
  const auto header = load<IndexHeader>(bytes, 0);
  if (header.magic != IndexHeader::expected_magic || header.version != IndexHeader::expected_version)
    return {};
  if (!sections_fit(header, bytes.size()) || bytes.back() != std::byte{0}) return {};
  if (head_checksum(header, bytes) != header.head_checksum) return {};
  return IndexView(header, bytes);
}

IndexView::IndexView(const IndexHeader& header, std::span<const std::byte> bytes)
    : header_(header),
      bytes_(bytes),
      speakers_at_(sizeof(IndexHeader) + header.manifests * sizeof(ManifestEntry)),
      characters_at_(speakers_at_ + header.speakers * sizeof(StringPlace)),
      names_at_(characters_at_ + header.characters * sizeof(CharacterCount)) {}

ManifestEntry IndexView::manifest(std::size_t i) const {
  return load<ManifestEntry>(bytes_, sizeof(IndexHeader) + i * sizeof(ManifestEntry));
}

std::string_view IndexView::name(StringPlace place) const {
  return {reinterpret_cast<const char*>(bytes_.data()) + names_at_ + place.at, place.size};
}

std::string_view IndexView::speaker(std::size_t i) const {
  return name(load<StringPlace>(bytes_, speakers_at_ + i * sizeof(StringPlace)));
}

std::span<const CharacterCount> IndexView::characters() const {
  return {reinterpret_cast<const CharacterCount*>(bytes_.data() + characters_at_), header_.characters};
}

std::optional<Record> IndexView::record(std::size_t i) const {
  const auto r = load<Record>(bytes_, header_.records_at + i * sizeof(Record));
  const std::uint64_t available = header_.file_size - header_.strings_at;
  const bool sound = r.compute_checksum() == r.checksum && r.strings_at <= available &&
                     r.strings_size() <= available - r.strings_at && r.speaker >= 0 &&
                     static_cast<std::uint64_t>(r.speaker) < header_.speakers && r.file < header_.manifests;
  return sound ? std::optional(r) : std::nullopt;
}

IndexView::Strings IndexView::strings(const Record& r) const {
  const char* at = reinterpret_cast<const char*>(bytes_.data()) + header_.strings_at + r.strings_at;
  const auto next = [&](std::uint32_t size) {
    const std::string_view s(at, size);
    at += size + 1;
    return s;
  };
  Strings s;
  s.id = next(r.id_size);
  s.text = next(r.text_size);
  s.path = next(r.path_size);
  s.problem = next(r.problem_size);
  return s;
}

}  // namespace penstock
