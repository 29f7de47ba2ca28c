#include "penstock/source/index_build.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <unordered_map>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "penstock/core/error.h"
#include "penstock/core/random.h"
#include "penstock/core/threads.h"
#include "penstock/source/layout.h"

namespace penstock {
namespace {

/// How often each character occurs. Most are ASCII, and a table is quicker than a map.
class CharacterCounts {
 public:
  void add(std::u32string_view text) {
    for (const char32_t c : text) ++(c < ascii_.size() ? ascii_[c] : others_[c]);
  }
  void add(const CharacterCounts& counts) {
    for (std::size_t c = 0; c < ascii_.size(); ++c) ascii_[c] += counts.ascii_[c];
    for (const auto& [c, n] : counts.others_) others_[c] += n;
  }
  [[nodiscard]] std::vector<CharacterCount> sorted() const {
    std::vector<CharacterCount> result;
    for (std::uint32_t c = 0; c < ascii_.size(); ++c)
      if (ascii_[c] > 0) result.push_back({c, 0, ascii_[c]});
    for (const auto& [c, n] : std::map(others_.begin(), others_.end())) result.push_back({c, 0, n});
    return result;
  }

 private:
  std::array<std::uint64_t, 128> ascii_{};
  std::unordered_map<char32_t, std::uint64_t> others_;
};

/// The audio headers of an older index, by path.
class KnownAudio {
 public:
  KnownAudio(const std::optional<IndexView>& index, int root) : index_(index), root_(root) {
    if (!index) return;
    for (std::size_t i = 0; i < index->header().utterances; ++i)
      if (const auto record = index->record(i); record && record->audio.samples > 0)
        numbers_.emplace_back(hash_text(index->strings(*record).path), i);
    std::sort(numbers_.begin(), numbers_.end());
  }

  /// The record of a file that has not changed since.
  [[nodiscard]] std::optional<Record> find(const std::string& path) const {
    const std::uint64_t hash = hash_text(path);
    auto at = std::lower_bound(numbers_.begin(), numbers_.end(), std::pair(hash, std::size_t{0}));
    for (; at != numbers_.end() && at->first == hash; ++at) {
      const auto record = index_->record(at->second);
      if (index_->strings(*record).path == path && is_unchanged(path, record->stamp)) return record;
    }
    return {};
  }

 private:
  [[nodiscard]] bool is_unchanged(const std::string& path, const FileStamp& stamp) const {
    struct stat s {};
    if (::fstatat(root_, path.c_str(), &s, 0) != 0 || !S_ISREG(s.st_mode)) return false;
    return stamp == FileStamp{s.st_size, s.st_mtim.tv_sec * 1'000'000'000 + s.st_mtim.tv_nsec};
  }

  const std::optional<IndexView>& index_;
  int root_;
  std::vector<std::pair<std::uint64_t, std::size_t>> numbers_;  // path hash, utterance
};

/// What the rows' files and texts say.
struct Scan {
  explicit Scan(std::size_t rows) : records(rows), problems(rows) {}
  std::vector<Record> records;  // audio, stamp and characters are set
  std::vector<std::string> problems;
  CharacterCounts characters;
};

void read_audio_header(const ManifestRow& row, const File& root, const IndexInputs& inputs, Record& record) {
  const File file = File::open(row.path.c_str(), root.fd());
  record.stamp = file.stamp();
  record.audio = inputs.probe(file, row.path);
  if (record.audio.samples <= 0)
    throw SampleError("decode", row.path, "expected audio, but found no samples");
}

/// A shortage on this machine says nothing about the file, and must not be remembered as its fault.
bool is_shortage(const std::error_code& code) {
  return code == std::errc::too_many_files_open || code == std::errc::too_many_files_open_in_system ||
         code == std::errc::not_enough_memory;
}

/// Sets the record's audio and stamp; returns what is wrong with the file, if anything.
std::string scan_audio(const ManifestRow& row, const File& root, const KnownAudio& known,
                       const IndexInputs& inputs, Record& record) {
  if (const auto old = known.find(row.path)) {
    record.audio = old->audio;
    record.stamp = old->stamp;
    return {};
  }
  try {
    read_audio_header(row, root, inputs, record);
    return {};
  } catch (const std::system_error& e) {
    const SampleError error("read", row.path, e.code().message());
    if (is_shortage(e.code())) throw Error(error.what());
    return error.what();
  } catch (const Error& e) {
    return e.what();
  }
}

/// Counts the text's characters where the row has no problem so far; returns what is wrong with the text, if
/// anything.
std::string scan_text(const ManifestRow& row, const IndexInputs& inputs, bool audio_is_good, Record& record,
                      CharacterCounts& counts) {
  try {
    const std::u32string text = inputs.clean(row.text);
    record.characters = static_cast<std::int32_t>(text.size());
    if (audio_is_good) counts.add(text);
    return text.empty() ? "the text is empty" : "";
  } catch (const Error& e) {
    return e.what();
  }
}

Scan scan_rows(const Manifest& manifest, const IndexInputs& inputs,
               const std::optional<IndexView>& known_index) {
  constexpr std::size_t block = 64;  // rows between two meetings of the threads
  const std::size_t rows = manifest.rows.size();
  const File root = File::open_folder(manifest.root);
  const KnownAudio known(known_index, root.fd());
  Scan scan(rows);
  std::mutex mutex;
  std::size_t done = 0;
  parallel_for((rows + block - 1) / block, inputs.threads, [&](std::size_t b) {
    CharacterCounts counts;
    const std::size_t begin = b * block, end = std::min(begin + block, rows);
    for (std::size_t i = begin; i < end; ++i) {
      const ManifestRow& row = manifest.rows[i];
      std::string& problem = scan.problems[i];
      problem = scan_audio(row, root, known, inputs, scan.records[i]);
      const std::string text_problem = scan_text(row, inputs, problem.empty(), scan.records[i], counts);
      if (problem.empty() && !text_problem.empty())
        problem = fmt::format("{}:{}: {}", shown_path(manifest.files[row.file].first, manifest.root),
                              row.line, text_problem);
    }
    const std::lock_guard lock(mutex);
    scan.characters.add(counts);
    done += end - begin;
    if (inputs.progress) inputs.progress(done, rows);
  });
  return scan;
}

/// Speaker names in the order of their first utterance: appended rows do not renumber the others.
struct Speakers {
  std::int32_t number(const std::string& name) {
    const auto [at, is_new] = numbers.try_emplace(name, static_cast<std::int32_t>(names.size()));
    if (is_new) names.push_back(name);
    return at->second;
  }
  std::vector<std::string> names;
  std::unordered_map<std::string, std::int32_t> numbers;
};

/// Completes the scanned records; their strings will follow each other in row order.
Speakers complete_records(const Manifest& manifest, Scan& scan) {
  Speakers speakers;
  std::uint64_t strings_at = 0;
  for (std::size_t i = 0; i < manifest.rows.size(); ++i) {
    const ManifestRow& row = manifest.rows[i];
    Record& record = scan.records[i];
    record.id_hash = hash_text(row.id);
    record.strings_at = strings_at;
    record.id_size = static_cast<std::uint32_t>(row.id.size());
    record.text_size = static_cast<std::uint32_t>(row.text.size());
    record.path_size = static_cast<std::uint32_t>(row.path.size());
    record.problem_size = static_cast<std::uint32_t>(scan.problems[i].size());
    record.speaker = speakers.number(row.speaker);
    record.line = row.line;
    record.file = static_cast<std::uint16_t>(row.file);
    record.validation = row.validation && !manifest.split_by_id;
    record.checksum = record.compute_checksum();
    strings_at += record.strings_size();
  }
  return speakers;
}

/// The text of names, and where each of them is in it.
struct IndexNames {
  StringPlace add(std::string_view name) {
    const StringPlace place{static_cast<std::uint32_t>(text.size()), static_cast<std::uint32_t>(name.size())};
    text += name;
    return place;
  }
  std::string text;
};

template <typename T>
void append(std::vector<std::byte>& bytes, const std::vector<T>& values) {
  const auto raw = std::as_bytes(std::span(values));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

/// With a NUL behind it.
void append(std::vector<std::byte>& bytes, const std::string& text) {
  const auto raw = std::as_bytes(std::span(text.c_str(), text.size() + 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

std::vector<std::byte> assemble(const Manifest& manifest, const Scan& scan, const Speakers& speakers,
                                IndexHeader header) {
  IndexNames names;
  std::vector<ManifestEntry> manifests;
  for (const auto& [path, stamp] : manifest.files)
    manifests.push_back({names.add(shown_path(path, manifest.root)), stamp});
  std::vector<StringPlace> speaker_places;
  for (const std::string& name : speakers.names) speaker_places.push_back(names.add(name));
  const std::vector<CharacterCount> characters = scan.characters.sorted();

  std::vector<std::byte> bytes(sizeof header);
  append(bytes, manifests);
  append(bytes, speaker_places);
  append(bytes, characters);
  append(bytes, names.text);
  bytes.resize((bytes.size() + 7) / 8 * 8);
  header.records_at = bytes.size();
  header.strings_at = bytes.size() + scan.records.size() * sizeof(Record);
  const Record& last = scan.records.back();
  bytes.reserve(header.strings_at + last.strings_at + last.strings_size());
  append(bytes, scan.records);
  for (std::size_t i = 0; i < manifest.rows.size(); ++i) {
    const ManifestRow& row = manifest.rows[i];
    for (const std::string* text : {&row.id, &row.text, &row.path, &scan.problems[i]}) append(bytes, *text);
  }

  header.file_size = bytes.size();
  header.manifests = manifests.size();
  header.speakers = speaker_places.size();
  header.characters = characters.size();
  header.utterances = scan.records.size();
  header.head_checksum = head_checksum(header, bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

}  // namespace

std::vector<std::byte> build_index(const Manifest& manifest, const IndexInputs& inputs, std::uint64_t key,
                                   const std::optional<IndexView>& known) {
  Scan scan = scan_rows(manifest, inputs, known);
  const Speakers speakers = complete_records(manifest, scan);
  IndexHeader header;
  header.split_by_id = manifest.split_by_id;
  header.key = key;
  header.clean_version = inputs.clean_version;
  return assemble(manifest, scan, speakers, header);
}

}  // namespace penstock
