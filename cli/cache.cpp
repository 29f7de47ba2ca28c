// penstock cache: build, verify, export, list and prune a dataset's caches.
#include "penstock/feed/cache.h"

#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/pack_table.h"
#include "cli/terminal.h"
#include "penstock/core/error.h"
#include "penstock/feed/report.h"
#include "penstock/feed/store.h"

namespace penstock::cli {
namespace {

/// What the five commands have in common.
struct CacheArguments {
  std::unique_ptr<ConfigFlags> flags;
  Option split;
  bool json = false;

  std::string only;  // build
  bool overwrite = false;
  std::int64_t shard_mib = 1024;
  bool fix = false;  // verify
  Option npy;        // export
  std::string npy_folder, output;
  double unused_days = 30;  // prune
  bool yes = false;
};

/// The settings, of both splits unless one was asked for. Nothing after --print-config.
std::optional<Config> load(const CacheArguments& a) {
  if (!a.split.given()) a.flags->set("split", "all", "a cache holds all splits");
  Config config;
  if (!a.flags->load(config)) return std::nullopt;
  return config;
}

Dataset open(const Config& config) {
  ProgressBar progress("indexing");
  Dataset dataset = open_current_dataset(
      config, {.progress = [&](std::size_t done, std::size_t total) { progress.update(done, total); }});
  progress.clear();
  if (!dataset.index.note().empty()) fmt::print(stderr, "note: {}\n", dataset.index.note());
  for (const std::string& note : dataset.notes) fmt::print(stderr, "note: {}\n", note);
  return dataset;
}

CacheProgress shown_by(ProgressBar& bar) {
  return [&bar](std::size_t done, std::size_t total, std::uint64_t bytes) { bar.update(done, total, bytes); };
}

void print_bad(const std::vector<SampleError>& bad) {
  for (const SampleError& e : bad) fmt::print("left out {}: {}\n", e.utterance, e.what());
}

// ---- build ----

void print_build(const CacheBuildReport& r, const std::filesystem::path& folder) {
  if (r.built == 0)
    return fmt::print("nothing to do: {} already in {}\n", count_text(r.kept, "record"), folder.string());
  fmt::print("built {} of {} ({}) in {:.1f} s: {:.0f} utterances/s{}\n", count_text(r.built, "record"),
             count_text(r.utterances, "utterance"), bytes_text(r.bytes), r.seconds, r.rate(),
             r.sync_seconds >= 0.05 ? fmt::format(", the disk took {:.1f} s more", r.sync_seconds) : "");
  std::vector<std::string> names;
  for (const auto& pack : r.packs) names.push_back(pack.filename().string());
  fmt::print("{} kept; {} in {}\n", r.kept, fmt::join(names, ", "), folder.string());
}

/// Where `cache_kind: auto` had something to decide.
void print_kind(const CacheKindChoice& choice) {
  if (!choice.reason.empty()) fmt::print("cache_kind auto is {}\n", choice.reason);
}

int build(const CacheArguments& a) {
  auto config = load(a);
  if (!config) return 0;
  CacheBuildOptions options{.overwrite = a.overwrite,
                            .shard_bytes = static_cast<std::uint64_t>(a.shard_mib) << 20};
  if (!a.only.empty()) build_only(a.only, *config, options);
  const Dataset dataset = open(*config);
  const std::vector<SampleError> unusable = known_bad(*config, dataset);
  ProgressBar bar("caching");
  options.progress = shown_by(bar);
  CacheBuildReport report;
  try {
    report = build_cache(*config, dataset, options);
  } catch (const Interrupted&) {
    bar.clear();
    fmt::print(stderr, "what was built so far stays; the same command goes on from there\n");
    throw;
  }
  bar.clear();
  report.bad.insert(report.bad.begin(), unusable.begin(), unusable.end());
  if (a.json) {
    print_json(build_json(report));
    return 0;
  }
  print_build(report, pack_folder(*config, dataset));
  print_kind(report.kind);
  print_bad(report.bad);
  return 0;
}

// ---- verify ----

void print_check(const CacheCheck& c, bool fix) {
  for (const CacheFinding& f : c.findings)
    fmt::print("{:<8} {:<6} {}{}{}\n", kind_name(f.kind), f.array, f.id, f.id.empty() ? "" : ": ",
               f.reason + (f.fixed ? " (fixed)" : ""));
  const std::int64_t found = c.bad + c.stale + c.missing + c.orphaned;
  if (found == 0) return fmt::print("{} checked: all good\n", count_text(c.checked, "array"));
  fmt::print("{} checked: {} bad, {} stale, {} missing, {} orphaned", count_text(c.checked, "array"), c.bad,
             c.stale, c.missing, c.orphaned);
  if (fix)
    fmt::print("; {} fixed, {} left\n", c.fixed, found - c.fixed);
  else
    fmt::print("; `penstock cache verify --fix` repairs\n");
}

int verify(const CacheArguments& a) {
  const auto config = load(a);
  if (!config) return 0;
  const Dataset dataset = open(*config);
  ProgressBar bar("checking");
  const CacheCheck check = verify_cache(*config, dataset, {.fix = a.fix, .progress = shown_by(bar)});
  bar.clear();
  if (a.json)
    print_json(check_json(check));
  else
    print_check(check, a.fix);
  return check.clean() ? 0 : 1;
}

// ---- export ----

int export_arrays(const CacheArguments& a) {
  const auto config = load(a);
  if (!config) return 0;
  const std::string out = a.npy_folder.empty() ? a.output : a.npy_folder;
  if (!a.npy.given() || out.empty())
    throw Error(
        "export as what, and to where? `penstock cache export DIR --npy OUT` writes OUT/mels/<id>.npy and "
        "OUT/tokens/<id>.npy");
  const Dataset dataset = open(*config);
  const std::vector<SampleError> unusable = known_bad(*config, dataset);
  ProgressBar bar("exporting");
  CacheExportReport report = export_npy(*config, dataset, out, shown_by(bar));
  bar.clear();
  report.bad.insert(report.bad.begin(), unusable.begin(), unusable.end());
  if (a.json) {
    print_json(export_json(report, out));
    return 0;
  }
  fmt::print("{} ({}) written to {}\n", count_text(report.arrays, "array"), bytes_text(report.bytes), out);
  print_bad(report.bad);
  return 0;
}

// ---- list and prune ----

int list(const CacheArguments& a) {
  const auto config = load(a);
  if (!config) return 0;
  const Dataset dataset = open(*config);
  if (a.json) {
    print_json(packs_json(*config, dataset));
    return 0;
  }
  print_kind(cache_kind_of(*config, dataset));
  const std::filesystem::path folder = pack_folder(*config, dataset);
  const std::vector<ListedPack> packs = listed_packs(*config, dataset);
  if (packs.empty()) {
    fmt::print("no packs in {}; `penstock cache build` makes them\n", folder.string());
    return 0;
  }
  fmt::print("{} in {} (* used by this configuration)\n",
             count_text(static_cast<std::int64_t>(packs.size()), "pack"), folder.string());
  print_packs(packs);
  return 0;
}

int prune(const CacheArguments& a) {
  const auto config = load(a);
  if (!config) return 0;
  const Dataset dataset = open(*config);
  const auto items = prune_cache(*config, dataset, {.remove = a.yes, .unused_days = a.unused_days});
  if (a.json) {
    print_json(prune_json(items, a.yes));
    return 0;
  }
  std::uint64_t bytes = 0;
  for (const PruneItem& item : items) bytes += item.bytes;
  for (const PruneItem& item : items)
    fmt::print("{} ({}): {}\n", item.path.string(), bytes_text(item.bytes), item.reason);
  if (items.empty())
    fmt::print("nothing to prune\n");
  else
    fmt::print("{} {}{}\n", bytes_text(bytes), a.yes ? "pruned" : "to prune",
               a.yes ? "" : "; nothing was changed: --yes does it");
  return 0;
}

// ---- flags ----

/// A subcommand with the flags that all of them have.
Command add(const Command& cache, Action& action, const std::shared_ptr<CacheArguments>& a,
            const std::string& name, const std::string& help, int (*run)(const CacheArguments&)) {
  const Command c = cache.add_command(name, help);
  a->flags = std::make_unique<ConfigFlags>(c);
  a->split = c.option("--split");
  c.add_flag("--json", a->json, "the result for programs");
  c.runs(action, [a, run] { return run(*a); });
  return c;
}

}  // namespace

void add_cache(const Command& app, Action& action) {
  const Command cache =
      app.add_command("cache", "build, check, repair, export and clean up what is computed once");
  cache.require_command();
  cache.footer(
      "Examples:\n  penstock cache build data/en\n  penstock cache verify data/en --fix\n"
      "Each command has a --help of its own; results for programs with --json.");
  const auto make = [] { return std::make_shared<CacheArguments>(); };

  auto a = make();
  Command c = add(cache, action, a, "build",
                  "compute mels and tokens once, in parallel; builds what is missing", build);
  c.add_option("--only", a->only, "mel (or pcm), tokens or the name of an extra array").type_name("ARRAY");
  c.add_flag("--overwrite", a->overwrite, "build every record again");
  c.add_option("--shard-mib", a->shard_mib, "size of a shard file").range(1, 1 << 20).show_default();
  c.footer(
      "Stopped at any moment, the next build goes on from there.\nExamples:\n  penstock cache build data/en\n"
      "  penstock cache build data/en --cache-type float16 --only mel");

  a = make();
  c = add(cache, action, a, "verify", "check every record and every .npy file against the dataset", verify);
  c.add_flag("--fix", a->fix, "drop what is bad, stale or orphaned and build what is missing");
  c.footer(
      "Exit code 1 when something is wrong (with --fix: still wrong).\nExamples:\n  penstock cache verify "
      "data/en\n"
      "  penstock cache verify data/en --fix --json");

  a = make();
  c = add(cache, action, a, "export", "write what the feed would deliver as .npy files", export_arrays);
  a->npy = c.add_option("--npy", a->npy_folder, "OUT/mels/<id>.npy, OUT/tokens/<id>.npy")
               .type_name("OUT")
               .expected(0, 1);
  c.add_option("--output", a->output, "the folder, where --npy has none").type_name("OUT");
  c.footer(
      "Examples:\n  penstock cache export data/en --npy features\n"
      "  penstock cache export data/en --npy features --cache-type float16 --mel-layout bins_first");

  a = make();
  c = add(cache, action, a, "list", "the packs of a dataset: parameters, size, age", list);
  c.footer("Examples:\n  penstock cache list data/en\n  penstock cache list data/en --json");

  a = make();
  c = add(cache, action, a, "prune", "remove what is stale or unused; says what, and does it with --yes",
          prune);
  c.add_option("--unused-days", a->unused_days,
               "other configurations' packs that no feed has opened for so long go")
      .range(0.0, 1e6)
      .show_default();
  c.add_flag("--yes", a->yes, "do it");
  c.footer("Examples:\n  penstock cache prune data/en\n  penstock cache prune data/en --unused-days 7 --yes");
}

}  // namespace penstock::cli
