#include "penstock/synth/sentences.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace penstock {
namespace {

/// One of the two columns while it grows.
class Column {
 public:
  void capital_next() { capital_ = true; }
  void article_next() { article_ = true; }

  void put(std::string_view piece) {
    if (piece.empty() || (article_ && piece == " ")) return;  // an article brings its own space
    if (std::exchange(article_, false)) put(is_vowel(piece.front()) ? "an " : "a ");
    text_ += piece;
    if (!std::exchange(capital_, false)) return;
    char& first = text_[text_.size() - piece.size()];
    if (first >= 'a' && first <= 'z') first = static_cast<char>(first - 'a' + 'A');
  }

  std::string& text() { return text_; }

 private:
  static bool is_vowel(char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; }

  std::string text_;
  bool capital_ = false;
  bool article_ = false;
};

class Expansion {
 public:
  Expansion(const Language& language, Draws& draws) : language_(language), draws_(draws) {}

  Line line() {
    rule("text");
    return {std::move(written_.text()), std::move(spoken_.text())};
  }

 private:
  void pattern(std::string_view p) {
    while (!p.empty()) {
      const char c = p.front();
      if (c == '^') {
        written_.capital_next(), spoken_.capital_next();
        p.remove_prefix(1);
      } else if (c == '{' || c == '[') {
        const auto end = p.find(c == '{' ? '}' : ']');
        c == '{' ? slot(p.substr(1, end - 1)) : both_forms(p.substr(1, end - 1));
        p.remove_prefix(end + 1);
      } else {
        const auto end = std::min(p.find_first_of("^{["), p.size());
        put(p.substr(0, end), p.substr(0, end));
        p.remove_prefix(end);
      }
    }
  }

  void slot(std::string_view name) {
    if (name == "a") {
      written_.article_next(), spoken_.article_next();
    } else if (const auto dots = name.find(".."); dots != std::string_view::npos) {
      number(to_int(name.substr(0, dots)), to_int(name.substr(dots + 2)));
    } else {
      rule(name);
    }
  }

  void number(int low, int high) {
    const auto choices = static_cast<std::uint32_t>(high - low + 1);
    const int n = low + static_cast<int>(draws_.below(choices));
    put(language_.digits(n), language_.words(n));
  }

  void rule(std::string_view name) {
    const auto& choices = language_.grammar.at(name);
    std::size_t i = draws_.below(choices.size());
    for (std::size_t tries = 0; tries < choices.size() && used(&choices[i]); ++tries)
      i = (i + 1) % choices.size();
    used_.push_back(&choices[i]);
    pattern(choices[i]);
  }

  [[nodiscard]] bool used(const std::string_view* choice) const {
    return std::find(used_.begin(), used_.end(), choice) != used_.end();
  }

  void both_forms(std::string_view forms) {
    const auto middle = forms.find('=');
    put(forms.substr(0, middle), forms.substr(middle + 1));
  }

  void put(std::string_view written, std::string_view spoken) {
    written_.put(written);
    spoken_.put(spoken);
  }

  static int to_int(std::string_view digits) {
    int n = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), n);
    return n;
  }

  const Language& language_;
  Draws& draws_;
  Column written_, spoken_;
  std::vector<const std::string_view*> used_;
};

}  // namespace

const Language& language_of(std::string_view voice) {
  const auto name = voice.substr(0, voice.find('+'));
  return name == "fa" ? persian() : english();
}

Line compose(const Language& language, double wanted, Draws& draws) {
  constexpr int candidates = 48;
  Line best;
  double best_distance = HUGE_VAL;
  for (int i = 0; i < candidates; ++i) {
    Line line = Expansion(language, draws).line();
    const double distance = std::abs(static_cast<double>(characters(line.spoken)) - wanted);
    if (distance >= best_distance) continue;
    best = std::move(line);
    best_distance = distance;
  }
  return best;
}

std::size_t characters(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // every byte but those that continue a character
  }));
}

Grammar parse_grammar(std::initializer_list<std::pair<std::string_view, std::string_view>> rules) {
  Grammar grammar;
  for (auto [name, choices] : rules) {
    auto& list = grammar[name];
    for (std::size_t end; (end = choices.find('|')) != std::string_view::npos; choices.remove_prefix(end + 1))
      list.push_back(choices.substr(0, end));
    list.push_back(choices);
  }
  return grammar;
}

}  // namespace penstock
