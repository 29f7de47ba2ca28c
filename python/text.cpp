// Text to token ids.
#include "penstock/features/text.h"

#include <memory>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/operators.h>

#include "penstock/feed/dataset.h"
#include "python/module.h"

namespace penstock::python {
namespace {

SymbolTable table_of(const nb::str& characters) {
  std::vector<char32_t> all;
  for (Py_ssize_t i = 0; i < PyUnicode_GetLength(characters.ptr()); ++i)
    all.push_back(PyUnicode_ReadChar(characters.ptr(), i));
  return SymbolTable(all);
}

nb::str characters_of(const SymbolTable& symbols) {
  const auto all = symbols.characters();
  int order = 0;  // this machine's
  return nb::steal<nb::str>(PyUnicode_DecodeUTF32(
      reinterpret_cast<const char*>(all.data()), static_cast<Py_ssize_t>(all.size_bytes()), nullptr, &order));
}

SymbolTable table_of_dataset(const Settings& settings, const nb::object& listener) {
  return interruptible(listener, [&](const Progress& progress) {
    return open_dataset(settings.config, {.progress = progress.of("indexing")}).symbols;
  });
}

nb::object encode(const SymbolTable& symbols, const nb::str& text, bool add_blank) {
  const std::string plain = utf8(text);
  const auto tokenizer = character_tokenizer(symbols, {.add_blank = add_blank});
  TextScratch scratch;
  const auto units = static_cast<std::int32_t>(clean_text(plain, scratch).size());
  const auto length = static_cast<std::size_t>(tokenizer->length(units));
  auto ids = std::make_unique<std::int32_t[]>(length);
  (void)tokenizer->encode(plain, {ids.get(), length}, scratch);
  const nb::capsule owner(ids.get(), [](void* data) noexcept { delete[] static_cast<std::int32_t*>(data); });
  return nb::cast(nb::ndarray<nb::numpy, std::int32_t>(ids.release(), {length}, owner));
}

}  // namespace

void bind_text(nb::module_& m) {
  nb::class_<SymbolTable>(m, "Symbols",
                          "Which id each character has. Ids 0 to 3 are padding, beginning, end and blank; "
                          "characters follow in the order of their code points.")
      .def(
          "__init__",
          [](SymbolTable* self, const nb::str& characters) { new (self) SymbolTable(table_of(characters)); },
          nb::arg("characters"), "Characters in any order, after cleaning: NFC, lower case.")
      .def_static(
          "load", [](const nb::str& path) { return SymbolTable::load(utf8(path)); }, nb::arg("path"),
          "A file that save() has written.")
      .def_static("of", &table_of_dataset, nb::arg("settings"), nb::arg("progress") = nb::none(),
                  nb::sig("def of(settings: Settings, progress: typing.Callable[[str, int, int], object] | "
                          "None = None) -> Symbols"),
                  "The dataset's table.")
      .def(
          "save", [](const SymbolTable& self, const nb::str& path) { self.save(utf8(path)); },
          nb::arg("path"), "As a small text file, for the key `symbols`.")
      .def("encode", &encode, nb::arg("text"), nb::arg("add_blank") = false,
           nb::sig(
               "def encode(self, text: str, add_blank: bool = False) -> numpy.typing.NDArray[numpy.int32]"),
           "The ids of a text: beginning, its characters, end.")
      .def_prop_ro("characters", &characters_of, "In the order of their ids, from 4 on.")
      .def("__len__", &SymbolTable::size)
      .def(
          "__eq__",
          [](const SymbolTable& a, const nb::object& b) {
            return nb::isinstance<SymbolTable>(b) &&
                   a.fingerprint() == nb::cast<const SymbolTable&>(b).fingerprint();
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const SymbolTable& self) { return static_cast<Py_ssize_t>(self.fingerprint() >> 1); })
      .def(
          "__reduce__",
          [](const SymbolTable& self) {
            return nb::make_tuple(nb::type<SymbolTable>(), nb::make_tuple(characters_of(self)));
          },
          nb::sig("def __reduce__(self) -> tuple[type[Symbols], tuple[str]]"));
}

}  // namespace penstock::python
