// Prints what the library makes of each line of standard input: the cleaned code points in hexadecimal, or
// with `ids` the token ids from a table of all characters in the input. A line that is refused gives `error:
// ...`.
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/core/error.h"
#include "penstock/features/text.h"

namespace {

using penstock::TextScratch;

std::vector<std::string> read_lines() {
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  return lines;
}

std::string code_points(const std::string& line, TextScratch& scratch) {
  std::string result;
  for (const char32_t c : penstock::clean_text(line, scratch))
    result += fmt::format("{}{:X}", result.empty() ? "" : " ", static_cast<std::uint32_t>(c));
  return result;
}

penstock::SymbolTable all_symbols(const std::vector<std::string>& lines, TextScratch& scratch) {
  std::vector<char32_t> characters;
  for (const std::string& line : lines) {
    const auto cleaned = penstock::clean_text(line, scratch);
    characters.insert(characters.end(), cleaned.begin(), cleaned.end());
  }
  return penstock::SymbolTable(characters);
}

void print_ids(const std::vector<std::string>& lines, TextScratch& scratch) {
  const auto tokenizer = penstock::character_tokenizer(all_symbols(lines, scratch), {});
  for (const std::string& line : lines) {
    std::vector<std::int32_t> ids(
        static_cast<std::size_t>(tokenizer->length(static_cast<std::int32_t>(3 * line.size()))));
    ids.resize(static_cast<std::size_t>(tokenizer->encode(line, ids, scratch)));
    fmt::print("{}\n", fmt::join(ids, " "));
  }
}

void print_code_points(const std::vector<std::string>& lines, TextScratch& scratch) {
  for (const std::string& line : lines) {
    try {
      fmt::print("{}\n", code_points(line, scratch));
    } catch (const penstock::Error& e) {
      fmt::print("error: {}\n", e.what());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  TextScratch scratch;
  const std::vector<std::string> lines = read_lines();
  if (argc > 1 && std::string_view(argv[1]) == "ids")
    print_ids(lines, scratch);
  else
    print_code_points(lines, scratch);
}
