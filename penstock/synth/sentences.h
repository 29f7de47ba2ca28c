// Plausible sentences of about a wanted length, from a small grammar per language.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "penstock/synth/draws.h"

namespace penstock {

/// The two text columns of a manifest.
struct Line {
  std::string written;  ///< "Dr. Gray bought 12 candles."
  std::string spoken;   ///< "Doctor Gray bought twelve candles."
};

/// Rules by name, each a list of choices. A grammar is written as `{"food", "bread|{2..9} eggs"}`, where in a
/// choice
///   {name}       becomes a choice of that rule, one not yet used in the text if there is any left
///   {2..90}      becomes a number, in digits where written and in words where spoken
///   [Dr.=Doctor] is written in one way and spoken in the other
///   {a}          becomes `a` or `an`, as the next letter wants it
///   ^            makes the next letter a capital
using Grammar = std::unordered_map<std::string_view, std::vector<std::string_view>>;

struct Language {
  Grammar grammar;  ///< starts at the rule `text`
  std::string (*digits)(int);
  std::string (*words)(int);
  double seconds_per_character;  ///< a first guess for espeak-ng at 165 words per minute
};

const Language& english();
const Language& persian();
/// Persian for the voice `fa` and its variants (`fa+f2`), English for every other.
const Language& language_of(std::string_view voice);

/// The text whose spoken form is nearest to `wanted` characters, of some dozens that the grammar gives.
Line compose(const Language& language, double wanted, Draws& draws);

/// Unicode characters in a UTF-8 text.
std::size_t characters(std::string_view utf8);

/// A grammar's table: the choices of each rule in one string, `|` between them.
Grammar parse_grammar(std::initializer_list<std::pair<std::string_view, std::string_view>> rules);

}  // namespace penstock
