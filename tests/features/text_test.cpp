#include "penstock/features/text.h"

#include <random>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unicode/utf8.h>

#include "penstock/core/error.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::u32string clean(std::string_view text) {
  TextScratch scratch;
  const auto cleaned = clean_text(text, scratch);
  return {cleaned.begin(), cleaned.end()};
}

std::string utf8(std::u32string_view text) {
  std::string result;
  for (const char32_t c : text) {
    char bytes[U8_MAX_LENGTH];
    int size = 0;
    U8_APPEND_UNSAFE(bytes, size, c);
    result.append(bytes, static_cast<std::size_t>(size));
  }
  return result;
}

template <typename Function>
std::string error_of(const Function& function) {
  try {
    function();
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

/// Random text of every kind of code point, with those that cleaning treats specially well represented.
std::u32string random_text(std::mt19937& random) {
  static const std::u32string special =
      U" \t\n\u00A0\u200B\u200C\u200D\u200E\uFEFF\u00ADΣσςİIıJ\u030C\u0301\u0327\u0345ÅK한\u1100\u1161";
  const auto below = [&](std::size_t n) { return static_cast<char32_t>(random() % n); };
  std::u32string text;
  for (auto n = below(40); n > 0; --n) {
    const std::size_t kind = below(4);
    const char32_t c = kind == 0 ? special[below(special.size())]
                                 : below(kind == 1   ? 0x80
                                         : kind == 2 ? 0x3000
                                                     : 0x110000);
    if (c < 0xD800 || c > 0xDFFF) text += c;
  }
  return text;
}

// ---- Cleaning

TEST(CleanText, LowersAndFoldsAscii) {
  EXPECT_EQ(clean("  Hello,\t\r\n  WORLD!  42 "), U"hello, world! 42");
  EXPECT_EQ(clean(""), U"");
  EXPECT_EQ(clean(" \n\t\v\f\r "), U"");
  EXPECT_EQ(clean("[\\]^_`{|}~@AZaz"), U"[\\]^_`{|}~@azaz");
}

TEST(CleanText, TheAsciiPathEqualsTheUnicodePath) {
  std::string all;
  for (int i = 1; i < 128; ++i) all += fmt::format("{}x{}", static_cast<char>(i), static_cast<char>(128 - i));
  EXPECT_EQ(clean(all) + U"é", clean(all + "é"));
}

TEST(CleanText, ComposesAndLowers) {
  EXPECT_EQ(clean("E\u0301cole ÉCOLE"), U"école école");
  EXPECT_EQ(clean("\u212B \u2126 \u212A"), U"å ω k") << "signs that are letters";
  EXPECT_EQ(clean("\u1112\u1161\u11AB"), U"한");
}

TEST(CleanText, ComposesWhatOnlyLowerCaseHas) { EXPECT_EQ(clean("J\u030C"), U"\u01F0"); }

TEST(CleanText, LowersByTheRootLocale) {
  EXPECT_EQ(clean("ΟΔΟΣ ΣΑΣ"), U"οδος σας") << "a sigma at a word's end has a form of its own";
  EXPECT_EQ(clean("İI"), U"i\u0307i");
  EXPECT_EQ(clean("ẞ Ǆ"), U"ß ǆ");
}

TEST(CleanText, FoldsEveryWhiteSpace) {
  EXPECT_EQ(clean("a\u00A0b\u2003\u3000c\u202Fd\u2028e\u200Bf\u0085g"), U"a b c d e f g");
  EXPECT_EQ(clean("\u3000é\u00A0"), U"é");
}

TEST(CleanText, KeepsPersianJoinersAndDropsMarksThatOnlySteerDisplay) {
  EXPECT_EQ(clean("می\u200Cخواهم"), U"می\u200Cخواهم");
  EXPECT_EQ(clean("\uFEFF\u202Bسلام\u200F،\u200E دنیا\u202C\u2067\u2069"), U"سلام، دنیا");
  EXPECT_EQ(clean("کتاب\u200Cها ۱۲۳"), U"کتاب\u200Cها ۱۲۳");
  EXPECT_EQ(clean("ي ی ك ک"), U"ي ی ك ک") << "Arabic and Persian letters stay apart";
}

TEST(CleanText, DropsMarksBeforeComposing) {
  EXPECT_EQ(clean("e\uFEFF\u0301 co\u00ADop\u2060er"), U"é cooper");
}

TEST(CleanText, KeepsEmojiAndOtherPlanes) {
  EXPECT_EQ(clean("👩\u200D👧 𐐀 中文"), U"👩\u200D👧 𐐨 中文") << "Deseret has lower case, too";
}

TEST(CleanText, ExpandsFarBeyondItsInput) {
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += "\U0001D160";  // one character that normalises to three, of two units each
  EXPECT_EQ(clean(text).size(), 3000u);
}

TEST(CleanText, NamesTheFirstByteThatIsNotUtf8) {
  const auto error = [](std::string_view text) { return error_of([&] { clean(text); }); };
  EXPECT_EQ(error("sixteen letters.\xE9 and more"), "byte 17 of the text is not valid UTF-8 (0xE9)");
  EXPECT_EQ(error("\x80"), "byte 1 of the text is not valid UTF-8 (0x80)");
  EXPECT_EQ(error("é\xC0\xAF"), "byte 3 of the text is not valid UTF-8 (0xC0)") << "overlong";
  EXPECT_EQ(error("a\xED\xA0\x80"), "byte 2 of the text is not valid UTF-8 (0xED)") << "a surrogate";
  EXPECT_EQ(error("\xF4\x90\x80\x80"), "byte 1 of the text is not valid UTF-8 (0xF4)") << "above U+10FFFF";
  EXPECT_EQ(error("ab\xE4\xB8"), "byte 3 of the text is not valid UTF-8 (0xE4)") << "cut off";
}

TEST(CleanText, AnyBytesAreCleanedOrRefused) {
  std::mt19937 random(1);
  TextScratch scratch;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    for (auto n = random() % 12; n > 0; --n) bytes += static_cast<char>(random());
    refused += !error_of([&] { clean_text(bytes, scratch); }).empty();
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 20000);
}

TEST(CleanText, CleaningTwiceChangesNothing) {
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    const std::u32string once = clean(utf8(random_text(random)));
    EXPECT_EQ(clean(utf8(once)), once) << utf8(once);
  }
}

TEST(CleanText, ScratchCarriesNothingFromOneTextToTheNext) {
  std::mt19937 random(3);
  TextScratch shared;
  for (int i = 0; i < 5000; ++i) {
    const std::string text = utf8(random_text(random));
    const auto cleaned = clean_text(text, shared);
    EXPECT_EQ(std::u32string(cleaned.begin(), cleaned.end()), clean(text));
  }
}

// ---- Symbols

class SymbolFile : public testing::Test {
 protected:
  [[nodiscard]] fs::path path() const { return folder_ / "symbols.txt"; }
  std::string load_error(std::string_view text) {
    write_file(path(), text);
    return error_of([&] { SymbolTable::load(path()); });
  }

  TempFolder folder_;
};

SymbolTable table(std::u32string_view characters) {
  return SymbolTable({characters.data(), characters.size()});
}

TEST(SymbolTable, GivesIdsInCodePointOrder) {
  const SymbolTable symbols = table(U"بbaب a中");
  EXPECT_EQ(symbols.size(), 4 + 5);
  EXPECT_EQ(symbols.id(U' '), 4);
  EXPECT_EQ(symbols.id(U'a'), 5);
  EXPECT_EQ(symbols.id(U'b'), 6);
  EXPECT_EQ(symbols.id(U'ب'), 7);
  EXPECT_EQ(symbols.id(U'中'), 8);
  for (const char32_t c : {U'c', U'\0', U'ÿ', U'پ', U'😀', static_cast<char32_t>(-1)})
    EXPECT_EQ(symbols.id(c), -1);
}

TEST(SymbolTable, TextOfIdsIsWhatTheyWereMadeOf) {
  const SymbolTable symbols = table(U"بbaب a中😀");
  std::vector<std::int32_t> ids = {SymbolTable::bos};
  for (const char32_t c : std::u32string_view(U"ab 中ب😀a"))
    ids.insert(ids.end(), {symbols.id(c), SymbolTable::blank});
  ids.insert(ids.end(), {SymbolTable::eos, SymbolTable::pad, symbols.size(), -1});
  EXPECT_EQ(symbols.text(ids), "ab 中ب😀a");
  EXPECT_EQ(symbols.text({}), "");
}

TEST(SymbolTable, AnEmptyOneHasTheSpecialSymbolsOnly) {
  EXPECT_EQ(SymbolTable().size(), 4);
  EXPECT_EQ(SymbolTable().id(U'a'), -1);
}

TEST(SymbolTable, RefusesWhatIsNoCharacter) {
  EXPECT_EQ(error_of([] {
              table({U"\x110000", 1});
            }),
            "a symbol must be a Unicode character, but is U+110000");
  const char32_t surrogate = 0xD800;
  EXPECT_EQ(error_of([&] { table({&surrogate, 1}); }), "a symbol must be a Unicode character, but is U+D800");
}

TEST(SymbolTable, FingerprintDependsOnTheCharactersAlone) {
  EXPECT_EQ(table(U"abc").fingerprint(), table(U"cabbac").fingerprint());
  EXPECT_NE(table(U"abc").fingerprint(), table(U"abd").fingerprint());
  EXPECT_NE(table(U"abc").fingerprint(), table(U"ab").fingerprint());
  EXPECT_NE(table(U"").fingerprint(), table({U"\0", 1}).fingerprint());
}

TEST_F(SymbolFile, RoundTripsEveryKindOfCharacter) {
  const std::u32string characters =
      U"a \t\n\r\u001B\u007F\u0085é\u00A0\u0301چ\u200C\u2028\uFEFF中😀\U0010FFFF" + std::u32string(1, U'\0');
  table(characters).save(path());
  const SymbolTable loaded = SymbolTable::load(path());
  EXPECT_EQ(loaded.fingerprint(), table(characters).fingerprint());
  for (const char32_t c : characters) EXPECT_EQ(loaded.id(c), table(characters).id(c)) << std::uint32_t{c};
  EXPECT_EQ(loaded.size(), table(characters).size());
}

TEST_F(SymbolFile, IsPlainText) {
  table(U" aچ\u200C").save(path());
  EXPECT_EQ(read_text(path()),
            "penstock-symbols\t1\t8\n0\tPAD\n1\tBOS\n2\tEOS\n3\tBLANK\n4\tU+0020\n5\tU+0061\ta\n6\tU+"
            "0686\tچ\n7\tU+200C\n");
}

TEST_F(SymbolFile, NamesEveryMalformedLine) {
  const std::string special = "0\tPAD\n1\tBOS\n2\tEOS\n3\tBLANK\n";
  const auto with = [&](std::string_view lines, int symbols = 6) {
    return load_error(fmt::format("penstock-symbols\t1\t{}\n{}{}", symbols, special, lines));
  };
  const auto names_line = [&](const std::string& error, int line) {
    return error.starts_with(fmt::format("{}:{}: expected ", path().string(), line));
  };
  ASSERT_EQ(with("4\tU+0061\ta\n5\tU+0062\tb\n"), "");
  ASSERT_EQ(with("4\tU+0061\n5\tU+0062\n"), "") << "the character's picture may be missing";

  EXPECT_PRED2(names_line, load_error(""), 1);
  EXPECT_PRED2(names_line, load_error("4\tU+0061\ta\n"), 1);
  EXPECT_PRED2(names_line, load_error("penstock-symbols\t2\t4\n" + special), 1);
  EXPECT_PRED2(names_line, load_error("penstock-symbols\t1\t3\n" + special), 1);
  EXPECT_PRED2(names_line, load_error("penstock-symbols\t1\tfour\n" + special), 1);
  EXPECT_PRED2(names_line, load_error("penstock-symbols\t1\t4\n0\tPAD\n1\tEOS\n"), 3);
  EXPECT_PRED2(names_line, with("4\tU+0061\ta\n"), 7);
  EXPECT_PRED2(names_line, with("4\tU+0061\ta\n5\tU+0062\tb"), 7);
  EXPECT_PRED2(names_line, with("4\tU+0061\ta\n5\tU+0062\tb\n6\tU+0063\tc\n"), 8);
  EXPECT_PRED2(names_line, with("4\tU+0061\ta\n\n5\tU+0062\tb\n"), 7);
  EXPECT_PRED2(names_line, with("5\tU+0061\ta\n5\tU+0062\tb\n"), 6);
  EXPECT_PRED2(names_line, with("4\tU+0061\tb\n5\tU+0062\tb\n"), 6);
  EXPECT_PRED2(names_line, with("4\tU+0061\ta\r\n5\tU+0062\tb\n"), 6);
  EXPECT_PRED2(names_line, with("4 U+0061 a\n5\tU+0062\tb\n"), 6);
  EXPECT_PRED2(names_line, with("4\tU+61\ta\n5\tU+0062\tb\n"), 6);
  EXPECT_PRED2(names_line, with("4\tU+D800\n5\tU+0062\tb\n"), 6);
  EXPECT_PRED2(names_line, with("4\tU+110000\n5\tU+0062\tb\n"), 6);
  EXPECT_PRED2(names_line, with("4\tU+999999999999\n5\tU+0062\tb\n"), 6);
  EXPECT_PRED2(names_line, with("4\tU+0062\tb\n5\tU+0061\ta\n"), 7);
  EXPECT_PRED2(names_line, with("4\tU+0061\ta\n5\tU+0061\ta\n"), 7);
}

TEST_F(SymbolFile, AMissingFileIsNamed) {
  EXPECT_EQ(error_of([&] { SymbolTable::load(path()); }),
            path().string() + ": cannot be read: No such file or directory");
}

// ---- Tokens

using Ids = std::vector<std::int32_t>;

Ids encode(const Tokenizer& tokenizer, std::string_view text, std::size_t room = 1000) {
  TextScratch scratch;
  Ids ids(room, -7);
  const std::int32_t n = tokenizer.encode(text, ids, scratch);
  for (std::size_t i = static_cast<std::size_t>(n); i < room; ++i)
    EXPECT_EQ(ids[i], -7) << "touched behind the tokens";
  ids.resize(static_cast<std::size_t>(n));
  return ids;
}

TEST(Tokenizer, PutsTheTextBetweenBosAndEos) {
  const auto tokenizer = character_tokenizer(table(U" ab"), {});
  EXPECT_EQ(encode(*tokenizer, "  B a "), (Ids{1, 6, 4, 5, 2}));
  EXPECT_EQ(encode(*tokenizer, ""), (Ids{1, 2}));
}

TEST(Tokenizer, PutsBlanksAroundEverySymbol) {
  const auto tokenizer = character_tokenizer(table(U" ab"), {.add_blank = true});
  EXPECT_EQ(encode(*tokenizer, "ab"), (Ids{3, 1, 3, 5, 3, 6, 3, 2, 3}));
  EXPECT_EQ(encode(*tokenizer, ""), (Ids{3, 1, 3, 2, 3}));
}

TEST(Tokenizer, FillsExactlyTheRoomThatLengthPromises) {
  for (const bool add_blank : {false, true}) {
    const auto tokenizer = character_tokenizer(table(U"a"), {.add_blank = add_blank});
    const auto length = static_cast<std::size_t>(tokenizer->length(3));
    EXPECT_EQ(encode(*tokenizer, "aaa", length).size(), length);
    EXPECT_EQ(error_of([&] { encode(*tokenizer, "aaa", length - 1); }),
              fmt::format("the text must become at most {} tokens, but becomes {}", length - 1, length));
  }
}

TEST(Tokenizer, NamesACharacterThatIsNotInTheTable) {
  const auto tokenizer = character_tokenizer(table(U"a"), {});
  EXPECT_EQ(error_of([&] { encode(*tokenizer, "aچ"); }), "character U+0686 'چ' is not in the symbol table");
  EXPECT_EQ(error_of([&] { encode(*tokenizer, "a\u200C"); }), "character U+200C is not in the symbol table");
  EXPECT_EQ(error_of([&] { encode(*tokenizer, "\xFF"); }), "byte 1 of the text is not valid UTF-8 (0xFF)");
}

TEST(Tokenizer, IdsLookedUpGiveTheCleanedCharactersBack) {
  std::mt19937 random(4);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = utf8(random_text(random));
    const std::u32string cleaned = clean(text);
    const SymbolTable symbols = table(cleaned);
    const auto tokenizer = character_tokenizer(symbols, {});
    std::u32string back;
    for (const std::int32_t id : encode(*tokenizer, text))
      if (id >= SymbolTable::first_character) back += symbols.characters()[static_cast<std::size_t>(id) - 4];
    EXPECT_EQ(back, cleaned);
    EXPECT_EQ(encode(*tokenizer, text).size(), tokenizer->length(static_cast<std::int32_t>(cleaned.size())));
  }
}

TEST(Tokenizer, FingerprintTellsTablesAndBlanksApart) {
  const auto fingerprint = [](std::u32string_view characters, bool add_blank) {
    return character_tokenizer(table(characters), {.add_blank = add_blank})->fingerprint();
  };
  EXPECT_EQ(fingerprint(U"ab", false), fingerprint(U"ba", false));
  EXPECT_NE(fingerprint(U"ab", false), fingerprint(U"ab", true));
  EXPECT_NE(fingerprint(U"ab", false), fingerprint(U"ac", false));
}

}  // namespace
}  // namespace penstock
