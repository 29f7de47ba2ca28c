// Why does my device starve, and what will fix it? The user's configuration is run as it is, what was seen is
// analysed, and whatever a setting can change is tried in a short run.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/core/config.h"
#include "penstock/feed/observe.h"
#include "penstock/feed/what_if.h"
#include "penstock/monitor/series.h"

namespace penstock {

/// Something to change, and what it will bring.
struct Remedy {
  Cause cause = Cause::step;
  std::string what;                                           ///< "2 workers instead of 1"
  std::vector<std::pair<std::string, std::string>> settings;  ///< keys and values; none: not for us to change
  bool builds_cache = false;
  double cycle = 0;    ///< seconds of a batch then
  double au = 0;       ///< then; 0 without a step
  bool tried = false;  ///< measured in a short run, not computed
};

struct Diagnosis {
  Observation seen;
  Demand demand;
  SeriesSummary batch;      ///< of the times from batch to batch, in seconds
  Oscillation swing;        ///< of these
  std::string swing_cause;  ///< what comes at the same time; empty when nothing does
  double headroom = 0;      ///< AU when batches are in memory; 0 without a step
  double padding = 0;       ///< share of the frames
  std::size_t shapes = 0;   ///< different ones among the batches
  Cause verdict = Cause::step;
  bool healthy = true;
  std::vector<WhatIf> causes;    ///< the one whose removal brings most first
  std::int64_t taken = 0;        ///< batches of the plan that all runs took: their files are in memory now
  std::vector<Remedy> remedies;  ///< the one that brings most first, and of equals the one that is least work
};

struct DiagnoseOptions {
  ObserveOptions observe;
  bool cache_complete = false;  ///< everything could be read from the cache (cache_is_complete)
  std::function<void(const std::string& what)> progress;  ///< before each run
};

Diagnosis diagnose(const Config& config, const DiagnoseOptions& options);

/// The configuration with a remedy's settings.
Config with_settings(Config config, const Remedy& remedy);

}  // namespace penstock
