// Settings: every key of the configuration, as text.
#include <map>

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/module.h"

namespace penstock::python {
namespace {

using Values = std::map<std::string, std::string>;

Settings settings_of(const std::string& file, const Values& values) {
  ConfigLoader loader;
  if (!file.empty()) loader.load_yaml(file);
  for (const auto& [key, value] : values) loader.set(key, value, "argument " + key);
  return {.config = loader.config(), .notes = {loader.notes().begin(), loader.notes().end()}};
}

Settings load(const nb::str& file, const nb::dict& values) {
  Values plain;
  for (const auto& [key, value] : values) plain[utf8(key)] = utf8(value);
  return settings_of(utf8(file), plain);
}

/// What differs from the defaults and from the preset: load("", it) gives the same configuration.
nb::dict values_of(const Settings& settings) {
  const std::string preset = settings.config.mel_preset;
  const Config plain = settings_of("", {{"mel_preset", preset}}).config;
  nb::dict values;
  values["mel_preset"] = text(preset);
  for (const ConfigKey& key : config_keys())
    if (const std::string value = key.get(settings.config); value != key.get(plain))
      values[text(key.name)] = text(value);
  return values;
}

nb::str get(const Settings& settings, const std::string& name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return text(key.get(settings.config));
  throw Error(name + ": unknown key");
}

const char* kind_name(ValueKind kind) {
  static constexpr const char* names[] = {"text", "path",  "boolean", "whole",
                                          "real", "bytes", "choice",  "folders"};
  return names[static_cast<std::size_t>(kind)];
}

/// Keys that do something here: not the trainer's.
std::vector<ConfigKey> feed_keys() {
  const auto all = config_keys();
  std::vector<ConfigKey> keys(all.begin(), all.end());
  std::erase_if(keys, [](const ConfigKey& key) { return key.trainer; });
  return keys;
}

}  // namespace

void bind_config(nb::module_& m) {
  nb::class_<Settings>(m, "Settings", "A validated configuration.")
      .def_static("load", &load, nb::arg("file"), nb::arg("values"),
                  nb::sig("def load(file: str, values: dict[str, str]) -> Settings"),
                  "Keys of a YAML file (an empty name: none) and of arguments, which win.")
      .def("values", &values_of, nb::sig("def values(self) -> dict[str, str]"),
           "Every key that is not at its default: loaded again they give the same configuration.")
      .def("get", &get, nb::arg("name"), "The value of a key.")
      .def_ro("notes", &Settings::notes, "Other spellings and retired keys, as lines for a person.");
  nb::class_<ConfigKey>(m, "ConfigKey", "A key of the configuration.")
      .def_ro("name", &ConfigKey::name)
      .def_ro("help", &ConfigKey::help)
      .def_prop_ro(
          "kind", [](const ConfigKey& key) { return kind_name(key.kind); },
          "text, path, boolean, whole, real, bytes, choice or folders")
      .def_ro("words", &ConfigKey::words, "the choices, or what may stand for a number (auto)")
      .def_prop_ro(
          "default", [](const ConfigKey& key) { return key.get(Config()); }, "as text");
  m.def("config_keys", &feed_keys, "All keys of a feed, in the order in which they are shown.");
}

}  // namespace penstock::python
