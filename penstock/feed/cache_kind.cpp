#include "penstock/feed/cache_kind.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/file.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/feed/cache_work.h"
#include "penstock/feed/store.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_measured = 48;

std::string size_text(std::uint64_t bytes) {
  return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6)
                               : fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
}

// ---- measuring ----

Config with_kind(Config config, CacheKind kind) {
  config.cache_kind = kind;
  return config;
}

/// What a build of this kind would write.
std::uint64_t bytes_to_write(const Config& config, CacheKind kind, const Dataset& dataset) {
  const StoredArray array = std::move(stored_arrays(with_kind(config, kind), dataset).front());
  const StoreReader store = open_store(array, dataset, {.mapped = false});
  std::uint64_t bytes = 0;
  for (std::size_t m = 0; m < dataset.members.size(); ++m)
    if (const auto member = static_cast<std::int64_t>(m); !store.record(member))
      bytes += bytes_on_disk(array, array.want(member));
  return bytes;
}

/// Read and decode, and mel, in nanoseconds.
using Times = std::array<std::uint64_t, 2>;

Times time_of(MemberArrays& arrays, std::int64_t member) {
  const auto sums = [&]() -> Times {
    const auto of = [&](Stage stage) { return arrays.clock().nanoseconds(static_cast<std::size_t>(stage)); };
    return {of(Stage::read) + of(Stage::decode), of(Stage::mel)};
  };
  const Times before = sums();
  arrays.job.compute_mel(member, arrays.row(member));
  const Times after = sums();
  return {after[0] - before[0], after[1] - before[1]};
}

/// Up to `most_measured` members that no .npy tree has, spread over the dataset.
std::vector<std::int64_t> members_to_measure(const Config& config, const Dataset& dataset) {
  std::vector<std::int64_t> all, some;
  for (std::size_t m = 0; m < dataset.members.size(); ++m)
    if (!tree_mel(dataset, static_cast<std::int64_t>(m), config.mel.n_mels))
      all.push_back(static_cast<std::int64_t>(m));
  const std::size_t n = std::min(all.size(), most_measured);
  for (std::size_t i = 0; i < n; ++i) some.push_back(all[i * all.size() / n]);
  return some;
}

/// On one thread. Of each sample the better of two goes counts: files come from memory then, as pcm records
/// would, and what else the machine does matters less.
CacheCosts measure(const Config& given, const Dataset& dataset, const fs::path& folder) {
  const Config config = with_kind(given, CacheKind::mel);
  const Mel mel(config.mel);
  const File root = File::open_folder(dataset.index.root());
  const Stores none;
  const RowInputs inputs{.config = config, .dataset = dataset, .mel = mel, .root = root, .stores = none};
  MemberArrays arrays(inputs);
  CacheCosts costs;
  bool warm = false;
  for (const std::int64_t member : members_to_measure(config, dataset)) {
    try {
      if (!std::exchange(warm, true)) time_of(arrays, member);
      const Times one = time_of(arrays, member), two = time_of(arrays, member);
      costs.decode_ms += static_cast<double>(std::min(one[0], two[0])) * 1e-6;
      costs.mel_ms += static_cast<double>(std::min(one[1], two[1])) * 1e-6;
      ++costs.samples;
    } catch (const SampleError&) {
      // The build meets it as well, and knows what to do.
    }
  }
  if (costs.samples > 0) {
    costs.decode_ms /= static_cast<double>(costs.samples);
    costs.mel_ms /= static_cast<double>(costs.samples);
  }
  costs.pcm_bytes = bytes_to_write(config, CacheKind::pcm, dataset);
  costs.mel_bytes = bytes_to_write(config, CacheKind::mel, dataset);
  std::error_code error;
  const auto space = fs::space(folder, error);
  costs.free_bytes = error ? std::numeric_limits<std::uint64_t>::max() : space.available;
  return costs;
}

// ---- the file ----

std::string file_text(const CacheKindChoice& choice, const CacheCosts& c) {
  return fmt::format(
      "# What `cache_kind: auto` means for this dataset. Without this file the next build decides anew.\n"
      "kind: {}\nreason: \"{}\"\nsamples: {}\ndecode_ms: {:.3f}\nmel_ms: {:.3f}\npcm_bytes: {}\n"
      "mel_bytes: {}\nfree_bytes: {}\n",
      choice.kind == CacheKind::pcm ? "pcm" : "mel", choice.reason, c.samples, c.decode_ms, c.mel_ms,
      c.pcm_bytes, c.mel_bytes, c.free_bytes);
}

/// What stands between `before` and the end of its line; none where it is not there.
std::optional<std::string> value_behind(const std::string& text, const std::string& before) {
  const std::size_t at = text.find("\n" + before);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t from = at + 1 + before.size(), to = text.find('\n', from);
  if (to == std::string::npos) return std::nullopt;
  return text.substr(from, to - from);
}

CacheKindChoice parse(const std::string& text, const fs::path& path) {
  const auto kind = value_behind(text, "kind: ");
  const auto reason = value_behind(text, "reason: \"");
  if (!reason || !reason->ends_with('"') || (kind != "mel" && kind != "pcm"))
    throw Error(fmt::format(
        "{}: must say which cache_kind was chosen for this dataset (kind: mel or pcm, and the reason), but "
        "does "
        "not: name the kind yourself with cache_kind, or remove the file, and the next build decides anew",
        path.string()));
  return {.kind = kind == "pcm" ? CacheKind::pcm : CacheKind::mel,
          .reason = reason->substr(0, reason->size() - 1)};
}

std::optional<CacheKindChoice> kept_choice(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error) && !error) return std::nullopt;
  return parse(read_text(path), path);
}

/// Makes the folder, and has it to itself for as long as the file is open. Where the file system has no
/// locks, two builds may both measure; the later one's word counts.
File locked_folder(const fs::path& folder) {
  try {
    fs::create_directories(folder);
    File file = File::open_folder(folder);
    while (::flock(file.fd(), LOCK_EX) != 0 && errno == EINTR) {
    }
    return file;
  } catch (const std::system_error& e) {
    throw Error(fmt::format("{}: cannot be written: {}", folder.string(), e.code().message()));
  }
}

}  // namespace

CacheKindChoice choose_cache_kind(const CacheCosts& c) {
  if (c.samples == 0) return {.reason = "mel: no sample could be measured", .final = false};
  // A margin for what there is a choice about; mels that just fit are better than no cache.
  const bool pcm_fits = c.pcm_bytes + c.pcm_bytes / 8 <= c.free_bytes, mel_fits = c.mel_bytes <= c.free_bytes;
  const bool decoding_dominates = c.decode_ms >= 0.75 * (c.decode_ms + c.mel_ms);
  const std::string work =
      fmt::format("decoding takes {}{:.2f} of {:.2f} ms a sample", decoding_dominates ? "" : "only ",
                  c.decode_ms, c.decode_ms + c.mel_ms);
  const std::string free = fmt::format("({} free)", size_text(c.free_bytes));
  const std::string pcm = size_text(c.pcm_bytes), mel = size_text(c.mel_bytes);
  if (decoding_dominates && pcm_fits)
    return {CacheKind::pcm, fmt::format("pcm: {}, and {} fit {}", work, pcm, free)};
  if (!mel_fits && pcm_fits)
    return {CacheKind::pcm, fmt::format("pcm: {}, but mels of {} do not fit {}", work, mel, free)};
  if (!mel_fits)
    return {.reason = fmt::format("mel: neither {} of samples nor {} of mels fit {}", pcm, mel, free),
            .final = false};
  if (decoding_dominates)
    return {CacheKind::mel, fmt::format("mel: {}, but {} of samples do not fit {}", work, pcm, free)};
  return {CacheKind::mel, fmt::format("mel: {}", work)};
}

fs::path cache_kind_file(const Config& config, const Dataset& dataset) {
  return pack_folder(config, dataset) / "cache_kind.yaml";
}

CacheKindChoice cache_kind_of(const Config& config, const Dataset& dataset) {
  if (config.cache_kind != CacheKind::automatic) return {.kind = config.cache_kind};
  return kept_choice(cache_kind_file(config, dataset))
      .value_or(CacheKindChoice{.reason = "mel: nothing is decided before a cache is built", .final = false});
}

Config with_cache_kind(Config config, const Dataset& dataset) {
  config.cache_kind = cache_kind_of(config, dataset).kind;
  return config;
}

CacheKindChoice decide_cache_kind(const Config& config, const Dataset& dataset,
                                  const std::optional<CacheCosts>& given) {
  CacheKindChoice known = cache_kind_of(config, dataset);
  if (known.final) return known;
  const fs::path path = cache_kind_file(config, dataset);
  const File lock = locked_folder(path.parent_path());
  if (auto kept = kept_choice(path)) return *kept;  // by another build, meanwhile
  const CacheCosts costs = given ? *given : measure(config, dataset, path.parent_path());
  CacheKindChoice choice = choose_cache_kind(costs);
  if (choice.final) write_file(path, file_text(choice, costs));
  return choice;
}

}  // namespace penstock
