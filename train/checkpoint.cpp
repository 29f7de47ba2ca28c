#include "train/checkpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <stdio.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "train/safetensors.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::string_view prefix = "step-", temporary_prefix = ".tmp-";
constexpr std::array files{"model.safetensors", "optimizer.safetensors"};
constexpr const char *state_file = "state.json", *best_file = "best";

std::string folder_name(std::int64_t update) { return fmt::format("{}{:08}", prefix, update); }

/// The update of a checkpoint's folder; -1 for any other.
std::int64_t update_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(prefix)) return -1;
  std::int64_t update = -1;
  const char* end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + prefix.size(), end, update);
  return error == std::errc() && last == end ? update : -1;
}

/// Newest first.
std::vector<fs::path> folders(const fs::path& checkpoints) {
  std::vector<fs::path> result;
  std::error_code none;
  for (const fs::directory_entry& e : fs::directory_iterator(checkpoints, none))
    if (update_of(e.path()) >= 0) result.push_back(e.path());
  std::ranges::sort(result, std::greater(), update_of);
  return result;
}

void sync_folder(const fs::path& folder) {
  const File file = File::open_folder(folder);
  if (::fsync(file.fd()) != 0)
    throw Error(fmt::format("{}: cannot be synced: {}", folder.string(), std::strerror(errno)));
}

/// Under a name that nobody reads before its files go one by one: killed in between, it is rubbish and not
/// half a checkpoint.
void remove_folder(const fs::path& folder) {
  fs::path rubbish = folder;
  if (!folder.filename().string().starts_with(temporary_prefix)) {
    rubbish = folder.parent_path() / (std::string(temporary_prefix) + folder.filename().string() + "-old");
    std::error_code ignored;
    fs::remove_all(rubbish, ignored);
    if (::rename(folder.c_str(), rubbish.c_str()) != 0) return;
  }
  std::error_code ignored;  // tried again at the next save
  fs::remove_all(rubbish, ignored);
}

void remove_rubbish(const fs::path& checkpoints) {
  std::vector<fs::path> rubbish;
  for (const fs::directory_entry& e : fs::directory_iterator(checkpoints))
    if (e.path().filename().string().starts_with(temporary_prefix)) rubbish.push_back(e.path());
  std::ranges::for_each(rubbish, remove_folder);
}

/// Gives a written folder its name; one that has it already is exchanged with it, where the file system can.
void put_in_place(const fs::path& written, const fs::path& final) {
  if (::rename(written.c_str(), final.c_str()) == 0) return;
  if (errno == ENOTEMPTY || errno == EEXIST) {
    if (::renameat2(AT_FDCWD, written.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
      remove_folder(written);
      return;
    }
    remove_folder(final);
    if (::rename(written.c_str(), final.c_str()) == 0) return;
  }
  throw Error(fmt::format("{}: cannot be put in place: {}", final.string(), std::strerror(errno)));
}

std::string best_name(const fs::path& checkpoints) {
  std::error_code none;
  if (!fs::exists(checkpoints / best_file, none)) return {};
  std::string name = read_text(checkpoints / best_file);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

NamedTensors tensors_of(const Model& model) {
  NamedTensors result;
  for (const auto& p : model.named_parameters()) result.emplace_back(p.key(), p.value());
  for (const auto& b : model.named_buffers()) result.emplace_back(b.key(), b.value());
  return result;
}

/// JSON text as it is, so that people can read it; any other text as a text.
ordered_json readable(const std::string& text) {
  const ordered_json value = ordered_json::parse(text, nullptr, false);
  return value.is_object() && value.dump() == text ? value : ordered_json(text);
}

std::string text_of(const ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

ordered_json to_json(const RunState& s) {
  ordered_json shapes = ordered_json::array();
  for (const Shape& shape : s.feed.shapes) shapes.push_back({shape.rows, shape.tokens, shape.frames});
  ordered_json out = {
      {"update", s.update},
      {"best_validation", std::isfinite(s.best_validation) ? ordered_json(s.best_validation) : nullptr},
      {"skipped_in_a_row", s.skipped_in_a_row},
      {"threads", s.threads},
      {"feed", {{"seed", s.feed.seed}, {"epoch", s.feed.epoch}, {"step", s.feed.step}, {"shapes", shapes}}},
      {"model", readable(s.model)},
      {"mel", readable(s.mel)},
      {"symbols", readable(s.symbols)},
      {"order", readable(s.order)},
      {"random", s.random}};
  if (!s.device_random.empty()) out["device_random"] = s.device_random;
  return out;
}

RunState from_json(const ordered_json& j) {
  RunState s;
  s.update = j.at("update");
  if (!j.at("best_validation").is_null()) s.best_validation = j.at("best_validation");
  s.skipped_in_a_row = j.at("skipped_in_a_row");
  s.threads = j.at("threads");
  const ordered_json& feed = j.at("feed");
  s.feed.seed = feed.at("seed"), s.feed.epoch = feed.at("epoch"), s.feed.step = feed.at("step");
  for (const ordered_json& shape : feed.at("shapes"))
    s.feed.shapes.push_back({shape.at(0), shape.at(1), shape.at(2)});
  s.model = text_of(j.at("model")), s.mel = text_of(j.at("mel"));
  s.symbols = text_of(j.at("symbols")), s.order = text_of(j.at("order"));
  s.random = j.at("random");
  s.device_random = j.value("device_random", "");
  return s;
}

ordered_json read_json(const fs::path& path) {
  try {
    return ordered_json::parse(read_text(path));
  } catch (const ordered_json::exception& e) {
    throw Error(fmt::format("{}: must be JSON, but is not: {}", path.string(), e.what()));
  }
}

/// Renaming makes a checkpoint whole; a copy of a run that was cut short shows in the sizes.
bool is_whole(const fs::path& checkpoint) try {
  const ordered_json sizes = read_json(checkpoint / state_file).at("bytes");
  return std::ranges::all_of(files, [&](const char* name) {
    return fs::file_size(checkpoint / name) == sizes.at(name).get<std::uintmax_t>();
  });
} catch (const std::exception&) {
  return false;
}

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    unsigned word = 0;
    for (std::size_t k = 0; k < 3; ++k) word = word << 8 | (k < n ? bytes[i + k] : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += k <= n ? digits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::vector<std::uint8_t> from_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::vector<std::uint8_t> bytes;
  unsigned word = 0, bits = 0;
  for (const char c : text) {
    const std::size_t digit = digits.find(c);
    if (digit == digits.npos) throw Error("random state: must be base64, but is not");
    word = word << 6 | static_cast<unsigned>(digit), bits += 6;
    if (bits >= 8) bytes.push_back(static_cast<std::uint8_t>(word >> (bits -= 8)));
  }
  return bytes;
}

}  // namespace

void save_checkpoint(const fs::path& run, const Model& model, const Optimizer& optimizer,
                     const RunState& state, int keep, bool best) {
  const fs::path checkpoints = run / "checkpoints";
  const std::string name = folder_name(state.update);
  const fs::path written = checkpoints / (std::string(temporary_prefix) + name);
  try {
    fs::create_directories(checkpoints);
    remove_rubbish(checkpoints);
    fs::create_directory(written);
    save_safetensors(written / files[0], tensors_of(model), {{"description", model.description()}});
    save_safetensors(written / files[1], optimizer.state());
    ordered_json json = to_json(state);
    for (const char* file : files) json["bytes"][file] = fs::file_size(written / file);
    write_file(written / state_file, json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    sync_folder(written);
    put_in_place(written, checkpoints / name);
    if (best) write_file(checkpoints / best_file, name + "\n");
    sync_folder(checkpoints);  // before anything older goes
  } catch (const std::exception& e) {
    std::error_code ignored;
    fs::remove_all(written, ignored);
    if (dynamic_cast<const Error*>(&e) != nullptr) throw;
    throw Error(fmt::format("{}: cannot be saved: {}", (checkpoints / name).string(), e.what()));
  }

  const std::string kept = best_name(checkpoints);
  int newer = 0;
  for (const fs::path& folder : folders(checkpoints))
    if (++newer > std::max(keep, 1) && folder.filename() != kept && folder.filename() != name)
      remove_folder(folder);
}

std::optional<fs::path> latest_checkpoint(const fs::path& run) {
  for (const fs::path& folder : folders(run / "checkpoints"))
    if (is_whole(folder)) return folder;
  return {};
}

RunState load_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / state_file;
  const ordered_json json = read_json(path);
  try {
    return from_json(json);
  } catch (const ordered_json::exception& e) {
    throw Error(fmt::format("{}: is not the state of a run: {}", path.string(), e.what()));
  }
}

void load_tensors(const fs::path& checkpoint, Model& model, Optimizer* optimizer) {
  const fs::path weights = checkpoint / files[0], moments = checkpoint / files[1];
  SafeTensors state;
  if (optimizer != nullptr) state = load_safetensors(moments);
  assign(tensors_of(model), load_safetensors(weights).tensors, weights.string());
  if (optimizer == nullptr) return;

  const auto is_average = [](const auto& named) { return named.first.starts_with("ema."); };
  const NamedTensors present = optimizer->averaged();
  NamedTensors into = optimizer->state();
  const bool stored = std::ranges::any_of(state.tensors, is_average);
  if (present.empty()) std::erase_if(state.tensors, is_average);
  if (!present.empty() && !stored) {
    std::erase_if(into, is_average);
    const auto parameters = model.named_parameters();
    const torch::NoGradGuard no_grad;
    for (const auto& [name, average] : present) torch::Tensor(average).copy_(parameters[name]);
  }
  assign(into, state.tensors, moments.string());
}

std::string random_state(torch::Device device) {
  const torch::Tensor state = at::globalContext().defaultGenerator(device).get_state();
  return base64({state.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(state.numel())});
}

void set_random_state(const std::string& state, torch::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::vector<std::uint8_t> bytes = from_base64(state);
  const torch::Tensor present = generator.get_state();
  if (bytes.size() != static_cast<std::size_t>(present.numel()))
    throw Error(fmt::format("random state: must have {} bytes, but has {}", present.numel(), bytes.size()));
  generator.set_state(torch::from_blob(bytes.data(), {present.numel()}, torch::kUInt8).clone());
}

}  // namespace penstock::train
