// Test datasets.
#include "penstock/synth/synth.h"

#include <nanobind/stl/string.h>

#include "penstock/core/threads.h"
#include "python/module.h"

namespace penstock::python {
namespace {

nb::dict synth(const nb::str& folder, std::int64_t clips, const std::string& voice, std::int32_t speakers,
               std::uint64_t seed, const std::string& format, std::int32_t sample_rate,
               const nb::object& listener) {
  const SynthResult r = interruptible(listener, [&, path = utf8(folder)](const Progress& progress) {
    return synthesize(path, {.clips = clips,
                             .seed = seed,
                             .voice = voice,
                             .speakers = speakers,
                             .format = format,
                             .sample_rate = sample_rate,
                             .threads = available_cpus(),
                             .progress = progress.of("speaking")});
  });
  nb::dict seconds, result;
  seconds["min"] = r.min_seconds;
  seconds["mean"] = r.mean_seconds;
  seconds["max"] = r.max_seconds;
  result["clips"] = r.clips;
  result["hours"] = r.hours;
  result["seconds"] = seconds;
  return result;
}

}  // namespace

void bind_synth(nb::module_& m) {
  m.def("synth", &synth, nb::arg("folder"), nb::arg("clips"), nb::arg("voice"), nb::arg("speakers"),
        nb::arg("seed"), nb::arg("format"), nb::arg("sample_rate"), nb::arg("progress").none(),
        nb::sig("def synth(folder: str, clips: int, voice: str, speakers: int, seed: int, format: str, "
                "sample_rate: int, progress: typing.Callable[[str, int, int], object] | None) -> dict[str, "
                "typing.Any]"));
}

}  // namespace penstock::python
