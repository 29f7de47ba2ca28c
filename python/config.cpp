// Settings: every key of the configuration, as text.
#include <map>

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
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

/// What differs from the defaults and from the preset: settings_of("", it) gives the same configuration.
Values values_of(const Settings& settings) {
  Values values = {{"mel_preset", settings.config.mel_preset}};
  const Config plain = settings_of("", values).config;
  for (const ConfigKey& key : config_keys())
    if (std::string value = key.get(settings.config); value != key.get(plain))
      values.insert_or_assign(key.name, std::move(value));
  return values;
}

}  // namespace

void bind_config(nb::module_& m) {
  nb::class_<Settings>(m, "Settings")
      .def_static("load", &settings_of, nb::arg("file"), nb::arg("values"))
      .def("values", &values_of)
      .def("get",
           [](const Settings& s, const std::string& name) {
             for (const ConfigKey& key : config_keys())
               if (key.name == name) return key.get(s.config);
             throw Error(name + ": unknown key");
           })
      .def_ro("notes", &Settings::notes);
  m.def("config_keys", [] {
    std::vector<std::tuple<std::string, std::string, bool>> keys;
    for (const ConfigKey& key : config_keys())
      if (key.pending.empty()) keys.emplace_back(key.name, key.help, key.boolean);
    return keys;
  });
}

}  // namespace penstock::python
