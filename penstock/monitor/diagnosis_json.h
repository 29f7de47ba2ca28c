// A run's judgement as JSON: what `diagnose --run --json` prints and Python's Monitor.report() holds.
#pragma once
#include <string>

#include "penstock/monitor/diagnosis.h"

namespace penstock {

/// One object; null where the log says nothing.
std::string diagnosis_json(const RunDiagnosis& d);

}  // namespace penstock
