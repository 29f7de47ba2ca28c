#include "penstock/synth/sentences.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace penstock {
namespace {

std::vector<Line> lines(const Language& language, int count) {
  std::vector<Line> all;
  for (int i = 0; i < count; ++i) {
    Draws draws(static_cast<std::uint64_t>(i));
    const double wanted = draws.uniform(5, 170);
    all.push_back(compose(language, wanted, draws));
  }
  return all;
}

/// The characters of a text, each as its UTF-8 bytes.
std::set<std::string> alphabet(const std::string& text) {
  std::set<std::string> all;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    all.insert(text.substr(i, end - i));
    i = end;
  }
  return all;
}

Line expand(std::string_view text, std::string_view noun = "apple") {
  const Language language{parse_grammar({{"text", text}, {"noun", noun}}), english().digits, english().words,
                          0.06};
  Draws draws(1);
  return compose(language, 20, draws);
}

std::string slots_without_a_rule(const Grammar& grammar) {
  std::string missing;
  for (const auto& [name, choices] : grammar)
    for (const auto choice : choices)
      for (auto at = choice.find('{'); at != std::string_view::npos; at = choice.find('{', at + 1)) {
        const auto slot = choice.substr(at + 1, choice.find('}', at) - at - 1);
        if (slot != "a" && slot.find("..") == std::string_view::npos && !grammar.contains(slot))
          missing += std::string(slot) + " ";
      }
  return missing;
}

TEST(Sentences, EverySlotOfAGrammarHasItsRule) {
  EXPECT_EQ(slots_without_a_rule(english().grammar), "");
  EXPECT_EQ(slots_without_a_rule(persian().grammar), "");
}

TEST(Sentences, AnArticleFitsTheWordBehindIt) {
  EXPECT_EQ(expand("^{a} {noun}.", "apple").spoken, "An apple.");
  EXPECT_EQ(expand("^{a} {noun}.", "lamp").spoken, "A lamp.");
}

TEST(Sentences, NumbersAndAbbreviationsAreSpelledOutWhereSpoken) {
  const Line line =
      expand("[Dr.=Doctor] Gray sold {42..42} maps for [£=]{20..20}[= pounds] in {1852..1852}.");
  EXPECT_EQ(line.written, "Dr. Gray sold 42 maps for £20 in 1852.");
  EXPECT_EQ(line.spoken, "Doctor Gray sold forty-two maps for twenty pounds in eighteen fifty-two.");
}

TEST(Sentences, AChoiceIsNotRepeatedWhileThereAreOthers) {
  const Line line = expand("{noun} {noun}", "apple|pear");
  EXPECT_TRUE(line.spoken == "apple pear" || line.spoken == "pear apple") << line.spoken;
}

TEST(Sentences, PersianNumbersAreInPersianDigitsAndWords) {
  EXPECT_EQ(persian().digits(1398), "۱۳۹۸");
  EXPECT_EQ(persian().words(1398), "هزار و سیصد و نود و هشت");
  EXPECT_EQ(persian().words(20), "بیست");
  EXPECT_EQ(persian().words(15), "پانزده");
}

TEST(Sentences, EnglishIsPlainAsciiWithoutDigitsWhereSpoken) {
  for (const auto& line : lines(english(), 2000)) {
    for (const auto& c : alphabet(line.spoken))
      ASSERT_NE(std::string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ,.;!?'-").find(c),
                std::string::npos)
          << c << " in " << line.spoken;
    ASSERT_TRUE(line.spoken.front() >= 'A' && line.spoken.front() <= 'Z') << line.spoken;
    ASSERT_NE(std::string(".?!").find(line.spoken.back()), std::string::npos) << line.spoken;
    ASSERT_EQ(line.written.find("  "), std::string::npos) << line.written;
    ASSERT_EQ(line.written.find_first_of("{}[]^|="), std::string::npos) << line.written;
  }
}

TEST(Sentences, PersianIsWrittenInPersianLettersAlone) {
  const auto letters = alphabet("ءآابپتثجچحخدذرزژسشصضطظعغفقکگلمنوهیئؤأًٔ ،؛؟.!\u200c");
  const auto digits = alphabet("۰۱۲۳۴۵۶۷۸۹٪");
  for (const auto& line : lines(persian(), 2000)) {
    for (const auto& c : alphabet(line.spoken))
      ASSERT_TRUE(letters.contains(c)) << c << " in " << line.spoken;
    for (const auto& c : alphabet(line.written))
      ASSERT_TRUE(letters.contains(c) || digits.contains(c)) << c << " in " << line.written;
    ASSERT_EQ(line.written.find("  "), std::string::npos) << line.written;
  }
}

TEST(Sentences, LengthsComeNearTheWantedOne) {
  for (const Language* language : {&english(), &persian()}) {
    double miss = 0;
    for (std::uint64_t i = 0; i < 500; ++i) {
      Draws draws(i);
      const double wanted = draws.uniform(20, 130);
      miss += std::abs(static_cast<double>(characters(compose(*language, wanted, draws).spoken)) - wanted);
    }
    EXPECT_LT(miss / 500, 4);
  }
}

TEST(Sentences, FewTextsRepeat) {
  std::set<std::string> long_ones;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    Draws draws(i);
    long_ones.insert(compose(english(), 90, draws).spoken);
  }
  EXPECT_GT(long_ones.size(), 990u);
}

TEST(Sentences, OnlyTheVoiceFaReadsPersian) {
  EXPECT_EQ(&language_of("fa"), &persian());
  EXPECT_EQ(&language_of("fa+f2"), &persian());
  EXPECT_EQ(&language_of("fr"), &english());
  EXPECT_EQ(&language_of("tone"), &english());
}

}  // namespace
}  // namespace penstock
