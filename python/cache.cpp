// Work on a dataset's caches.
#include "penstock/feed/cache.h"

#include <nanobind/stl/string.h>
#include <nlohmann/json.hpp>

#include "penstock/feed/report.h"
#include "python/module.h"

namespace penstock::python {
namespace {

using nlohmann::json;

/// `work(config, dataset, progress)` on the dataset as it is on disk now; its result as Python has it.
template <typename Work>
nb::object on_dataset(const Config& config, const nb::object& listener, const Work& work) {
  return python_of(interruptible(listener, [&](const Progress& progress) -> json {
    const Dataset dataset = open_current_dataset(config, {.progress = progress.of("indexing")});
    return work(dataset, progress);
  }));
}

nb::object build(const Settings& settings, const std::string& only, bool overwrite, std::int64_t shard_mib,
                 const nb::object& listener) {
  if (shard_mib < 1 || shard_mib > 1 << 20) throw Error("shard_mib must be from 1 to 1048576");
  Config config = settings.config;
  CacheBuildOptions options{.overwrite = overwrite,
                            .shard_bytes = static_cast<std::uint64_t>(shard_mib) << 20};
  if (!only.empty()) build_only(only, config, options);
  return on_dataset(config, listener, [&](const Dataset& dataset, const Progress& progress) {
    const auto unusable = known_bad(config, dataset);
    options.progress = progress.of("caching");
    CacheBuildReport report = build_cache(config, dataset, options);
    report.bad.insert(report.bad.begin(), unusable.begin(), unusable.end());
    return build_json(report);
  });
}

nb::object verify(const Settings& settings, bool fix, const nb::object& listener) {
  return on_dataset(settings.config, listener, [&](const Dataset& dataset, const Progress& progress) {
    return check_json(
        verify_cache(settings.config, dataset, {.fix = fix, .progress = progress.of("checking")}));
  });
}

nb::object export_arrays(const Settings& settings, const nb::str& out, const nb::object& listener) {
  return on_dataset(
      settings.config, listener, [&, folder = utf8(out)](const Dataset& dataset, const Progress& progress) {
        const auto unusable = known_bad(settings.config, dataset);
        CacheExportReport report = export_npy(settings.config, dataset, folder, progress.of("exporting"));
        report.bad.insert(report.bad.begin(), unusable.begin(), unusable.end());
        return export_json(report, folder);
      });
}

nb::object list(const Settings& settings, const nb::object& listener) {
  return on_dataset(settings.config, listener, [&](const Dataset& dataset, const Progress&) {
    return packs_json(settings.config, dataset);
  });
}

nb::object prune(const Settings& settings, bool remove, double unused_days, const nb::object& listener) {
  if (!(unused_days >= 0 && unused_days <= 1e6)) throw Error("unused_days must be from 0 to 1000000");
  return on_dataset(settings.config, listener, [&](const Dataset& dataset, const Progress&) {
    return prune_json(prune_cache(settings.config, dataset, {.remove = remove, .unused_days = unused_days}),
                      remove);
  });
}

}  // namespace

#define PENSTOCK_SIGNATURE(name, arguments)             \
  nb::sig("def " name "(settings: Settings, " arguments \
          "progress: typing.Callable[[str, int, int], object] | None) -> dict[str, typing.Any]")

void bind_cache(nb::module_& m) {
  m.def("cache_build", &build, nb::arg("settings"), nb::arg("only"), nb::arg("overwrite"),
        nb::arg("shard_mib"), nb::arg("progress").none(),
        PENSTOCK_SIGNATURE("cache_build", "only: str, overwrite: bool, shard_mib: int, "));
  m.def("cache_verify", &verify, nb::arg("settings"), nb::arg("fix"), nb::arg("progress").none(),
        PENSTOCK_SIGNATURE("cache_verify", "fix: bool, "));
  m.def("cache_export", &export_arrays, nb::arg("settings"), nb::arg("out"), nb::arg("progress").none(),
        PENSTOCK_SIGNATURE("cache_export", "out: str, "));
  m.def("cache_list", &list, nb::arg("settings"), nb::arg("progress").none(),
        PENSTOCK_SIGNATURE("cache_list", ""));
  m.def("cache_prune", &prune, nb::arg("settings"), nb::arg("remove"), nb::arg("unused_days"),
        nb::arg("progress").none(), PENSTOCK_SIGNATURE("cache_prune", "remove: bool, unused_days: float, "));
}
#undef PENSTOCK_SIGNATURE

}  // namespace penstock::python
