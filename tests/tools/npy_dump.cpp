// npy_dump FOLDER ID...: what a tree of .npy files has for every id, a line each: `missing`, `problem: ...`,
// or type, order, shape and size, then as many bytes of data. npy_dump --write FILE TYPE ROWS[,COLUMNS]: an
// array of the bytes on stdin. npy_dump --orphans FOLDER ID... npy_dump --find DATASET.
#include <charconv>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "penstock/cache/npy.h"
#include "penstock/core/error.h"

namespace {

using namespace penstock;

int dump(const NpyTree& tree, std::span<const std::string_view> ids) {
  Scratch<std::byte> scratch;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const NpyItem& item = tree.item(i);
    if (!item.there || !item.problem.empty()) {
      fmt::print("{}\n", item.there ? "problem: " + item.problem : "missing");
      continue;
    }
    const NpyHeader& h = item.header;
    const auto shape = std::span(h.shape).first(static_cast<std::size_t>(h.dimensions));
    const auto data = tree.read(i, ids[i], scratch);
    fmt::print("{} {} {} {}\n", npy_type_name(h.type), h.fortran ? 'F' : 'C', fmt::join(shape, ","),
               data.size());
    if (!data.empty() && std::fwrite(data.data(), 1, data.size(), stdout) != data.size()) return 1;
  }
  return 0;
}

std::vector<std::int64_t> parse_shape(std::string_view text) {
  std::vector<std::int64_t> shape;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at)
    at = std::from_chars(at, end, shape.emplace_back()).ptr;
  return shape;
}

int write(const std::string& path, std::string_view type_name, std::string_view shape) {
  const std::string data{std::istreambuf_iterator<char>(std::cin), {}};
  for (const NpyType type :
       {NpyType::float16, NpyType::float32, NpyType::float64, NpyType::int32, NpyType::int64})
    if (npy_type_name(type) == type_name) {
      write_npy(path, type, parse_shape(shape), std::as_bytes(std::span(data)));
      return 0;
    }
  throw Error(fmt::format("{}: no such type", type_name));
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const std::span rest(words);
  if (words.size() == 4 && words[0] == "--write") return write(std::string(words[1]), words[2], words[3]);
  if (words.size() == 2 && words[0] == "--find") {
    const NpyFolders found = find_npy_folders(words[1]);
    fmt::print("{}\n{}\n", found.mels.string(), found.tokens.string());
    return 0;
  }
  if (words.size() >= 2 && words[0] == "--orphans") {
    for (const std::string& name : NpyTree(words[1], {}, 1).orphans(rest.subspan(2)))
      fmt::print("{}\n", name);
    return 0;
  }
  if (words.empty()) throw Error("npy_dump: expected a folder; see the head of its source");
  return dump(NpyTree(words[0], rest.subspan(1), 2), rest.subspan(1));
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
