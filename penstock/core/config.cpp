#include "penstock/core/config.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

constexpr RetiredKey retired[] = {
    {"shuffle_buffer_multiplier",
     "the order is a permutation of the whole epoch; there is no shuffle buffer"},
    {"shuffle_buffer_size", "the order is a permutation of the whole epoch; there is no shuffle buffer"},
    {"memory_cache", "the page cache holds what is read often", true},
    {"memory_cache_size", "the page cache holds what is read often"},
    {"pin_memory", "slots are pinned whenever the device needs it", true},
    {"persistent_workers", "workers always live as long as the feed", true},
    {"prefetch_factor", "prefetch_buffer_size counts batches, whatever the number of workers"},
    {"drop_last", "remainder says what becomes of utterances that do not fill a batch", true},
};

const ConfigKey* find_key(std::string_view name) {
  const auto keys = config_keys();
  const auto it = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.name == name; });
  return it == keys.end() ? nullptr : &*it;
}

template <typename Table>
auto find_name(const Table& table, std::string_view name) {
  return std::find_if(std::begin(table), std::end(table),
                      [&](const auto& entry) { return entry.name == name; });
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j)
      diagonal =
          std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row[b.size()];
}

std::string negate(const std::string& value) {
  Config c;
  const ConfigKey& any = *find_key("resample");  // for its parser of booleans
  any.set(c, value);
  return c.resample ? "false" : "true";
}

/// `extra` may be a map of its own: f0=data/f0,energy=data/energy.
std::string joined(const YAML::Node& map) {
  std::string out;
  for (const auto& entry : map)
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", entry.first.as<std::string>(),
                       entry.second.IsScalar() ? entry.second.as<std::string>() : "");
  return out;
}

}  // namespace

std::span<const RetiredKey> retired_keys() { return retired; }

std::string yaml_scalar(const std::string& value) {
  const auto needs_none = [](unsigned char c) {
    return c >= 0x80 || std::isalnum(c) ||
           std::string_view("_./+-=,:").find(static_cast<char>(c)) != std::string_view::npos;
  };
  const bool plain = !value.empty() && value.back() != ':' && std::ranges::all_of(value, needs_none);
  if (plain) return value;
  std::string out = "\"";
  for (const char c : value)
    if (std::iscntrl(static_cast<unsigned char>(c)))
      out += fmt::format("\\x{:02x}", c);
    else
      out += c == '"' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
  return out + '"';
}

std::string nearest_key(std::string_view name) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(3, name.size() / 3) + 1;
  for (const ConfigKey& key : config_keys())
    if (const std::size_t d = edit_distance(name, key.name); d < best_distance)
      best = key.name, best_distance = d;
  return best;
}

void Config::validate() const {
  mel.validate();
  if (pad_to_fixed_length && shapes != 1)
    throw Error("pad_to_fixed_length means one shape, but shapes asks for others: leave one of them out");
  if (rank >= world) throw Error(fmt::format("rank must be below world ({}), but is {}", world, rank));
  if (batch_size == 0 && shapes == 0)
    throw Error(
        "batch_size auto gives each of a few fixed shapes its rows, but shapes is dynamic: say how many "
        "shapes, or a batch_size");
  if (static_cast<std::int64_t>(batch_size) * world > (1 << 24))
    throw Error(
        fmt::format("batch_size x world must be at most {}, but is {} x {}", 1 << 24, batch_size, world));
}

void ConfigLoader::load_yaml(const std::filesystem::path& path) {
  const auto at = [&](const YAML::Mark& mark) { return fmt::format("{}:{}", path.string(), mark.line + 1); };
  const auto read_map = [&](const YAML::Node& map) {
    for (const auto& entry : map) {
      const std::string where = at(entry.first.Mark());
      const auto name = entry.first.as<std::string>();
      if (entry.second.IsMap() && name == "extra")
        put(name, joined(entry.second), where, 2);
      else if (entry.second.IsScalar())
        put(name, entry.second.as<std::string>(), where, 2);
      else
        throw Error(fmt::format("{}: {}: must be a single value", where, name));
    }
  };
  YAML::Node root;
  try {
    root = YAML::LoadFile(path.string());
  } catch (const YAML::BadFile&) {
    throw Error(fmt::format("{}: cannot be read", path.string()));
  } catch (const YAML::Exception& e) {
    throw Error(fmt::format("{}: is not YAML: {}", at(e.mark), e.msg));
  }
  if (root.IsNull()) return;
  if (!root.IsMap()) throw Error(fmt::format("{}: must hold keys and values", path.string()));
  YAML::Node flat;
  for (const auto& entry : root) {
    const auto name = entry.first.as<std::string>();
    const bool section = name == "data" || name == "model" || name == "training";
    if (section && entry.second.IsMap()) {
      read_map(entry.second);
    } else if (!(section && entry.second.IsNull())) {
      flat = YAML::Node(YAML::NodeType::Map);
      flat[entry.first] = entry.second;
      read_map(flat);
    }
  }
}

void ConfigLoader::set(std::string_view name, const std::string& value, const std::string& origin) {
  put(name, value, origin, 3);
}

void ConfigLoader::set_default(std::string_view name, const std::string& value, const std::string& origin) {
  put(name, value, origin, 1);
}

void ConfigLoader::put(std::string_view name, std::string value, const std::string& origin, int priority) {
  if (const auto it = find_name(retired, name); it != std::end(retired)) {
    note(fmt::format("{}: {} is not needed: {}", origin, name, it->why));
    return;
  }
  std::string_view key_name = name;
  try {
    const auto aliases = config_aliases();
    if (const auto it = find_name(aliases, name); it != aliases.end()) {
      key_name = it->key;
      if (it->negated) value = negate(value);
      note(fmt::format("{}: {} is called {} here ({}: {})", origin, name, key_name, key_name, value));
    }
    const ConfigKey* key = find_key(key_name);
    if (!key) {
      const std::string nearest = nearest_key(name);
      throw Error(nearest.empty() ? "unknown key" : fmt::format("unknown key; did you mean {}?", nearest));
    }
    Config scratch;
    key->set(scratch, value);
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}: {}", origin, name, e.what()));
  }
  Setting& setting = settings_[std::string(key_name)];
  if (setting.priority == priority && setting.value != value)
    throw Error(fmt::format("{}: {} is {} here, but {} at {}: leave one of them out{}", origin, key_name,
                            value, setting.value, setting.origin,
                            name == key_name ? "" : fmt::format(" ({} is called {} here)", name, key_name)));
  if (priority >= setting.priority) setting = {std::move(value), origin, priority};
}

bool ConfigLoader::is_set(std::string_view key) const {
  const auto it = settings_.find(key);
  return it != settings_.end() && it->second.priority > 1;
}

void ConfigLoader::note(const std::string& line) {
  if (std::find(notes_.begin(), notes_.end(), line) == notes_.end()) notes_.push_back(line);
}

Config ConfigLoader::config() const {
  Config config;
  const auto apply = [&](const std::string& name, const Setting& s) { find_key(name)->set(config, s.value); };
  if (const auto it = settings_.find("mel_preset"); it != settings_.end()) {
    apply(it->first, it->second);
    config.mel = *mel_preset(config.mel_preset);
  }
  for (const auto& [name, setting] : settings_) apply(name, setting);
  if (config.pad_to_fixed_length && !settings_.contains("shapes")) config.shapes = 1;
  config.validate();
  return config;
}

std::string ConfigLoader::print(bool trainer) const {
  const Config config = this->config();
  const Config defaults;
  std::string out;
  for (const ConfigKey& key : config_keys()) {
    const auto it = settings_.find(key.name);
    const std::string value = key.get(config);
    if (key.trainer && !trainer && it == settings_.end()) continue;
    const std::string origin =
        it != settings_.end() ? it->second.origin
        : value != key.get(defaults)
            ? fmt::format("follows from {}", key.name == "shapes" ? "pad_to_fixed_length" : "mel_preset")
            : "default";
    out += fmt::format("{:<42} # {}\n", fmt::format("{}: {}", key.name, yaml_scalar(value)), origin);
  }
  return out;
}

}  // namespace penstock
