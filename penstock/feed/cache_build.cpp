// `cache build`: the row job with packs as its sink.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "penstock/core/clock.h"
#include "penstock/core/error.h"
#include "penstock/core/threads.h"
#include "penstock/features/half.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/cache_work.h"
#include "penstock/feed/row.h"
#include "penstock/feed/store.h"

namespace penstock {
namespace {

/// One array that is being built.
struct Target {
  StoredArray array;
  std::size_t number = 0;  // 0: mel or pcm, 1: tokens, from 2: extras
  std::unique_ptr<PackWriter> writer;
  std::vector<bool> missing;  // by member
  std::int64_t kept = 0;
};

bool wanted(const CacheBuildOptions& options, std::size_t number) {
  return number == 0 ? options.mel : number == 1 ? options.tokens : options.extras;
}

/// Which members have no record that may be used. Those that a .npy tree has need none.
void find_missing(Target& target, const Dataset& dataset, bool overwrite) {
  const StoreReader store = open_store(target.array, dataset, {.mapped = false});
  target.missing.assign(dataset.members.size(), false);
  target.kept = 0;
  for (std::size_t m = 0; m < dataset.members.size(); ++m) {
    const auto member = static_cast<std::int64_t>(m);
    if (target.array.want(member).rows < 0) continue;
    target.missing[m] = overwrite || !store.record(member);
    target.kept += !target.missing[m];
  }
}

bool is_complete(const Target& target) {
  return std::ranges::find(target.missing, true) == target.missing.end();
}

bool has_leftovers(const std::filesystem::path& folder) {
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(folder, none))
    if (file.path().extension() == ".part") return true;
  return false;
}

/// The arrays that need work, their packs locked and recovered.
std::vector<Target> open_targets(const Config& config, const Dataset& dataset,
                                 const CacheBuildOptions& options, CacheBuildReport& report) {
  std::vector<Target> targets;
  std::vector<StoredArray> arrays = stored_arrays(config, dataset);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!wanted(options, i)) continue;
    Target target{.array = std::move(arrays[i]), .number = i};
    find_missing(target, dataset, options.overwrite);
    report.packs.push_back(target.array.folder);
    if (!is_complete(target) || has_leftovers(target.array.folder)) {
      target.writer = std::make_unique<PackWriter>(
          target.array.folder, target.array.identity,
          PackWriterOptions{.shard_bytes = options.shard_bytes, .wait = options.wait});
      find_missing(target, dataset, options.overwrite);  // now that nobody else writes
    }
    report.kept += target.kept;
    if (!is_complete(target)) targets.push_back(std::move(target));
  }
  return targets;
}

/// A disk that cannot hold the rest is refused before anything is written.
void check_space(const std::vector<Target>& targets, const Dataset& dataset) {
  std::uint64_t need = 0;
  for (const Target& target : targets)
    for (std::size_t m = 0; m < dataset.members.size(); ++m)
      if (target.missing[m])
        need += bytes_on_disk(target.array, target.array.want(static_cast<std::int64_t>(m)));
  if (targets.empty()) return;
  const auto& folder = targets.front().array.folder;
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  if (!error && space.available < need)
    throw Error(
        fmt::format("{}: the cache needs {:.1f} MB more, but the disk has only {:.1f} MB left: free some, "
                    "or put it elsewhere with cache_dir; nothing was written",
                    folder.parent_path().string(), static_cast<double>(need) * 1e-6,
                    static_cast<double>(space.available) * 1e-6));
}

/// What all workers of a build share.
struct Build {
  const Config& config;
  const Dataset& dataset;
  const CacheBuildOptions& options;
  std::vector<Target>& targets;
  std::vector<std::size_t> members;  // that miss something
  CacheBuildReport& report;

  std::atomic<std::size_t> next{0}, done{0};
  std::atomic<std::int64_t> built{0};
  std::mutex progress_mutex, bad_mutex;

  void work(MemberArrays& arrays);
  void add(MemberArrays& arrays, Scratch<std::uint16_t>& halves, std::size_t m);
  void show_progress();
};

void Build::work(MemberArrays& arrays) {
  Scratch<std::uint16_t> halves;
  for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < members.size();) {
    try {
      add(arrays, halves, members[i]);
    } catch (const SampleError& e) {
      if (config.on_bad_sample == OnBadSample::fail) throw;
      const std::lock_guard lock(bad_mutex);
      report.bad.push_back(e);
    }
    done.fetch_add(1, std::memory_order_relaxed);
    show_progress();
  }
}

void Build::add(MemberArrays& arrays, Scratch<std::uint16_t>& halves, std::size_t m) {
  const auto member = static_cast<std::int64_t>(m);
  const Row row = arrays.row(member);
  for (const Target& target : targets) {
    if (!target.missing[m]) continue;
    std::span<const std::byte> payload;
    if (target.array.type == ElementType::int16) {
      payload = std::as_bytes(arrays.job.compute_samples(member));
    } else if (target.number == 0) {
      arrays.job.compute_mel(member, row);
      payload = std::as_bytes(row.mel);
      if (target.array.type == ElementType::float16) {
        const std::span<std::uint16_t> narrow = halves.of(row.mel.size());
        narrow_to_half(row.mel, narrow.data());
        payload = std::as_bytes(narrow);
      }
    } else if (target.number == 1) {
      arrays.job.compute_tokens(member, row);
      payload = std::as_bytes(row.tokens.first(static_cast<std::size_t>(row.token_length)));
    } else {
      arrays.job.compute_extra(target.number - 2, member, row);
      payload = row.extra(target.number - 2);
    }
    const auto want = target.array.want(member);
    target.writer->append({.id = dataset.index.utterance(dataset.members[m]).id,
                           .source = want.source,
                           .type = target.array.type,
                           .rows = want.rows,
                           .columns = want.columns,
                           .payload = payload});
    built.fetch_add(1, std::memory_order_relaxed);
  }
}

void Build::show_progress() {
  const std::unique_lock lock(progress_mutex, std::try_to_lock);
  if (!options.progress || !lock) return;
  std::uint64_t bytes = 0;
  for (const Target& target : targets) bytes += target.writer->bytes_written();
  options.progress(done.load(std::memory_order_relaxed), members.size(), bytes);
}

}  // namespace

void build_only(const std::string& array, Config& config, CacheBuildOptions& options) {
  options.mel = array == "mel" || (array == "pcm" && config.cache_kind != CacheKind::mel);
  options.tokens = array == "tokens";
  options.extras = !options.mel && !options.tokens;
  if (!options.extras) return;
  std::vector<std::string> names{"mel", "tokens"};
  for (const ExtraSource& extra : config.extra) names.push_back(extra.name);
  std::erase_if(config.extra, [&](const ExtraSource& extra) { return extra.name != array; });
  if (config.extra.empty())
    throw Error(fmt::format("only must be one of {}, but is '{}'{}", fmt::join(names, ", "), array,
                            names.size() == 2 ? " (an extra array needs extra NAME=FOLDER as well)" : ""));
}

std::vector<SampleError> known_bad(const Config& config, const Dataset& dataset) {
  std::vector<SampleError> bad;
  for (const std::int64_t number : dataset.problems) {
    const Utterance u = dataset.index.utterance(number);
    bad.emplace_back("index", std::string(u.path), std::string(u.problem), std::string(u.id));
    if (config.on_bad_sample == OnBadSample::fail) throw bad.back();
  }
  return bad;
}

CacheBuildReport build_cache(const Config& given, const Dataset& dataset, const CacheBuildOptions& options) {
  CacheBuildReport report;
  report.kind =
      options.mel ? decide_cache_kind(given, dataset, options.costs) : cache_kind_of(given, dataset);
  Config config = given;
  config.cache_kind = report.kind.kind;
  const auto start = Clock::now();
  std::vector<Target> targets = open_targets(config, dataset, options, report);
  check_space(targets, dataset);

  Build build{.config = config, .dataset = dataset, .options = options, .targets = targets, .report = report};
  for (std::size_t m = 0; m < dataset.members.size(); ++m)
    if (std::ranges::any_of(targets, [&](const Target& t) { return t.missing[m]; }))
      build.members.push_back(m);
  report.utterances = static_cast<std::int64_t>(build.members.size());

  const auto finish = [&] {
    const auto sync = Clock::now();
    for (const Target& target : targets) target.writer->finish();
    report.sync_seconds = seconds_since(sync);
  };
  const Mel mel(config.mel);
  const File root = File::open_folder(dataset.index.root());
  const Stores none;
  const RowInputs inputs{.config = config, .dataset = dataset, .mel = mel, .root = root, .stores = none};
  const int threads = config.num_workers > 0 ? config.num_workers : available_cpus();
  try {
    parallel_for(static_cast<std::size_t>(threads), threads, [&](std::size_t) {
      MemberArrays arrays(inputs);
      try {
        build.work(arrays);
      } catch (...) {
        build.next = build.members.size();  // the others stop as well
        throw;
      }
    });
  } catch (...) {
    try {
      finish();  // whatever ended the build: every record that is complete stays
    } catch (const Error&) {
    }
    throw;
  }
  finish();
  if (options.overwrite)
    for (const Target& target : targets)
      target.writer->rewrite(Pack(target.array.folder, target.array.identity),
                             [](const PackEntry&) { return true; });
  report.built = build.built;
  for (const Target& target : targets) report.bytes += target.writer->bytes_written();
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace penstock
