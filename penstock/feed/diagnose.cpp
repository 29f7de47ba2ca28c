#include "penstock/feed/diagnose.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <span>

#include <fmt/format.h>

#include "penstock/features/mel.h"

namespace penstock {
namespace {

constexpr double busy_enough = 0.95;   // AU from which a device is called busy
constexpr double worth_naming = 0.95;  // a cause must take a batch below this share of its time
constexpr double noticeable = 0.03;    // of a batch's time: less is not tried to be gained

/// The default mel's time of a frame on this machine: what is not unusual.
double usual_mel_frame() {
  const Mel mel(*mel_preset("hifigan"));
  std::vector<float> audio(static_cast<std::size_t>(mel.options().sample_rate) * 2);
  std::mt19937 random(1);
  std::normal_distribution<float> noise(0, 0.1F);
  std::ranges::generate(audio, [&] { return noise(random); });
  const std::int64_t frames = mel.options().frames(static_cast<std::int64_t>(audio.size()));
  std::vector<float> out(static_cast<std::size_t>(frames) * static_cast<std::size_t>(mel.options().n_mels));
  MelScratch scratch;
  std::vector<double> times;
  for (int i = 0; i < 30; ++i) {
    const auto start = std::chrono::steady_clock::now();
    mel.compute(audio, out.data(), mel.options().n_mels, scratch);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return summarise(times).p50 / static_cast<double>(frames);
}

/// What else was unusual about the slow batches.
std::string coincidence(const Observation& seen) {
  const std::vector<ObservedBatch>& all = seen.batches;
  std::vector<double> elapsed;
  for (const ObservedBatch& b : all) elapsed.push_back(b.elapsed);
  const SeriesSummary times = summarise(elapsed);
  double slow = 0, epochs = 0, compiled = 0, copied = 0, excess = 0;
  std::array<double, stage_count> stages{}, usual{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ObservedBatch& b = all[i];
    const bool is_slow = b.elapsed > 1.3 * times.p50;
    if (is_slow) {
      slow += 1, epochs += b.first_of_epoch, excess += b.elapsed - times.p50;
      compiled += b.compile, copied += b.copy;
    }
    // Time is counted when a call ends, which may be one batch later.
    const bool near = is_slow || (i > 0 && all[i - 1].elapsed > 1.3 * times.p50);
    for (std::size_t s = 0; s < stage_count; ++s) (near ? stages : usual)[s] += b.stages[s];
  }
  if (slow == 0) return "";
  if (compiled > 0.5 * excess) return "the device compiles new shapes";
  if (copied > 0.5 * excess) return "copies to the device";
  if (epochs >= 0.8 * slow) return "an epoch ends";
  const double calm = static_cast<double>(all.size()) - slow;
  std::size_t most = 0;
  std::array<double, stage_count> grown{};
  for (std::size_t s = 0; s < stage_count; ++s) {
    grown[s] = stages[s] / slow - (calm > 0 ? usual[s] / calm : 0);
    if (grown[s] > grown[most]) most = s;
  }
  if (grown[most] < 0.3 * excess / slow) return "";
  if (most == index_of(Stage::read)) return "reads stand still";
  if (most == index_of(Stage::cache)) return "reads from the cache stand still";
  return fmt::format("the stage '{}' takes longer", stage_names[most]);
}

/// Tries settings in short runs and collects what is worth it.
class Doctor {
 public:
  Doctor(const Config& config, const DiagnoseOptions& options) : config_(config), options_(options) {}

  Diagnosis examine() {
    say("your configuration");
    d_.seen = observe(config_, options_.observe);
    d_.taken = d_.seen.taken + config_.prefetch_buffer_size;
    d_.demand = demand_of(d_.seen);
    std::vector<double> elapsed;
    std::set<Shape> shapes;
    double valid = 0, frames = 0;
    for (const ObservedBatch& b : d_.seen.batches) {
      elapsed.push_back(b.elapsed);
      shapes.insert(b.shape);
      valid += static_cast<double>(b.valid_frames), frames += static_cast<double>(b.frames);
    }
    d_.batch = summarise(elapsed);
    d_.swing = find_oscillation(elapsed);
    d_.swing_cause = coincidence(d_.seen);
    d_.padding = 1 - valid / frames;
    d_.shapes = shapes.size();
    if (d_.demand.step > 0) d_.headroom = headroom(d_.seen, options_.observe.check);
    if (d_.demand.step > 0 && d_.seen.au >= std::min(busy_enough, 0.97 * d_.headroom)) return d_;
    find_causes();
    return d_;
  }

 private:
  void say(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }
  [[nodiscard]] bool overlapped() const {
    return config_.device != "cpu" && config_.device_prefetch && config_.overlap;
  }
  [[nodiscard]] double au_of(double cycle) const { return d_.demand.step / cycle; }

  [[nodiscard]] bool is_worth_naming(const WhatIf& w) const {
    return w.cycle < worth_naming * d_.demand.cycle;
  }

  void find_causes() {
    Nominal nominal{.mel_frame = usual_mel_frame()};
    nominal.wav_bytes_per_frame = 2.0 * config_.mel.hop_length;
    d_.causes = what_if(d_.demand, d_.seen, nominal, overlapped());
    // What a setting of the user's decides is no cause by itself when it is not set.
    std::erase_if(d_.causes,
                  [&](const WhatIf& w) { return w.cause == Cause::workers && config_.num_workers == 0; });
    try_settings();
    add_cache(nominal);
    add_what_is_not_a_setting();
    std::ranges::stable_sort(d_.causes, {}, &WhatIf::cycle);
    const bool named = !d_.causes.empty() && is_worth_naming(d_.causes.front());
    d_.verdict = named ? d_.causes.front().cause : Cause::features;
    // With nothing to wait for, being as fast as the machine can is all that can be asked.
    d_.healthy = d_.demand.step == 0 && !named;
    if (d_.healthy) d_.verdict = Cause::step;
    rank_remedies();
  }

  // ---- what can be tried ----

  /// A short run of another configuration: AU, and seconds for as much as a batch of the user's.
  struct Trial {
    double au = 0, cycle = 0;
  };
  Trial try_out(const Config& config) {
    ObserveOptions shorter = options_.observe;
    shorter.batches = std::max<std::int64_t>(20, shorter.batches / 2);
    shorter.least_seconds /= 2, shorter.most_seconds /= 2;
    shorter.skip = d_.taken;
    const Observation seen = observe(config, shorter);
    d_.taken += seen.taken + config_.prefetch_buffer_size;
    const Demand now = demand_of(seen), &before = d_.demand;
    // Other shapes have other steps and other padding: useful frames are what can be compared. Else AU is, in
    // which it does not matter how long the clips of so few batches happen to be.
    if (seen.au > 0 && config.shapes == config_.shapes)
      return {.au = seen.au, .cycle = before.step / seen.au};
    const double useful = now.rows * now.frames / (before.rows * before.frames);
    return {.au = seen.au, .cycle = now.cycle / useful};
  }

  void attempt(Cause cause, const std::string& what,
               std::vector<std::pair<std::string, std::string>> settings) {
    Remedy remedy{.cause = cause, .what = what, .settings = std::move(settings), .tried = true};
    if (all_is_in_memory()) return compute(std::move(remedy));
    say(what);
    const Trial tried = try_out(with_settings(config_, remedy));
    remedy.cycle = tried.cycle, remedy.au = tried.au;
    d_.remedies.push_back(remedy);
  }

  [[nodiscard]] bool copies_cost() const {
    return std::ranges::any_of(d_.causes,
                               [&](const WhatIf& w) { return w.cause == Cause::copy && is_worth_naming(w); });
  }
  /// The files were cold, and there are none left that are: a trial would show that instead.
  [[nodiscard]] bool all_is_in_memory() const {
    return d_.taken + options_.observe.batches > d_.seen.epoch &&
           std::ranges::any_of(d_.causes, [](const WhatIf& w) { return w.cause == Cause::cold; });
  }
  /// Without a trial its cause's figure has to do.
  void compute(Remedy remedy) {
    const auto cause = std::ranges::find(d_.causes, remedy.cause, &WhatIf::cause);
    if (cause == d_.causes.end()) return;
    remedy.cycle = cause->cycle, remedy.au = au_of(cause->cycle), remedy.tried = false;
    d_.remedies.push_back(std::move(remedy));
  }

  /// The last attempt shows what its cause costs.
  void show_cause() {
    if (d_.remedies.empty() || !d_.remedies.back().tried) return;
    show_cause(d_.remedies.back().cause, d_.remedies.back().cycle);
  }
  void show_cause(Cause cause, double cycle) {
    std::erase_if(d_.causes, [&](const WhatIf& w) { return w.cause == cause; });
    d_.causes.push_back({.cause = cause, .cycle = cycle, .tried = true});
  }

  void try_settings() {
    const Demand& d = d_.demand;
    const Observation& seen = d_.seen;
    const double waits = d.cycle - d.step - d.compile - d.copy_wait;
    if (config_.shapes == 0 && d.compile > noticeable * d.cycle) {
      attempt(Cause::shapes, "4 fixed shapes instead of any", {{"shapes", "4"}});
      show_cause();
    }
    if (config_.device != "cpu" && !(config_.overlap && config_.device_prefetch) &&
        d.copy_wait > noticeable * d.cycle) {
      attempt(Cause::copy, "copies beside the steps", {{"overlap", "true"}, {"device_prefetch", "true"}});
      show_cause();
    }
    // While copies are the limit the ring is full, and what else is uneven does not show: a device that needs
    // no copies does.
    if (overlapped() && copies_cost() && !all_is_in_memory()) {
      say("no copies to the device");
      Config without = config_;
      without.device = "cpu";
      show_cause(Cause::copy, try_out(without).cycle);
    }
    if (waits < noticeable * d.cycle) return;
    if (config_.num_workers > 0 && seen.workers < seen.cpus) {
      attempt(Cause::workers, fmt::format("{} workers instead of {}", seen.cpus, seen.workers),
              {{"num_workers", std::to_string(seen.cpus)}});
      show_cause();
    }
    // Workers that wait for storage leave their CPU to others.
    const double row = d.row_running + d.row_ready + d.row_asleep;
    if (const int many =
            static_cast<int>(std::min(48.0, std::ceil(seen.cpus * row / std::max(1e-6, row - d.row_asleep))));
        config_.num_workers > 0 && d.row_asleep > 0.4 * row && many > std::max(seen.cpus, seen.workers))
      attempt(Cause::storage,
              fmt::format("{} workers instead of {}: they mostly wait for the storage", many, seen.workers),
              {{"num_workers", std::to_string(many)}});
    if (!config_.native_loading)
      attempt(Cause::mel, "the native path instead of the reference", {{"native_loading", "true"}});
    // A ring evens out what varies; it does not help workers that never rest.
    if (d.loss > noticeable * d.cycle && d.fill < 0.97 * (d.cycle - d.stall)) {
      const int depth = std::clamp(4 * config_.prefetch_buffer_size, 16, 64);
      attempt(Cause::ring,
              fmt::format("{} batches in the ring instead of {}", depth, config_.prefetch_buffer_size),
              {{"prefetch_buffer_size", std::to_string(depth)}});
      show_cause();
    }
  }

  void add_cache(const Nominal& nominal) {
    const bool reads = config_.preprocessing_mode == PreprocessingMode::precompute ||
                       (config_.preprocessing_mode == PreprocessingMode::automatic &&
                        d_.seen.cache.misses == 0 && d_.seen.cache.hits > 0);
    if (reads) return;
    const std::string read_it = "read the cache, which is there";
    if (options_.cache_complete && !all_is_in_memory())
      return attempt(Cause::features, read_it, {{"preprocessing_mode", "precompute"}});
    const double cycle = cycle_when_cached(d_.demand, d_.seen, nominal, overlapped());
    d_.remedies.push_back({.cause = Cause::features,
                           .what = options_.cache_complete ? read_it : "build the cache",
                           .settings = {{"preprocessing_mode", "precompute"}},
                           .builds_cache = !options_.cache_complete,
                           .cycle = cycle,
                           .au = au_of(cycle)});
  }

  // ---- what cannot ----

  void add_what_is_not_a_setting() {
    for (const WhatIf& w : d_.causes) {
      const std::string what = outside(w.cause);
      if (what.empty() || !is_worth_naming(w)) continue;
      d_.remedies.push_back(
          {.cause = w.cause, .what = what, .cycle = w.cycle, .au = au_of(w.cycle), .tried = w.tried});
    }
  }

  [[nodiscard]] std::string outside(Cause cause) const {
    const Observation& seen = d_.seen;
    switch (cause) {
      case Cause::storage:
        return fmt::format("put the dataset on faster storage: a file takes {:.1f} ms",
                           d_.demand.row[index_of(Stage::read)] * 1e3);
      case Cause::cold:
        return "nothing, if the data fits into memory: the next epoch reads it from there";
      case Cause::decode:
        return "convert the audio to 16-bit WAV at the wanted rate";
      case Cause::mel:
        return "a mel that costs less: mel_precision fast, a smaller n_fft";
      case Cause::cpu:
        return fmt::format("stop what takes {:.1f} of {} CPUs beside it{}", seen.other_cpus, seen.cpus,
                           seen.busiest.cpus > 0.1
                               ? fmt::format(": {} (process {})", seen.busiest.name, seen.busiest.id)
                               : "");
      case Cause::stall:
        return fmt::format("find what stops everything now and then{}",
                           d_.swing_cause.empty() ? "" : ": " + d_.swing_cause);
      case Cause::copy:
        return overlapped()
                   ? fmt::format("a faster link to the device: a copy takes {:.1f} ms", d_.demand.copy * 1e3)
                   : "";
      default:
        return "";
    }
  }

  /// Best first; of those that are as good, what is least work.
  void rank_remedies() {
    constexpr double as_good = 0.02;
    const double cycle = d_.demand.cycle;
    std::erase_if(d_.remedies, [&](const Remedy& r) { return r.cycle > (1 - noticeable) * cycle; });
    const auto work = [](const Remedy& r) { return r.settings.empty() ? 2 : r.builds_cache ? 1 : 0; };
    std::ranges::stable_sort(d_.remedies, {}, &Remedy::cycle);
    for (auto group = d_.remedies.begin(); group != d_.remedies.end();) {
      auto end = std::find_if(group, d_.remedies.end(),
                              [&](const Remedy& r) { return r.cycle > group->cycle * (1 + as_good); });
      std::stable_sort(group, end, [&](const Remedy& a, const Remedy& b) { return work(a) < work(b); });
      group = end;
    }
  }

  const Config& config_;
  const DiagnoseOptions& options_;
  Diagnosis d_;
};

}  // namespace

Config with_settings(Config config, const Remedy& remedy) {
  for (const auto& [key, value] : remedy.settings)
    for (const ConfigKey& k : config_keys())
      if (k.name == key) k.set(config, value);
  return config;
}

Diagnosis diagnose(const Config& config, const DiagnoseOptions& options) {
  return Doctor(config, options).examine();
}

}  // namespace penstock
