#include "penstock/source/manifest.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <system_error>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/core/random.h"
#include "penstock/source/audio_files.h"
#include "penstock/source/layout.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, 12> header_names{"id",       "fileid",   "file_id",      "wavid",
                                                        "wav_id",   "filename", "file_name",    "audio_file",
                                                        "audio_id", "utt_id",   "utterance_id", "clip_id"};

std::string_view trim(std::string_view text) {
  constexpr std::string_view white_space = " \t\r\v\f";
  const std::size_t first = text.find_first_not_of(white_space);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(white_space) - first + 1);
}

struct Line {
  std::string_view text;
  std::int32_t number = 0;
};

/// The lines that are not blank.
std::vector<Line> split_lines(std::string_view text) {
  std::vector<Line> lines;
  for (std::int32_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!trim(line).empty()) lines.push_back({line, number});
  }
  return lines;
}

std::ptrdiff_t bars(std::string_view text) { return std::count(text.begin(), text.end(), '|'); }

bool is_header(std::string_view line) {
  std::string first(trim(line.substr(0, line.find('|'))));
  for (char& c : first) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  return std::find(header_names.begin(), header_names.end(), first) != header_names.end();
}

bool has_normalised_column(std::span<const Line> rows) {
  const auto wide =
      std::count_if(rows.begin(), rows.end(), [](const Line& row) { return bars(row.text) >= 2; });
  return static_cast<std::size_t>(wide) * 2 > rows.size();
}

/// Of the columns behind the id, the one to speak: see read_manifest.
std::string_view spoken_text(std::string_view columns, bool normalised_column) {
  if (!normalised_column || bars(columns) == 0) return columns;
  if (const std::size_t last = columns.rfind('|'); trim(columns.substr(last + 1)).empty())
    return columns.substr(0, last);
  std::size_t at = columns.find('|');
  for (auto raw_fields = (bars(columns) + 2) / 2; raw_fields > 1; --raw_fields)
    at = columns.find('|', at + 1);
  return columns.substr(at + 1);
}

/// `s03` of `s03-000123`.
std::string_view speaker_of(std::string_view stem) {
  const auto is_number = [](std::string_view s) {
    return !s.empty() && s.find_first_not_of("0123456789") == s.npos;
  };
  const std::size_t dash = stem.find('-');
  if (dash == stem.npos || !stem.starts_with('s') || !is_number(stem.substr(1, dash - 1)) ||
      !is_number(stem.substr(dash + 1)))
    return {};
  return stem.substr(0, dash);
}

/// Turns the text of one manifest file into rows.
class Reader {
 public:
  Reader(const Layout& layout, std::int32_t source)
      : name_(shown_path(layout.sources[source].file, layout.root)),
        source_(source),
        validation_(layout.sources[source].validation),
        audio_(layout, layout.sources[source]) {}

  std::vector<ManifestRow> read(std::string_view text) {
    if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
      throw Error(name_ + ": expected UTF-8, but found UTF-16");
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    const std::vector<Line> lines = split_lines(text);
    std::span<const Line> body(lines);
    bool normalised_column = has_normalised_column(body);
    if (!body.empty() && is_header(body[0].text)) {
      normalised_column = header_columns(body[0]) == 3;
      body = body.subspan(1);
    }
    if (body.empty()) throw Error(name_ + ": expected rows of id|text, but found none");
    std::vector<ManifestRow> rows;
    rows.reserve(body.size());
    for (const Line& line : body) rows.push_back(parse(line, normalised_column));
    return rows;
  }

 private:
  [[noreturn]] void fail(const Line& line, std::string_view message) const {
    throw Error(fmt::format("{}:{}: {}", name_, line.number, message));
  }

  [[nodiscard]] std::ptrdiff_t header_columns(const Line& line) const {
    const std::ptrdiff_t columns = bars(line.text) + 1;
    if (columns != 2 && columns != 3)
      fail(line, fmt::format("the header must have 2 or 3 columns, but has {}", columns));
    return columns;
  }

  ManifestRow parse(const Line& line, bool normalised_column) {
    const std::size_t bar = line.text.find('|');
    if (bar == line.text.npos) fail(line, "expected id|text, but found no '|'");
    const std::string_view id = trim(line.text.substr(0, bar));
    if (id.empty()) fail(line, "expected id|text, but the id is empty");
    if (id.find('\0') != id.npos) fail(line, "expected id|text, but the id has a NUL byte in it");
    return {.id = std::string(id),
            .text = std::string(spoken_text(line.text.substr(bar + 1), normalised_column)),
            .path = audio_.find(id),
            .speaker = std::string(speaker_of(split_audio_name(id).stem)),
            .line = line.number,
            .file = source_,
            .validation = validation_};
  }

  std::string name_;
  std::int32_t source_;
  bool validation_;
  AudioFiles audio_;
};

struct Repeat {
  std::size_t first, second;  // row numbers
};

/// The first row that repeats an earlier one's key, among the pairs that `counts` says count. Sorts hashes
/// instead of keeping a table of strings, which would need several times the memory with ten million rows.
template <typename Key, typename Counts>
std::optional<Repeat> first_repeat(std::span<const ManifestRow> rows, const Key& key, const Counts& counts) {
  std::vector<std::pair<std::uint64_t, std::size_t>> hashes(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) hashes[i] = {hash_text(key(rows[i])), i};
  std::sort(hashes.begin(), hashes.end());
  std::optional<Repeat> found;
  for (std::size_t i = 1; i < hashes.size(); ++i) {
    const auto [a, b] = Repeat{hashes[i - 1].second, hashes[i].second};
    if (hashes[i - 1].first != hashes[i].first || key(rows[a]) != key(rows[b]) || !counts(rows[a], rows[b]))
      continue;
    if (!found || b < found->second) found = Repeat{a, b};
  }
  return found;
}

void check_ids(const Layout& layout, std::span<const ManifestRow> rows) {
  const auto repeat = first_repeat(
      rows, [](const ManifestRow& row) -> const std::string& { return row.id; },
      [](const ManifestRow&, const ManifestRow&) { return true; });
  if (!repeat) return;
  const ManifestRow& row = rows[repeat->second];
  throw Error(fmt::format("{}:{}: id '{}' is already in line {}",
                          shown_path(layout.sources[row.file].file, layout.root), row.line, row.id,
                          rows[repeat->first].line));
}

void check_splits(const Layout& layout, std::span<const ManifestRow> rows) {
  const auto leak = first_repeat(
      rows, [](const ManifestRow& row) -> const std::string& { return row.path; },
      [](const ManifestRow& a, const ManifestRow& b) { return a.validation != b.validation; });
  if (!leak) return;
  const auto where = [&](const ManifestRow& row) {
    return fmt::format("{}:{}", shown_path(layout.sources[row.file].file, layout.root), row.line);
  };
  const ManifestRow& row = rows[leak->second];
  throw Error(fmt::format("{}: validation must not use what training uses, but {} of '{}' is also in {}",
                          where(row), row.path, row.id, where(rows[leak->first])));
}

/// Calls read(file) for an open manifest; its errors then say which file it was.
template <typename Read>
auto with_manifest(const std::filesystem::path& path, const Read& read) {
  try {
    return read(File::open(path.c_str()));
  } catch (const std::system_error& e) {
    throw Error(fmt::format("{}: cannot be read: {}", path.string(), e.code().message()));
  }
}

/// The stamp is older than the text or equally old: a file that changes meanwhile is read again next time.
std::pair<FileStamp, std::string> read_stamped(const File& file) {
  const FileStamp stamp = file.stamp();
  std::string text(static_cast<std::size_t>(stamp.size), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return {stamp, std::move(text)};
}

}  // namespace

std::vector<std::pair<std::filesystem::path, FileStamp>> manifest_files(const DatasetPaths& paths) {
  std::vector<std::pair<std::filesystem::path, FileStamp>> files;
  for (const ManifestSource& source : find_layout(paths).sources)
    files.emplace_back(source.file,
                       with_manifest(source.file, [](const File& file) { return file.stamp(); }));
  return files;
}

Manifest read_manifest(const DatasetPaths& paths) {
  const Layout layout = find_layout(paths);
  Manifest manifest;
  manifest.root = layout.root;
  manifest.split_by_id = layout.sources.size() == 1;
  for (std::size_t i = 0; i < layout.sources.size(); ++i) {
    const auto& path = layout.sources[i].file;
    const auto [stamp, text] = with_manifest(path, read_stamped);
    std::vector<ManifestRow> rows = Reader(layout, static_cast<std::int32_t>(i)).read(text);
    check_ids(layout, rows);
    manifest.files.emplace_back(path, stamp);
    std::move(rows.begin(), rows.end(), std::back_inserter(manifest.rows));
  }
  if (manifest.split_by_id)
    for (ManifestRow& row : manifest.rows) row.validation = in_validation(row.id, paths.val_fraction);
  else
    check_splits(layout, manifest.rows);
  return manifest;
}

bool in_validation(std::string_view id, double val_fraction) {
  return in_validation(hash_text(id), val_fraction);
}

bool in_validation(std::uint64_t id_hash, double val_fraction) {
  return static_cast<double>(id_hash >> 11) * 0x1p-53 < val_fraction;
}

}  // namespace penstock
