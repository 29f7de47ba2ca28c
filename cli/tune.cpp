// penstock tune: the least that keeps a device busy, measured on this machine, as a configuration file.
#include "penstock/feed/tune.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/starting_points.h"
#include "cli/terminal.h"
#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/device/device.h"
#include "penstock/feed/cache.h"

namespace penstock::cli {
namespace {

using nlohmann::json;

constexpr std::size_t page_columns = 80;

struct TuneArguments {
  std::unique_ptr<ConfigFlags> flags;
  double step_ms = 0, seconds = 0.7;
  std::string device, output = "penstock.yaml";
  bool json = false, force = false, build_cache = false, verify = true;
  Option verify_option;
};

/// The name of the GPU in this machine, as its driver gives it; empty without one.
std::string seen_gpu_name() {
  try {
    return open_device("cuda")->info().name;
  } catch (const Error&) {
    return "";
  }
}

// ---- what is tuned ----

/// Everything that is known before something is measured.
struct Subject {
  Config config;
  ConfigLoader given;
  std::optional<StartingPoint> start;
  std::vector<TuneMode> modes;
  std::vector<std::unique_ptr<const Dataset>> datasets;  // of the modes
  std::string no_cache;                                  // why cached was not looked at, and what to do
};

/// --device: where batches go, or a GPU's model. Then the settings that neither file nor flags give come from
/// its starting point.
void apply_device(TuneArguments& a, Subject& s) {
  std::string gpu;
  if (a.device == "cpu" || a.device == "simulated" || a.device.starts_with("cuda")) {
    a.flags->set("device", a.device, "--device");
    if (a.device.starts_with("cuda")) gpu = seen_gpu_name();
  } else if (a.device.empty()) {
    gpu = seen_gpu_name();
  } else {
    gpu = a.device;
    if (!starting_point(gpu))
      throw Error(
          fmt::format("--device must be cpu, cuda, cuda:N, simulated or a GPU that is known ({}), but is "
                      "'{}': give --batch-size yourself",
                      fmt::join(starting_point_names(), ", "), gpu));
  }
  s.start = starting_point(gpu);
  if (!s.start) return;
  for (const auto& [key, value] : s.start->settings)
    a.flags->set_default(key, value, fmt::format("configs/{}.yaml", s.start->name));
}

Dataset open(const Config& config, bool current) {
  ProgressBar bar("indexing");
  const OpenOptions options{
      .progress = [&](std::size_t done, std::size_t total) { bar.update(done, total); }};
  return current ? open_current_dataset(config, options) : open_dataset(config, options);
}

double mel_bytes(const Dataset& dataset, const Config& config) {
  double frames = 0;
  for (const Lengths& l : dataset.lengths) frames += l.frames;
  return frames * config.mel.n_mels * (config.cache_type == CacheType::float16 ? 2 : 4);
}

void add_mode(Subject& s, PreprocessingMode mode, bool build) {
  Config config = s.config;
  config.preprocessing_mode = mode;
  auto dataset = std::make_unique<const Dataset>(open(config, build));
  if (mode == PreprocessingMode::precompute && !cache_is_complete(config, *dataset)) {
    if (!build) {
      s.no_cache = fmt::format(
          "cached was not measured, as the cache is not complete: --build-cache builds it (mels of {})",
          bytes_text(static_cast<std::uint64_t>(mel_bytes(*dataset, config))));
      return;
    }
    ProgressBar bar("caching");
    build_cache(config, *dataset,
                {.wait = true, .progress = [&](std::size_t done, std::size_t total, std::uint64_t bytes) {
                   bar.update(done, total, bytes);
                 }});
  }
  s.modes.push_back({.config = config, .dataset = dataset.get()});
  s.datasets.push_back(std::move(dataset));
}

/// preprocessing_mode, where it is given, is the only one; precompute then builds, as it does in training.
void open_modes(const TuneArguments& a, Subject& s) {
  const bool fixed =
      s.given.is_set("preprocessing_mode") && s.config.preprocessing_mode != PreprocessingMode::automatic;
  const PreprocessingMode mode = s.config.preprocessing_mode;
  if (a.build_cache && fixed && mode == PreprocessingMode::runtime)
    throw Error("--build-cache builds what preprocessing_mode runtime never reads: leave one of them out");
  if (!fixed || mode == PreprocessingMode::runtime) add_mode(s, PreprocessingMode::runtime, false);
  if (!fixed || mode == PreprocessingMode::precompute)
    add_mode(s, PreprocessingMode::precompute, fixed || a.build_cache);
}

/// What the user gives is not varied.
TuneChoices choices_of(const Subject& s) {
  const Config& c = s.config;
  const int cpus = available_cpus();
  TuneChoices choices{.workers = {c.num_workers}, .depths = {c.prefetch_buffer_size}, .shapes = {c.shapes}};
  if (!s.given.is_set("num_workers") || c.num_workers == 0) {
    choices.workers.clear();
    for (int w = 1; w <= cpus; w += std::max(1, w / 4)) choices.workers.push_back(w);
    if (choices.workers.back() != cpus) choices.workers.push_back(cpus);
  }
  if (!s.given.is_set("prefetch_buffer_size")) {
    std::set<int> depths{2, 3, 4, 6, 8, 12, 16, 24, 32, c.prefetch_buffer_size};
    choices.depths.assign(depths.begin(), depths.end());
  }
  if (!s.given.is_set("shapes") && !c.pad_to_fixed_length) choices.shapes = {1, 2, 4, 8};
  return choices;
}

// ---- the result ----

struct Result {
  std::vector<TuneLine> lines;
  TuneLine chosen;
  std::optional<MeasuredAu> measured;
  std::string unverified;  // why it was not measured
};

Config with(const Config& config, const TuneSetting& setting) {
  Config c = config;
  c.preprocessing_mode = setting.mode;
  c.num_workers = setting.workers;
  c.prefetch_buffer_size = setting.depth;
  c.shapes = setting.shapes;
  return c;
}

/// What filling costs each mode; `step_ms` as in MeasureOptions, 0 for any.
void measure(const TuneArguments& a, std::span<TuneMode> modes, int most_workers, double step_ms,
             const Machine& machine) {
  std::vector<Config> configs;
  for (const TuneMode& m : modes) configs.push_back(m.config);
  ProgressBar bar("measuring");
  const std::vector<ModeCost> costs =
      measure_fill_costs(configs, worker_counts(std::min(available_cpus(), most_workers)),
                         {.seconds = a.seconds,
                          .step_seconds = step_ms * 1e-3,
                          .machine = machine,
                          .progress = [&](std::size_t done, std::size_t total) { bar.update(done, total); },
                          .check = check_interrupt});
  bar.clear();
  for (std::size_t i = 0; i < costs.size(); ++i) modes[i].cost = costs[i];
}

/// Predicts what was chosen again, by what filling costs in its own ring and shapes.
void refine(const TuneArguments& a, const Subject& s, Result& r, std::int64_t steps, const Machine& machine) {
  const TuneSetting c = r.chosen.setting;
  TuneMode mode = *std::ranges::find(s.modes, c.mode, [](const TuneMode& m) { return m.cost.mode; });
  mode.config = with(mode.config, c);
  measure(a, {&mode, 1}, c.workers, a.step_ms, machine);
  const TuneChoices only{.workers = {c.workers}, .depths = {c.depth}, .shapes = {c.shapes}};
  r.chosen = evaluate({&mode, 1}, only, a.step_ms * 1e-3, steps, machine).front();
  *std::ranges::find(r.lines, c, &TuneLine::setting) = r.chosen;
}

/// Runs what was chosen for some seconds. A slow device is only run when that is asked for.
void verify(const TuneArguments& a, const Subject& s, Result& r, std::int64_t predicted_steps) {
  const double aim = 7 * a.seconds, most = 4 * aim;
  constexpr std::int64_t least = 60;
  const bool asked = a.verify_option.given();
  if (!a.verify) return;
  const double cycle = r.chosen.predicted.seconds / static_cast<double>(predicted_steps - 1);
  const auto steps = std::clamp(static_cast<std::int64_t>(aim / cycle), least, 10'000L);
  const std::int64_t warm_up = tune_warm_up(r.chosen.setting.depth);
  if (const double seconds = cycle * static_cast<double>(steps + warm_up); seconds > most && !asked) {
    r.unverified = fmt::format("not run for real, as that would take {:.0f} s: --verify does it", seconds);
    return;
  }
  r.measured = measure_au(with(s.config, r.chosen.setting), a.step_ms * 1e-3, warm_up + steps, warm_up,
                          check_interrupt);
}

/// The best that a mode reaches with so many workers, with the least depth that reaches it.
const TuneLine* best_of(const Result& r, PreprocessingMode mode, int workers, std::int32_t shapes) {
  const TuneLine* best = nullptr;
  for (const TuneLine& l : r.lines)
    if (l.setting.mode == mode && l.setting.workers == workers && l.setting.shapes == shapes &&
        (!best || l.predicted.au > best->predicted.au + 0.005))
      best = &l;  // by depth, ascending
  return best;
}

/// What a person wants to compare with: each mode and worker count at its best, a smaller ring, other shapes.
std::vector<TuneLine> shown_lines(const Result& r) {
  const TuneSetting& c = r.chosen.setting;
  std::vector<TuneLine> shown;
  const auto add = [&](const TuneLine* line) {
    if (line && std::ranges::find(shown, line->setting, &TuneLine::setting) == shown.end())
      shown.push_back(*line);
  };
  std::set<std::pair<PreprocessingMode, int>> kinds;
  for (const TuneLine& l : r.lines)
    if (const int w = l.setting.workers; w <= 2 * c.workers && (w >= c.workers || c.workers % w == 0))
      kinds.emplace(l.setting.mode, w);
  for (const auto& [mode, workers] : kinds)
    add(mode == c.mode && workers == c.workers ? &r.chosen : best_of(r, mode, workers, c.shapes));
  for (const TuneLine& l : r.lines) {
    TuneSetting other = c;
    other.depth = l.setting.depth;
    if (l.setting == other && (l.setting.depth == 2 || l.setting.depth == 8)) add(&l);
  }
  for (const TuneLine& l : r.lines) {
    TuneSetting other = c;
    other.shapes = l.setting.shapes;
    if (l.setting == other) add(&l);
  }
  return shown;
}

json line_json(const TuneLine& l) {
  return {{"mode", mode_name(l.setting.mode)},
          {"workers", l.setting.workers},
          {"depth", l.setting.depth},
          {"shapes", l.setting.shapes},
          {"padding", l.predicted.padding},
          {"au", l.predicted.au},
          {"frames_per_second", l.predicted.frames_per_second}};
}

json result_json(const TuneArguments& a, const Subject& s, const Result& r) {
  json measured = json::array(), lines = json::array();
  for (const TuneMode& m : s.modes)
    for (const ModeCost::Point& p : m.cost.points)
      measured.push_back({{"mode", mode_name(m.cost.mode)},
                          {"workers", p.workers},
                          {"samples_per_second", p.samples_per_second},
                          {"slowdown", p.slowdown},
                          {"cpu_us_per_frame", p.cpu_per_frame * 1e6},
                          {"us_per_frame", m.cost.cost.frame * 1e6},
                          {"us_per_row", m.cost.cost.row * 1e6},
                          {"us_per_cleared_frame", m.cost.cost.cleared * 1e6}});
  for (const TuneLine& l : r.lines) lines.push_back(line_json(l));
  json out = {{"step_ms", a.step_ms},
              {"cpus", available_cpus()},
              {"batch_size", s.config.batch_size},
              {"starting_point", s.start ? json(s.start->name) : json()},
              {"measured", measured},
              {"settings", lines},
              {"recommended", line_json(r.chosen)},
              {"output", a.output}};
  if (r.measured)
    out["verified"] = {{"au", r.measured->au},
                       {"predicted", r.chosen.predicted.au},
                       {"frames_per_second", r.measured->frames_per_second},
                       {"cpu_us_per_frame", r.measured->cpu_per_frame * 1e6},
                       {"steps", r.measured->steps}};
  return out;
}

std::string workers_text(int workers) { return count_text(workers, "worker"); }

/// What fewer workers would reach, for a sentence; empty when there is nothing less.
std::string with_fewer(const Result& r) {
  const TuneSetting& c = r.chosen.setting;
  const TuneLine* less = nullptr;
  for (const TuneLine& l : r.lines)
    if (l.setting.workers < c.workers && (!less || l.setting.workers > less->setting.workers))
      less = best_of(r, c.mode, l.setting.workers, c.shapes);
  return less ? fmt::format("{}: {:.2f}", workers_text(less->setting.workers), less->predicted.au) : "";
}

std::string verdict(const TuneArguments& a, const Result& r) {
  constexpr double busy = 0.95;
  const TuneSetting& c = r.chosen.setting;
  const std::string setting =
      fmt::format("{} ({}) and a depth of {}", workers_text(c.workers), mode_name(c.mode), c.depth);
  const std::string fewer = with_fewer(r);
  if (r.chosen.predicted.au >= busy)
    return fmt::format("{} keep a step of {:g} ms busy: AU {:.2f}{}", setting, a.step_ms,
                       r.chosen.predicted.au, fewer.empty() ? "" : "; " + fewer);
  return fmt::format("nothing keeps a step of {:g} ms busy; the best, {}, reaches AU {:.2f}{}", a.step_ms,
                     setting, r.chosen.predicted.au, fewer.empty() ? "" : "; " + fewer);
}

/// `live: 2100 samples/s with 1 worker, 3900 with 2`
std::string speed_text(const ModeCost& cost) {
  std::string out = fmt::format("{}:", mode_name(cost.mode));
  for (const ModeCost::Point& p : cost.points)
    out += p.workers == 1 ? fmt::format(" {:.0f} samples/s with 1 worker", p.samples_per_second)
                          : fmt::format(", {:.0f} with {}", p.samples_per_second, p.workers);
  return out;
}

void print_text(const TuneArguments& a, const Subject& s, const Result& r) {
  if (s.start) fmt::print("starting point: configs/{}.yaml\n", s.start->name);
  fmt::print("filling at full speed, {}, batches of {}\n", count_text(available_cpus(), "CPU"),
             s.config.batch_size == 0 ? "what fits" : std::to_string(s.config.batch_size));
  for (const TuneMode& m : s.modes)
    fmt::print("{}", indented(wrapped(speed_text(m.cost), page_columns - 2), "  "));
  fmt::print("\nmode    workers  depth  shapes  padding     AU  useful frames/s\n");
  for (const TuneLine& l : shown_lines(r))
    fmt::print("{:<7} {:>7} {:>6} {:>7} {:>6.1f} % {:>6.3f} {:>16.0f}{}\n", mode_name(l.setting.mode),
               l.setting.workers, l.setting.depth,
               l.setting.shapes == 0 ? "dynamic" : std::to_string(l.setting.shapes),
               l.predicted.padding * 100, l.predicted.au, l.predicted.frames_per_second,
               l.setting == r.chosen.setting ? "  <- written" : "");
  fmt::print("\n{}", wrapped(verdict(a, r), page_columns));
  if (r.measured)
    fmt::print("run for real, {} steps: AU {:.3f} (predicted {:.3f})\n", r.measured->steps, r.measured->au,
               r.chosen.predicted.au);
  if (r.measured && std::abs(r.measured->au - r.chosen.predicted.au) > 0.05)
    fmt::print("{}",
               wrapped("these differ by more than 0.05: something else used the CPUs or the disk; run tune "
                       "again on a quiet machine",
                       page_columns));
  for (const std::string& line : {r.unverified, s.no_cache})
    if (!line.empty()) fmt::print("{}", wrapped(line, page_columns));
  fmt::print("written to {}\n", a.output);
}

// ---- the file ----

/// Why the setting is as it is; the keys that tune decides on.
std::map<std::string, std::string> reasons(const Subject& s, const Result& r) {
  const TuneSetting& c = r.chosen.setting;
  const auto origin = [&](const std::string& key, const std::string& found) {
    return s.given.is_set(key) ? std::string("as given") : found;
  };
  std::string speeds;
  for (const TuneMode& m : s.modes) speeds += (speeds.empty() ? "" : "; ") + speed_text(m.cost);
  std::string depths, shapes;
  for (const TuneLine& l : r.lines) {
    TuneSetting other = c;
    other.depth = l.setting.depth;
    if (l.setting == other && (l.setting.depth == 2 || l.setting.depth == 8) && other != c)
      depths +=
          fmt::format("{}depth {}: AU {:.2f}", depths.empty() ? "" : ", ", l.setting.depth, l.predicted.au);
    other = c;
    other.shapes = l.setting.shapes;
    if (l.setting == other)
      shapes += fmt::format("{}{}: {:.0f} % padding, {:.0f} frames/s", shapes.empty() ? "" : "; ",
                            l.setting.shapes, l.predicted.padding * 100, l.predicted.frames_per_second);
  }
  const std::string fewer = with_fewer(r);
  return {{"batch_size", origin("batch_size", s.start ? fmt::format("from configs/{}.yaml", s.start->name)
                                                      : "the default; the device's memory decides")},
          {"preprocessing_mode", origin("preprocessing_mode", speeds)},
          {"num_workers",
           origin("num_workers", fewer.empty() ? "the least there is" : "the least that does; " + fewer)},
          {"prefetch_buffer_size",
           origin("prefetch_buffer_size", "the least that does" + (depths.empty() ? "" : "; " + depths))},
          {"shapes", origin("shapes", shapes)},
          {"gradient_accumulation_steps",
           origin("gradient_accumulation_steps",
                  s.start ? "from configs/" + s.start->name + ".yaml" : "the default")}};
}

std::string file_text(const TuneArguments& a, const Subject& s, const Result& r) {
  const TuneMode& mode =
      *std::ranges::find(s.modes, r.chosen.setting.mode, [](const TuneMode& m) { return m.cost.mode; });
  Config config = with(s.config, r.chosen.setting);
  const Shape largest = planned(*mode.dataset, config).largest();
  constexpr std::size_t file_columns = 110;
  const auto comment = [](const std::string& text) {
    return indented(wrapped(text, file_columns - 2), "# ");
  };
  std::string out = comment(fmt::format(
      "Written by `penstock tune` on {} for a device whose step takes {:g} ms with the largest batch ({} x "
      "{} "
      "frames); use it with --config. {}.",
      count_text(available_cpus(), "CPU"), a.step_ms, largest.rows, largest.frames, verdict(a, r)));
  if (r.measured)
    out += comment(
        fmt::format("Run for real: AU {:.3f}, predicted {:.3f}.", r.measured->au, r.chosen.predicted.au));
  const auto why = reasons(s, r);
  const auto value = [&](const ConfigKey& key) { return yaml_scalar(key.get(config)); };
  for (const ConfigKey& key : config_keys())
    if (const auto it = why.find(key.name);
        it != why.end() && !key.get(config).empty() && !(key.name == "shapes" && config.pad_to_fixed_length))
      out += fmt::format("\n{}{}: {}\n", comment(it->second), key.name, value(key));
  out += "\n# As given.\n";
  for (const ConfigKey& key : config_keys())
    if (s.given.is_set(key.name) && !why.contains(key.name))
      out += fmt::format("{}: {}\n", key.name, value(key));
  return out;
}

int run_tune(TuneArguments& a) {
  Subject s;
  apply_device(a, s);
  if (!a.flags->load(s.config)) return 0;
  s.given = a.flags->collect();
  if (s.config.batch_size == 0 && s.config.device_memory == 0)
    s.config.device_memory = static_cast<std::int64_t>(open_device(s.config.device)->info().free_bytes);
  if (!a.force && std::filesystem::exists(a.output))
    throw Error(fmt::format("{} exists: --force writes over it, -o names another file", a.output));
  open_modes(a, s);
  for (const TuneMode& m : s.modes)
    for (const std::string& note : m.dataset->notes) fmt::print(stderr, "note: {}\n", note);

  const TuneChoices choices = choices_of(s);
  const bool open =
      s.modes.size() * choices.workers.size() * choices.depths.size() * choices.shapes.size() > 1;
  const Machine machine = machine_for(s.config);
  measure(a, s.modes, std::ranges::max(choices.workers), open ? 0 : a.step_ms, machine);

  constexpr std::int64_t steps = 400;
  Result r{.lines = evaluate(s.modes, choices, a.step_ms * 1e-3, steps, machine)};
  r.chosen = recommended(r.lines);
  if (open) refine(a, s, r, steps, machine);
  verify(a, s, r, steps);
  write_file(a.output, file_text(a, s, r));
  if (a.json)
    print_json(result_json(a, s, r));
  else
    print_text(a, s, r);
  return 0;
}

}  // namespace

void add_tune(const Command& app, Action& action) {
  auto a = std::make_shared<TuneArguments>();
  const Command c = app.add_command("tune", "find the least that keeps a device busy, and write it down");
  a->flags = std::make_unique<ConfigFlags>(c, std::vector<std::string>{"device"});
  c.add_option("--step-ms", a->step_ms,
               "what the device's step takes with the largest batch; others take less, by padded frames")
      .required()
      .range(0.01, 1e6);
  c.add_option("--device", a->device,
               "a GPU to start from (rtx4090, \"RTX 4090\", a100, ...), or where batches go: cpu | cuda | "
               "cuda:N | simulated")
      .type_name("NAME");
  c.add_option("-o,--output", a->output, "the file to write").type_name("FILE").show_default();
  c.add_option("--seconds", a->seconds, "of each measurement: longer ones are better")
      .range(0.01, 60.0)
      .show_default();
  c.add_flag("--force", a->force, "write over an existing file");
  c.add_flag("--build-cache", a->build_cache, "build what is missing of the cache and measure it too");
  a->verify_option =
      c.add_flag("--verify,!--no-verify", a->verify,
                 "run what was chosen for real and compare (default, where it takes seconds; --no-verify)");
  c.add_flag("--json", a->json, "the result for programs");
  c.footer(
      "Keys that a flag or the file gives (--num-workers, --shapes, --preprocessing-mode, ...) are not "
      "varied.\nExamples:\n  penstock tune data/en --step-ms 50\n"
      "  penstock tune data/en --step-ms 120 --device rtx4090 -o tuned.yaml\n"
      "  penstock tune data/en --step-ms 10 --build-cache --force");
  c.runs(action, [a] { return run_tune(*a); });
}

}  // namespace penstock::cli
