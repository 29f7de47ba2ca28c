#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "penstock/core/file.h"
#include "penstock/features/half.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/cache_work.h"
#include "penstock/feed/store.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Kind = CacheFinding::Kind;

void add(CacheCheck& check, CacheFinding finding) {
  std::int64_t* const counts[] = {&check.bad, &check.stale, &check.missing, &check.orphaned};
  ++*counts[static_cast<std::size_t>(finding.kind)];
  check.findings.push_back(std::move(finding));
}

/// A check on its way.
struct Check {
  const Config& config;
  const Dataset& dataset;
  ProgressCounter& progress;
  CacheCheck result;

  void found(Kind kind, const std::string& array, std::string_view id, std::string reason) {
    add(result, {kind, array, std::string(id), std::move(reason)});
  }
};

// ---- packs ----

/// An array's pack and which of its records may stay.
struct CheckedPack {
  const StoredArray& array;
  std::unique_ptr<PackWriter> writer;  ///< held from the check to the end of the repair, or none
  Pack pack;
  std::vector<std::string> damage;  ///< of the live records, by number
  std::vector<bool> keep;           ///< by number
};

CheckedPack open_pack(const StoredArray& array, bool repair) {
  std::unique_ptr<PackWriter> writer;
  if (repair) writer = std::make_unique<PackWriter>(array.folder, array.identity);
  Pack pack(array.folder, array.identity, {.mapped = false});
  const std::size_t size = pack.entries().size();
  return {array, std::move(writer), std::move(pack), std::vector<std::string>(size), std::vector<bool>(size)};
}

void compare_checksums(Check& check, CheckedPack& p) {
  const auto entries = p.pack.entries();
  parallel_with(
      entries.size(), [] { return Scratch<std::byte>(); },
      [&](Scratch<std::byte>& scratch, std::size_t i) {
        if (p.pack.live(entries[i])) p.damage[i] = p.pack.check(entries[i], scratch);
        check.progress.add(entries[i].bytes);
      });
}

std::string shard_name(const CheckedPack& p, const PackEntry& entry) {
  return fmt::format("{}/{}", p.array.folder.filename().string(), p.pack.shards()[entry.shard]);
}

/// What a record should have been made from, for messages.
std::string source_name(const Dataset& dataset, const std::string& array, std::int64_t number) {
  const Utterance u = dataset.index.utterance(number);
  if (is_audio(array)) return std::string(u.path);
  if (array == "tokens") return fmt::format("the text in {}", dataset.index.where(number));
  const auto extra = std::ranges::find(dataset.extras, array, &DatasetExtra::name);
  return extra->tree.path(u.id);
}

/// Why the record is not what this member needs; empty when it is.
std::string why_stale(const Check& check, const CheckedPack& p, const PackEntry& entry, std::int64_t member) {
  const auto wanted = p.array.want(member);
  if (wanted.rows < 0 || usable(entry, p.array, wanted)) return {};
  if (entry.source == wanted.source)
    return fmt::format("{}: its array must have the shape ({}, {}), but has ({}, {})", shard_name(p, entry),
                       wanted.rows, wanted.columns, entry.rows, entry.columns);
  const std::int64_t number = check.dataset.members[static_cast<std::size_t>(member)];
  return fmt::format("{}: was made from another state of {}", shard_name(p, entry),
                     source_name(check.dataset, p.array.identity.array, number));
}

/// The same for an utterance that is no member: of another split, or one that cannot be used now.
std::string why_stale(const CheckedPack& p, const PackEntry& entry, const Utterance& u) {
  if (made_from(u, p.array.identity.array, entry)) return {};
  return fmt::format("{}: was made from another state of its utterance{}{}", shard_name(p, entry),
                     u.problem.empty() ? "" : ", which cannot be used now: ", u.problem);
}

std::string id_of(const Pack& pack, const PackEntry& entry) {
  try {
    return pack.id(entry);
  } catch (const RecordError&) {
    return {};
  }
}

void check_pack(Check& check, CheckedPack& p) {
  compare_checksums(check, p);
  const std::string& array = p.array.identity.array;
  for (const std::string& problem : p.pack.problems())
    check.found(Kind::bad, array, "", fmt::format("{}/{}", p.array.folder.filename().string(), problem));

  std::vector<bool> known(p.keep.size());
  const Dataset& dataset = check.dataset;
  std::size_t m = 0;
  for (std::int64_t number = 0; number < dataset.index.size(); ++number) {
    const Utterance u = dataset.index.utterance(number);
    const bool is_member = m < dataset.members.size() && dataset.members[m] == number;
    const auto member = static_cast<std::int64_t>(is_member ? m++ : 0);
    const PackEntry* entry = p.pack.find(u.id, xxh3(u.path));
    if (!entry) {
      if (is_member && p.array.want(member).rows >= 0)
        check.found(Kind::missing, array, u.id,
                    fmt::format("{} has no record of it", p.array.folder.filename().string()));
      continue;
    }
    known[entry->number] = true;
    ++check.result.checked;
    if (!p.damage[entry->number].empty()) {
      check.found(Kind::bad, array, u.id,
                  fmt::format("{}: {}", shard_name(p, *entry), p.damage[entry->number]));
      continue;
    }
    std::string reason = is_member ? why_stale(check, p, *entry, member) : why_stale(p, *entry, u);
    if (reason.empty())
      p.keep[entry->number] = true;
    else
      check.found(Kind::stale, array, u.id, std::move(reason));
  }
  for (const PackEntry& entry : p.pack.entries()) {
    if (known[entry.number] || !p.pack.live(entry)) continue;
    ++check.result.checked;
    const std::string& damage = p.damage[entry.number];
    check.found(damage.empty() ? Kind::orphaned : Kind::bad, array, id_of(p.pack, entry),
                fmt::format("{}: {}", shard_name(p, entry),
                            damage.empty() ? "belongs to no utterance of the dataset" : damage));
  }
}

// ---- .npy trees ----

struct CheckedTree {
  std::string array;
  const NpyTree& tree;
  bool packed = false;              ///< what is not in the tree belongs into a pack that exists
  std::vector<std::int64_t> again;  ///< members whose file must be written again
};

/// Why the file, which is sound by itself, is not what this member needs; empty when it is.
std::string why_unfit(const Check& check, const CheckedTree& t, std::int64_t member) {
  const Dataset& dataset = check.dataset;
  const NpyHeader& h = t.tree.item(static_cast<std::size_t>(member)).header;
  std::string expected;
  if (t.array == "mel") {
    if (tree_mel(dataset, member, check.config.mel.n_mels)) return {};
    expected = fmt::format("floats with {} bins", check.config.mel.n_mels);
  } else if (t.array == "tokens") {
    if (tree_tokens(dataset, member)) return {};
    expected = "a row of whole numbers";
  } else {
    const DatasetExtra& extra = *std::ranges::find(dataset.extras, t.array, &DatasetExtra::name);
    const auto length = length_along(extra.along, dataset.lengths[static_cast<std::size_t>(member)]);
    if (h.shape[0] * h.shape[1] == std::int64_t{length} * extra.width) return {};
    expected = fmt::format("{} times {} numbers", length, extra.width);
  }
  return fmt::format("must hold {}, but has the shape ({}, {}) of {}", expected, h.shape[0], h.shape[1],
                     npy_type_name(h.type));
}

std::string read_through(const NpyTree& tree, std::size_t member, std::string_view id,
                         Scratch<std::byte>& scratch) {
  try {
    (void)tree.read(member, id, scratch);
    return {};
  } catch (const SampleError& e) {
    return e.cause;
  }
}

void check_files(Check& check, CheckedTree& t) {
  const Dataset& dataset = check.dataset;
  const std::size_t size = dataset.members.size();
  std::vector<std::string> damage(size);
  parallel_with(
      size, [] { return Scratch<std::byte>(); },
      [&](Scratch<std::byte>& scratch, std::size_t m) {
        const NpyItem& item = t.tree.item(m);
        if (item.there && item.problem.empty())
          damage[m] = read_through(t.tree, m, dataset.index.utterance(dataset.members[m]).id, scratch);
        check.progress.add(item.problem.empty() ? item.header.data_bytes() : 0);
      });
  for (std::size_t m = 0; m < size; ++m) {
    const Utterance u = dataset.index.utterance(dataset.members[m]);
    const NpyItem& item = t.tree.item(m);
    if (!item.there && t.packed) continue;
    const auto found = [&](Kind kind, const std::string& reason) {
      check.found(kind, t.array, u.id, fmt::format("{}: {}", t.tree.path(u.id), reason));
      t.again.push_back(static_cast<std::int64_t>(m));
    };
    if (!item.there) {
      found(Kind::missing, "is not there");
      continue;
    }
    ++check.result.checked;
    std::string reason = !item.problem.empty() ? item.problem : damage[m];
    if (reason.empty()) reason = why_unfit(check, t, static_cast<std::int64_t>(m));
    if (!reason.empty())
      found(Kind::bad, reason);
    else if (t.array == "mel" && u.stamp.mtime_ns > item.stamp.mtime_ns)
      found(Kind::stale, fmt::format("is older than {}", u.path));
  }
}

bool lies_below(const fs::path& path, const fs::path& folder) {
  return !folder.empty() &&
         *path.lexically_normal().lexically_relative(folder.lexically_normal()).begin() != "..";
}

/// Files of no utterance, but for those that lie in a tree of their own below this one.
void check_orphans(Check& check, const CheckedTree& t, std::span<const CheckedTree> all) {
  std::vector<std::string_view> ids;
  for (std::int64_t i = 0; i < check.dataset.index.size(); ++i)
    ids.push_back(check.dataset.index.utterance(i).id);
  for (const std::string& id : t.tree.orphans(ids)) {
    const fs::path path = t.tree.path(id);
    if (std::ranges::any_of(all, [&](const CheckedTree& other) {
          return other.tree.folder() != t.tree.folder() && lies_below(other.tree.folder(), t.tree.folder()) &&
                 lies_below(path, other.tree.folder());
        }))
      continue;
    ++check.result.checked;
    check.found(Kind::orphaned, t.array, id,
                fmt::format("{}: belongs to no utterance of the dataset; such files are yours to delete",
                            path.string()));
  }
}

/// What the tree's other files are made of.
NpyType usual_type(const NpyTree& tree, NpyType otherwise, std::span<const NpyType> accepted) {
  for (const NpyItem& item : tree.items())
    if (item.there && item.problem.empty() && std::ranges::find(accepted, item.header.type) != accepted.end())
      return item.header.type;
  return otherwise;
}

void write_mel(const std::string& path, const Row& row, bool bins_first, std::int64_t bins, NpyType type) {
  const std::span<const float> mel = row.mel;
  const std::int64_t frames = static_cast<std::int64_t>(mel.size()) / bins;
  const std::int64_t shape[] = {bins_first ? bins : frames, bins_first ? frames : bins};
  if (type == NpyType::float32) return write_npy(path, type, shape, std::as_bytes(mel));
  if (type == NpyType::float64) {
    const std::vector<double> wide(mel.begin(), mel.end());
    return write_npy(path, type, shape, std::as_bytes(std::span(wide)));
  }
  std::vector<std::uint16_t> halves(mel.size());
  narrow_to_half(mel, halves.data());
  write_npy(path, type, shape, std::as_bytes(std::span(halves)));
}

void write_tokens(const std::string& path, const Row& row, NpyType type) {
  const auto tokens = row.tokens.first(static_cast<std::size_t>(row.token_length));
  const std::int64_t shape[] = {row.token_length};
  if (type == NpyType::int32) return write_npy(path, type, shape, std::as_bytes(tokens));
  const std::vector<std::int64_t> wide(tokens.begin(), tokens.end());
  write_npy(path, type, shape, std::as_bytes(std::span(wide)));
}

using Failures = std::map<std::pair<std::string, std::string>, std::string>;  ///< (array, id): why it stays

/// Writes `t.again` from audio or text, in the type and the layout of the tree's other files. Extras have no
/// source that we know of.
void rewrite_files(const CheckedTree& t, const Config& config, const Dataset& trees,
                   ProgressCounter& progress, Failures& failures) {
  const bool mels = t.array == "mel";
  if (t.again.empty() || (!mels && t.array != "tokens")) return;
  // Without the trees, arrays and lengths come from audio and text.
  Config live = config;
  live.preprocessing_mode = PreprocessingMode::runtime;
  live.extra.clear();
  live.mel.layout = trees.mel_tree_bins_first ? MelLayout::bins_first : MelLayout::frames_first;
  const Dataset dataset = open_dataset(live);
  const Mel mel(live.mel);
  const File root = File::open_folder(dataset.index.root());
  const Stores none;
  const RowInputs inputs{.config = live, .dataset = dataset, .mel = mel, .root = root, .stores = none};
  constexpr NpyType floats[] = {NpyType::float16, NpyType::float32, NpyType::float64};
  constexpr NpyType ints[] = {NpyType::int32, NpyType::int64};
  const NpyType type =
      mels ? usual_type(t.tree, NpyType::float32, floats) : usual_type(t.tree, NpyType::int32, ints);
  std::mutex mutex;
  parallel_with(
      t.again.size(), [&] { return MemberArrays(inputs); },
      [&](MemberArrays& arrays, std::size_t i) {
        const std::int64_t member = t.again[i];
        const std::string id(dataset.index.utterance(dataset.members[static_cast<std::size_t>(member)]).id);
        try {
          if (!is_npy_id(id)) return;
          const Row row = arrays.row(member);
          if (mels) {
            arrays.job.compute_mel(member, row);
            write_mel(t.tree.path(id), row, trees.mel_tree_bins_first, live.mel.n_mels, type);
          } else {
            arrays.job.compute_tokens(member, row);
            write_tokens(t.tree.path(id), row, type);
          }
        } catch (const SampleError& e) {
          const std::lock_guard lock(mutex);
          failures[{t.array, id}] = e.what();
        }
        progress.add(0);
      });
}

// ---- together ----

struct Everything {
  std::vector<StoredArray> arrays;
  std::vector<CheckedPack> packs;
  std::vector<CheckedTree> trees;
};

/// The array whose .npy tree comes before the pack.
std::string_view tree_of(const StoredArray& array) {
  return is_audio(array.identity.array) ? "mel" : std::string_view(array.identity.array);
}

/// `packs` refers to `arrays`; both refer to the dataset.
void open_all(Everything& all, const Config& config, const Dataset& dataset, bool repair) {
  all.arrays = stored_arrays(config, dataset);
  for (const StoredArray& array : all.arrays)
    if (fs::exists(array.folder)) all.packs.push_back(open_pack(array, repair));
  const auto packed = [&](std::string_view array) {
    return std::ranges::any_of(all.packs, [&](const CheckedPack& p) { return tree_of(p.array) == array; });
  };
  if (!dataset.mel_tree.empty()) all.trees.push_back({"mel", dataset.mel_tree, packed("mel")});
  if (!dataset.token_tree.empty()) all.trees.push_back({"tokens", dataset.token_tree, packed("tokens")});
  for (const DatasetExtra& extra : dataset.extras)
    all.trees.push_back({extra.name, extra.tree, packed(extra.name)});
}

CacheCheck check_all(Everything& all, const Config& config, const Dataset& dataset,
                     ProgressCounter& progress) {
  Check check{config, dataset, progress, {}};
  for (const CheckedPack& p : all.packs) progress.expect(p.pack.entries().size());
  progress.expect(all.trees.size() * dataset.members.size());
  for (const StoredArray& array : all.arrays) {
    for (CheckedPack& p : all.packs)
      if (&p.array == &array) check_pack(check, p);
    for (CheckedTree& t : all.trees)
      if (t.array == tree_of(array)) {
        check_files(check, t);
        check_orphans(check, t, all.trees);
      }
  }
  return std::move(check.result);
}

/// A finding's place, whatever is wrong with it.
std::pair<std::string, std::string> place(const CacheFinding& f) {
  return {f.array, f.id.empty() ? f.reason : f.id};
}

/// `before` with what has become of its findings, and with those that came on the way.
CacheCheck compare(CacheCheck before, const CacheCheck& after, const Failures& failures) {
  std::set<std::pair<std::string, std::string>> then, now;
  for (const CacheFinding& f : after.findings) now.insert(place(f));
  for (CacheFinding& f : before.findings) {
    then.insert(place(f));
    f.fixed = !now.contains(place(f));
    before.fixed += f.fixed;
  }
  for (const CacheFinding& f : after.findings)
    if (!then.contains(place(f))) add(before, f);
  for (CacheFinding& f : before.findings)
    if (const auto why = failures.find({f.array, f.id}); !f.fixed && why != failures.end())
      f.reason += fmt::format("; it cannot be made again: {}", why->second);
  return before;
}

}  // namespace

CacheCheck verify_cache(const Config& given, const Dataset& dataset, const CacheVerifyOptions& options) {
  const Config config = with_cache_kind(given, dataset);
  ProgressCounter progress(options.progress);
  CacheBuildOptions missing{.mel = false, .tokens = false, .extras = false, .progress = options.progress};
  Failures failures;
  CacheCheck first;
  {
    Everything all;
    open_all(all, config, dataset, options.fix);
    if (all.packs.empty() && all.trees.empty())
      throw Error(fmt::format(
          "{}: there is no cache of this configuration, nor a tree of .npy files; `penstock cache "
          "build` makes one, `penstock cache list` shows what is there",
          pack_folder(config, dataset).string()));
    first = check_all(all, config, dataset, progress);
    if (!options.fix || first.findings.empty()) return first;
    for (CheckedPack& p : all.packs) {
      const std::string& array = p.array.identity.array;
      (is_audio(array) ? missing.mel : array == "tokens" ? missing.tokens : missing.extras) = true;
      p.writer->rewrite(p.pack, [&](const PackEntry& entry) { return p.keep[entry.number]; });
      p.writer->finish();
    }
    for (const CheckedTree& t : all.trees) {
      progress.expect(t.again.size());
      rewrite_files(t, config, dataset, progress, failures);
    }
  }
  // The trees may have new files now, and what they hold belongs into no pack.
  const Dataset now = open_current_dataset(config);
  Config skipping = config;
  skipping.on_bad_sample = OnBadSample::skip;
  for (const SampleError& e : build_cache(skipping, now, missing).bad)
    for (const StoredArray& array : stored_arrays(config, now))
      failures.emplace(std::pair(array.identity.array, e.utterance), e.what());
  Everything all;
  open_all(all, config, now, false);
  return compare(std::move(first), check_all(all, config, now, progress), failures);
}

}  // namespace penstock
