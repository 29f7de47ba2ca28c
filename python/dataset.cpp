// What a dataset holds.
#include "penstock/feed/dataset.h"

#include <nlohmann/json.hpp>

#include "penstock/feed/report.h"
#include "python/module.h"

namespace penstock::python {

void bind_dataset(nb::module_& m) {
  m.def(
      "info",
      [](const Settings& settings, bool rescan, const nb::object& listener) {
        return python_of(interruptible(listener, [&](const Progress& progress) {
          const Config& config = settings.config;
          const Dataset dataset =
              open_dataset(config, {.rescan = rescan, .progress = progress.of("indexing")});
          return info_json(dataset, config, describe(dataset, config));
        }));
      },
      nb::arg("settings"), nb::arg("rescan"), nb::arg("progress").none(),
      nb::sig(
          "def info(settings: Settings, rescan: bool, progress: typing.Callable[[str, int, int], object] | "
          "None) -> dict[str, typing.Any]"));
}

}  // namespace penstock::python
