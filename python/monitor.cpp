// A run's log: what the machine does goes into it, and what it says comes out.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "penstock/monitor/diagnosis_json.h"
#include "penstock/monitor/run_reader.h"
#include "penstock/monitor/system_log.h"
#include "python/module.h"

namespace penstock::python {
namespace {

struct Samples {
  RunLog log;
  SystemLog thread;
  explicit Samples(const std::string& run) : log(run), thread(log) {}
};
using SystemSamples = OfThisProcess<Samples>;

/// The last step and epoch; (0, -1) where there is none.
std::pair<std::int64_t, std::int64_t> last_step(const nb::str& run) {
  std::pair<std::int64_t, std::int64_t> last(0, -1);
  const std::string folder = utf8(run);
  const WithoutGil released;
  for (const StepRecord& step : read_run(folder).steps)
    last = {std::max(last.first, step.step), std::max(last.second, step.epoch)};
  return last;
}

std::string diagnose_run(const nb::str& run) {
  const std::string folder = utf8(run);
  const WithoutGil released;
  return diagnosis_json(diagnose(read_run(folder)));
}

}  // namespace

void bind_monitor(nb::module_& m) {
  nb::class_<SystemSamples>(m, "SystemSamples",
                            "While it is open, samples of the machine go into a run's log.")
      .def(
          "__init__",
          [](SystemSamples* self, const nb::str& run) {
            new (self) SystemSamples(std::make_unique<Samples>(utf8(run)));
          },
          nb::arg("run"))
      .def("close", &SystemSamples::drop);
  m.def("last_step", &last_step, nb::arg("run"), "The last step and epoch of a run's log; (0, -1): none.");
  m.def("diagnose_run", &diagnose_run, nb::arg("run"), "What `penstock diagnose --run RUN --json` says.");
}

}  // namespace penstock::python
