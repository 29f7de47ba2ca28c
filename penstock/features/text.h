// Text -> token ids. Characters are Unicode code points after cleaning: NFC, lower case, white space folded.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/core/file.h"

namespace penstock {

/// A worker's memory for cleaning and encoding; grows on first use, then allocates nothing.
struct TextScratch {
  Scratch<char16_t> utf16, folded;
  Scratch<char32_t> cleaned;
};

/// What a reader would call the same text becomes the same characters. The result lives in `scratch`. Steps:
/// - Marks that only steer the display, as copied text brings them along, are dropped: byte order marks,
///   bidirectional marks, embeddings and isolates, soft hyphens and word joiners.
/// - NFC, lower case (root locale), NFC again (the lower case of J with a caron has a code point of its own).
/// - Runs of white space become one space, none at the ends: Unicode's White_Space, no-break spaces included,
///   and U+200B, which separates words in Khmer, Thai and Burmese.
///
/// Joiners stay: U+200C is spelling in Persian and changes how a word is read; U+200D belongs to emoji and to
/// Indic scripts. Letters of one look and different code points (Arabic and Persian yeh) stay apart: that is
/// the language's choice, not Unicode's.
///
/// Throws Error("byte 17 of the text is not valid UTF-8 (0xE9)"); bytes count from 1.
std::span<const char32_t> clean_text(std::string_view utf8, TextScratch& scratch);

/// Changes when clean_text changes its results: part of every fingerprint that depends on it.
inline constexpr std::uint64_t clean_text_version = 1;

/// Which id each character has. Ids 0..3 are PAD, BOS, EOS and BLANK; characters follow in code point order.
class SymbolTable {
 public:
  static constexpr std::int32_t pad = 0, bos = 1, eos = 2, blank = 3, first_character = 4;

  SymbolTable() : SymbolTable(std::span<const char32_t>{}) {}
  /// Characters in any order, repeats allowed. Throws Error for what is no Unicode scalar value.
  explicit SymbolTable(std::span<const char32_t> characters);

  /// The character's id, or -1.
  [[nodiscard]] std::int32_t id(char32_t character) const;
  [[nodiscard]] std::span<const char32_t> characters() const { return characters_; }
  [[nodiscard]] std::int32_t size() const {
    return first_character + static_cast<std::int32_t>(characters_.size());
  }
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// The characters of these ids as UTF-8; PAD, BOS, EOS, BLANK and what is no id of the table are left out.
  [[nodiscard]] std::string text(std::span<const std::int32_t> ids) const;

  /// A small UTF-8 text file: `penstock-symbols<TAB>version<TAB>symbols`, then a symbol a line in id order,
  /// as `5<TAB>U+0061<TAB>a`. The last column is for people; characters that nobody can see have none. load()
  /// checks every line (Error with its number).
  void save(const std::filesystem::path& path) const;
  static SymbolTable load(const std::filesystem::path& path);

 private:
  std::vector<char32_t> characters_;     // sorted
  std::array<std::int32_t, 256> latin_;  // ids of the first 256 code points, -1 for none
};

struct TextOptions {
  bool add_blank = false;  ///< BLANK between all symbols and at both ends, as VITS wants it
};

/// Text -> ids. The seam for other tokenizers (phonemes, subwords). Immutable: workers share one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Tokens that a text of `units` cleaned characters becomes, BOS, EOS and blanks included.
  [[nodiscard]] virtual std::int32_t length(std::int32_t units) const = 0;
  /// Writes the ids to the front of `out` and returns how many there are. Throws Error: invalid UTF-8, a
  /// character that is not in the table ("character U+0686 'چ' is not in the symbol table"), or more tokens
  /// than `out` holds. `out` may be partly written then.
  virtual std::int32_t encode(std::string_view text, std::span<std::int32_t> out,
                              TextScratch& scratch) const = 0;
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
};

std::unique_ptr<Tokenizer> character_tokenizer(SymbolTable symbols, const TextOptions& options);

}  // namespace penstock
