#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include "penstock/core/error.h"
#include "penstock/core/random.h"
#include "penstock/features/text.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, SymbolTable::first_character> special_names{"PAD", "BOS", "EOS",
                                                                                   "BLANK"};
constexpr std::string_view file_magic = "penstock-symbols\t1\t";

bool is_scalar_value(char32_t c) { return c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF); }

std::string to_utf8(char32_t c) {
  char bytes[U8_MAX_LENGTH];
  int size = 0;
  U8_APPEND_UNSAFE(bytes, size, c);
  return {bytes, static_cast<std::size_t>(size)};
}

bool can_be_seen(char32_t c) { return u_isgraph(static_cast<UChar32>(c)); }

/// `U+0686 'چ'`, or `U+200C` alone.
std::string describe(char32_t c) {
  const std::string number = fmt::format("U+{:04X}", static_cast<std::uint32_t>(c));
  return can_be_seen(c) ? fmt::format("{} '{}'", number, to_utf8(c)) : number;
}

/// The line that a symbol has in the file, without its end.
std::string symbol_line(std::int32_t id, char32_t c, bool with_glyph) {
  return fmt::format("{}\tU+{:04X}{}", id, static_cast<std::uint32_t>(c),
                     with_glyph ? "\t" + to_utf8(c) : "");
}

/// The code point in `5<TAB>U+0061...`; nothing where it cannot be read.
std::optional<char32_t> line_character(std::string_view line) {
  const std::size_t at = line.find("\tU+");
  if (at == line.npos) return {};
  std::uint32_t c = 0;
  if (std::from_chars(line.data() + at + 3, line.data() + line.size(), c, 16).ec != std::errc{}) return {};
  return is_scalar_value(c) ? std::optional<char32_t>(c) : std::nullopt;
}

/// The lines of a symbol file, one after the other, and the complaint about the one that was read last.
class Lines {
 public:
  Lines(const std::filesystem::path& path, std::string_view text) : path_(path), rest_(text) {}

  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  std::string_view next() {
    ++number_;
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
    if (end == rest_.npos) fail("a line that ends");
    return line_;
  }
  [[noreturn]] void fail(std::string_view expected) const {
    throw Error(fmt::format("{}:{}: expected {}, but found '{}'", path_.string(), number_, expected, line_));
  }

 private:
  const std::filesystem::path& path_;
  std::string_view rest_, line_;
  int number_ = 0;
};

std::int32_t read_header(Lines& lines) {
  const std::string_view line = lines.next();
  std::int32_t symbols = 0;
  const char* const end = line.data() + line.size();
  if (!line.starts_with(file_magic))
    lines.fail("a symbol table, 'penstock-symbols<TAB>1<TAB>number of symbols'");
  const auto [stop, code] = std::from_chars(line.data() + file_magic.size(), end, symbols);
  if (code != std::errc{} || stop != end || symbols < SymbolTable::first_character)
    lines.fail(fmt::format("the number of symbols, at least {}", SymbolTable::first_character));
  return symbols;
}

char32_t read_character(Lines& lines, std::int32_t id, std::optional<char32_t> previous) {
  const std::string_view line = lines.next();
  const std::optional<char32_t> c = line_character(line);
  if (!c || (line != symbol_line(id, *c, true) && line != symbol_line(id, *c, false)))
    lines.fail(fmt::format("symbol {} as 'id<TAB>U+code point<TAB>character'", id));
  if (previous && *c <= *previous) lines.fail("a code point above the line before's");
  return *c;
}

}  // namespace

SymbolTable::SymbolTable(std::span<const char32_t> characters)
    : characters_(characters.begin(), characters.end()) {
  std::sort(characters_.begin(), characters_.end());
  characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
  latin_.fill(-1);
  for (std::size_t i = 0; i < characters_.size(); ++i) {
    const char32_t c = characters_[i];
    if (!is_scalar_value(c))
      throw Error(fmt::format("a symbol must be a Unicode character, but is U+{:04X}",
                              static_cast<std::uint32_t>(c)));
    if (c < latin_.size()) latin_[c] = first_character + static_cast<std::int32_t>(i);
  }
}

std::int32_t SymbolTable::id(char32_t character) const {
  if (character < latin_.size()) return latin_[character];
  const auto at = std::lower_bound(characters_.begin(), characters_.end(), character);
  if (at == characters_.end() || *at != character) return -1;
  return first_character + static_cast<std::int32_t>(at - characters_.begin());
}

std::uint64_t SymbolTable::fingerprint() const {
  std::uint64_t h = hash_text(file_magic);
  for (const char32_t c : characters_) h = mix(h, c);
  return h;
}

std::string SymbolTable::text(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids)
    if (id >= first_character && id < size())
      text += to_utf8(characters_[static_cast<std::size_t>(id - first_character)]);
  return text;
}

void SymbolTable::save(const std::filesystem::path& path) const {
  std::string text = fmt::format("{}{}\n", file_magic, size());
  std::int32_t id = 0;
  for (const std::string_view name : special_names) text += fmt::format("{}\t{}\n", id++, name);
  for (const char32_t c : characters_) text += symbol_line(id++, c, can_be_seen(c)) + "\n";
  write_file(path, text);
}

SymbolTable SymbolTable::load(const std::filesystem::path& path) {
  const std::string text = read_text(path);
  Lines lines(path, text);
  const std::int32_t symbols = read_header(lines);
  std::int32_t id = 0;
  for (const std::string_view name : special_names) {
    const std::string expected = fmt::format("{}\t{}", id++, name);
    if (lines.next() != expected) lines.fail(fmt::format("'{}'", expected));
  }
  std::vector<char32_t> characters;
  for (; id < symbols; ++id)
    characters.push_back(
        read_character(lines, id, characters.empty() ? std::nullopt : std::optional(characters.back())));
  if (!lines.at_end()) {
    lines.next();
    lines.fail(fmt::format("the end of the file after {} symbols", symbols));
  }
  return SymbolTable(characters);
}

namespace {

class CharacterTokenizer final : public Tokenizer {
 public:
  CharacterTokenizer(SymbolTable symbols, const TextOptions& options)
      : symbols_(std::move(symbols)), add_blank_(options.add_blank) {}

  [[nodiscard]] std::int32_t length(std::int32_t units) const override {
    return add_blank_ ? 2 * (units + 2) + 1 : units + 2;
  }

  std::int32_t encode(std::string_view text, std::span<std::int32_t> out,
                      TextScratch& scratch) const override {
    const std::span<const char32_t> characters = clean_text(text, scratch);
    const std::int32_t tokens = length(static_cast<std::int32_t>(characters.size()));
    if (static_cast<std::size_t>(tokens) > out.size())
      throw Error(fmt::format("the text must become at most {} tokens, but becomes {}", out.size(), tokens));

    const std::size_t stride = add_blank_ ? 2 : 1;
    if (add_blank_) std::fill_n(out.begin(), tokens, SymbolTable::blank);
    std::int32_t* next = out.data() + (add_blank_ ? 1 : 0);
    const auto put = [&](std::int32_t id) {
      *next = id;
      next += stride;
    };
    put(SymbolTable::bos);
    for (const char32_t c : characters) {
      const std::int32_t id = symbols_.id(c);
      if (id < 0) throw Error(fmt::format("character {} is not in the symbol table", describe(c)));
      put(id);
    }
    put(SymbolTable::eos);
    return tokens;
  }

  [[nodiscard]] std::uint64_t fingerprint() const override {
    return mix(mix(symbols_.fingerprint(), clean_text_version), add_blank_);
  }

 private:
  SymbolTable symbols_;
  bool add_blank_;
};

}  // namespace

std::unique_ptr<Tokenizer> character_tokenizer(SymbolTable symbols, const TextOptions& options) {
  return std::make_unique<CharacterTokenizer>(std::move(symbols), options);
}

}  // namespace penstock
