#include <array>
#include <atomic>
#include <unordered_map>

#include <fmt/format.h>

#include "penstock/features/half.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/cache_work.h"
#include "penstock/feed/store.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Where one thread's arrays go.
struct Exporter {
  const RowInputs& inputs;
  const fs::path& out;
  MemberArrays arrays{inputs};
  std::vector<std::uint16_t> halves;
  std::uint64_t bytes = 0;

  void write(const std::string& array, std::string_view id, NpyType type, std::span<const std::int64_t> shape,
             std::span<const std::byte> data) {
    write_npy(out / array / fmt::format("{}.npy", id), type, shape, data);
    bytes += data.size();
  }

  void write_mel(std::string_view id, const Row& row) {
    const MelOptions& mel = inputs.config.mel;
    std::array<std::int64_t, 2> shape{row.mel_length, mel.n_mels};
    if (mel.layout == MelLayout::bins_first) std::swap(shape[0], shape[1]);
    if (inputs.config.cache_type == CacheType::float32)
      return write("mels", id, NpyType::float32, shape, std::as_bytes(row.mel));
    halves.resize(row.mel.size());
    narrow_to_half(row.mel, halves.data());
    write("mels", id, NpyType::float16, shape, std::as_bytes(std::span(halves)));
  }

  void write_tokens(std::string_view id, const Row& row) {
    const std::array<std::int64_t, 1> shape{row.token_length};
    write("tokens", id, NpyType::int32, shape, std::as_bytes(row.tokens));
  }

  /// With as many dimensions as the file it came from.
  void write_extra(std::string_view id, std::size_t i, std::size_t member, const Row& row) {
    const DatasetExtra& extra = inputs.dataset.extras[i];
    const NpyHeader& header = extra.tree.item(member).header;
    const auto elements = static_cast<std::int64_t>(row.extra(i).size() / element_bytes(extra.type));
    std::array<std::int64_t, 2> shape{elements / extra.width, extra.width};
    if (extra.along == Along::nothing) shape = header.shape;
    if (header.dimensions == 1) shape = {elements, 1};
    const NpyType type = extra.type == ElementType::int32 ? NpyType::int32 : NpyType::float32;
    write(extra.name, id, type, std::span(shape).first(static_cast<std::size_t>(header.dimensions)),
          row.extra(i));
  }

  void write_member(std::size_t member) {
    const Dataset& dataset = inputs.dataset;
    const std::string_view id = dataset.index.utterance(dataset.members[member]).id;
    if (!is_npy_id(id))
      throw Error(
          fmt::format("{}: cannot be exported: an id that leads out of the folder has no file there", id));
    const Row row = arrays.row(static_cast<std::int64_t>(member));
    arrays.job.fill(static_cast<std::int64_t>(member), row);
    write_mel(id, row);
    write_tokens(id, row);
    for (std::size_t i = 0; i < dataset.extras.size(); ++i) write_extra(id, i, member, row);
  }
};

/// Splits may use the same ids; files in a folder cannot.
void check_ids(const Dataset& dataset) {
  std::unordered_map<std::string_view, std::int64_t> seen;
  for (const std::int64_t number : dataset.members)
    if (const auto [at, is_new] = seen.emplace(dataset.index.utterance(number).id, number); !is_new)
      throw Error(
          fmt::format("{} is the id of two utterances ({} and {}): export each split to a folder of its own "
                      "(--split train, --split val)",
                      at->first, dataset.index.where(at->second), dataset.index.where(number)));
}

}  // namespace

CacheExportReport export_npy(const Config& given, const Dataset& dataset, const fs::path& out,
                             const CacheProgress& progress) {
  const Config config = with_cache_kind(given, dataset);
  check_ids(dataset);
  const Stores stores = open_stores(config, dataset);
  const Mel mel(config.mel);
  const File root = File::open_folder(dataset.index.root());
  const RowInputs inputs{.config = config,
                         .dataset = dataset,
                         .mel = mel,
                         .root = root,
                         .stores = stores,
                         .damaged = [](std::int64_t, const std::string&) {}};
  ProgressCounter counter(progress);
  counter.expect(dataset.members.size());
  std::atomic<std::int64_t> arrays{0};
  std::atomic<std::uint64_t> bytes{0};
  std::mutex mutex;
  CacheExportReport report;
  parallel_with(
      dataset.members.size(),
      [&] {
        return Exporter{inputs, out};
      },
      [&](Exporter& exporter, std::size_t member) {
        const std::uint64_t before = exporter.bytes;
        try {
          exporter.write_member(member);
          arrays += static_cast<std::int64_t>(2 + dataset.extras.size());
        } catch (const SampleError& e) {
          if (config.on_bad_sample == OnBadSample::fail) throw;
          const std::lock_guard lock(mutex);
          report.bad.push_back(e);
        }
        bytes += exporter.bytes - before;
        counter.add(exporter.bytes - before);
      });
  report.arrays = arrays;
  report.bytes = bytes;
  return report;
}

}  // namespace penstock
