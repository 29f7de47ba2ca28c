// Why a device waits, by operational analysis of what was observed, and what would become of it without each
// cause. Pure functions; docs/decisions/0019 has the reasons.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/feed/observe.h"

namespace penstock {

enum class Cause {
  step,      ///< the device itself: nothing waits for data
  storage,   ///< files are read slowly, also the second time
  cold,      ///< files are read slowly the first time: they are not in memory yet
  decode,    ///< decoding costs more than plain WAV does
  mel,       ///< the mel costs more than the default one does
  features,  ///< nothing is unusual, but there is more to compute than these CPUs can
  workers,   ///< CPUs are free, and no worker uses them
  ring,      ///< batches are uneven, and too few are kept ready
  copy,      ///< the step waits for copies to the device
  stall,     ///< everything stops now and then
  cpu,       ///< other processes take the CPUs
  shapes,    ///< the device compiles its step again for new shapes
};
/// As in JSON: step, storage, ...
std::string_view cause_name(Cause cause);

/// What a row would cost in plain circumstances on this machine, in seconds.
struct Nominal {
  double read = 30e-6, read_byte = 1 / 5e9;
  double decode_frame = 0.15e-6;  ///< of 16-bit WAV at the wanted rate, per mel frame
  double mel_frame = 0.5e-6;      ///< of the default preset; measured
  double cached_row = 15e-6, cached_frame = 0.05e-6;
  double wav_bytes_per_frame = 512;
};

/// What a batch takes, in seconds, seen from each resource.
struct Demand {
  double cycle = 0;                       ///< from batch to batch, as measured
  double step = 0;                        ///< of the device
  double compile = 0;                     ///< of the device, for shapes it had not seen
  double copy = 0;                        ///< of the link to the device
  double copy_wait = 0;                   ///< of that, what the consumer waited for
  double fill = 0;                        ///< of all workers together: a row's time x rows / workers
  double stall = 0;                       ///< lost when everything stood still
  double loss = 0;                        ///< cycle - the largest of the others: what unevenness costs
  std::array<double, stage_count> row{};  ///< a worker's time for a row by stage, without the stalls
  double usual_read = 0;                  ///< a row's reading in the median batch: without rare slow reads
  double row_running = 0, row_ready = 0,
         row_asleep = 0;        ///< of a row's time: on a CPU, waiting for one, for storage
  double rows = 0, frames = 0;  ///< of a batch; frames of a row
  double stalls = 0;            ///< batches before which it stood still, as a share
};

/// Medians over batches that nothing disturbed, means over all. `seen` has at least two batches.
Demand demand_of(const Observation& seen);

/// A cause, and a batch's time without it.
struct WhatIf {
  Cause cause = Cause::step;
  double cycle = 0;
  bool tried = false;  ///< measured in a short run, not computed
};

/// Every cause that there may be, the one whose removal brings most first. `overlapped`: copies run beside
/// steps. Empty when nothing would bring a hundredth.
std::vector<WhatIf> what_if(const Demand& demand, const Observation& seen, const Nominal& nominal,
                            bool overlapped);

/// A batch's time when features come from a cache that is in memory.
double cycle_when_cached(const Demand& demand, const Observation& seen, const Nominal& nominal,
                         bool overlapped);

}  // namespace penstock
