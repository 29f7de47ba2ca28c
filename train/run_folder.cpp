#include "train/run_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>

#include "penstock/core/error.h"

namespace penstock::train {
namespace {

using nlohmann::json;

std::string values_of(const Config& config, std::span<const std::string_view> names) {
  json values = json::object();
  for (const ConfigKey& key : config_keys())
    if (std::ranges::find(names, key.name) != names.end()) values[key.name] = key.get(config);
  return values.dump();
}

/// The update that a line belongs to; -1 where it says nothing of one. A tune line counts the feed's steps.
std::int64_t update_of(std::string_view line) {
  const json object = json::parse(line, nullptr, false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) return -1;
  return object.value("kind", "") == "tune" ? -1 : object["step"].get<std::int64_t>();
}

}  // namespace

std::filesystem::path default_run(const Config& config) {
  std::filesystem::path data;
  for (const std::string* path : {&config.dataset_path, &config.train_data})
    if (data.empty()) data = *path;
  if (data.empty()) data = std::filesystem::path(config.metadata_train_file).parent_path();
  data = std::filesystem::weakly_canonical(data);
  if (!data.has_filename()) data = data.parent_path();
  const std::string name = data.filename().string();
  return std::filesystem::path("runs") /
         fmt::format("{}-{}", name.empty() ? "data" : name, config.train.model_size);
}

RunLock::RunLock(const std::filesystem::path& run) {
  std::error_code failure;
  std::filesystem::create_directories(run, failure);
  if (failure)
    throw Error(fmt::format("{}: cannot make the run's folder: {}", run.string(), failure.message()));
  const std::filesystem::path path = run / "lock";
  file_ = File(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (file_.fd() < 0)
    throw Error(
        fmt::format("{}: cannot be written: {}", path.string(), std::generic_category().message(errno)));
  if (::flock(file_.fd(), LOCK_EX | LOCK_NB) != 0)
    throw Error(fmt::format("{}: another process trains in this folder", run.string()));
}

void cut_log(const std::filesystem::path& run, std::int64_t step) {
  const std::filesystem::path path = run / "log.jsonl";
  if (!std::filesystem::exists(path)) return;
  const std::string text = read_text(path);
  std::size_t end = text.rfind('\n') + 1;  // npos + 1 is 0: not one whole line
  while (end > 0) {
    const std::size_t before = end > 1 ? text.rfind('\n', end - 2) + 1 : 0;
    const std::int64_t update = update_of(std::string_view(text).substr(before, end - before));
    if (update >= 0 && update <= step) break;
    end = before;
  }
  std::error_code failure;
  if (end < text.size()) std::filesystem::resize_file(path, end, failure);
  if (failure) throw Error(fmt::format("{}: cannot be cut: {}", path.string(), failure.message()));
}

std::string mel_keys(const Config& config) {
  static constexpr std::string_view names[] = {"sample_rate", "n_fft",     "win_length",  "hop_length",
                                               "n_mels",      "mel_fmin",  "mel_fmax",    "mel_scale",
                                               "mel_norm",    "mel_power", "mel_eps",     "mel_framing",
                                               "mel_log",     "mel_floor", "mel_pad_mode"};
  return values_of(config, names);
}

std::string symbol_keys(const Config& config, const Dataset& dataset) {
  json values = json::parse(values_of(config, std::array<std::string_view, 1>{"add_blank"}));
  values["symbols"] = fmt::format("{} ({:016x})", dataset.symbols.size(), dataset.symbols.fingerprint());
  return values.dump();
}

std::string order_keys(const Config& config) {
  static constexpr std::string_view names[] = {
      "seed",      "batch_size",   "shapes", "pad_to_fixed_length", "max_text_length", "max_mel_frames",
      "remainder", "val_fraction", "split",  "device_memory",       "frame_memory",    "mel_pad_value"};
  return values_of(config, names);
}

std::vector<std::string> differences(const std::string& run, const std::string& now) {
  const auto parsed = [](const std::string& text) {
    json value = json::parse(text, nullptr, false);
    return value.is_object() ? value : json{{"description", text}};
  };
  const json before = parsed(run), after = parsed(now);
  std::set<std::string> names;
  for (const json* object : {&before, &after})
    for (const auto& [name, value] : object->items()) names.insert(name);
  const auto shown = [](const json& object, const std::string& name) {
    if (!object.contains(name)) return std::string("nothing");
    return object[name].is_string() ? object[name].get<std::string>() : object[name].dump();
  };
  std::vector<std::string> lines;
  for (const std::string& name : names)
    if (!before.contains(name) || !after.contains(name) || before[name] != after[name])
      lines.push_back(
          fmt::format("{}: {} in the run, {} now", name, shown(before, name), shown(after, name)));
  return lines;
}

}  // namespace penstock::train
