#include "penstock/features/text.h"

#include <algorithm>

#include <fmt/format.h>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/ustring.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

constexpr std::size_t longest_text = 1 << 28;  // ICU counts in 32 bits, and normalising may triple

void check(UErrorCode code) {
  if (U_FAILURE(code)) throw Error(fmt::format("text: ICU failed: {}", u_errorName(code)));
}

bool is_dropped(UChar32 c) {
  return c == 0xAD || c == 0x61C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
         c == 0x2060 || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

bool is_space(UChar32 c) { return u_isUWhiteSpace(c) || c == 0x200B; }
bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Appends characters to `out`, which must have room for all of them, with white space folded.
class Folding {
 public:
  explicit Folding(char32_t* out) : begin_(out), end_(out) {}
  void space() { pending_ = end_ != begin_; }
  void character(char32_t c) {
    if (pending_) *end_++ = U' ';
    pending_ = false;
    *end_++ = c;
  }
  [[nodiscard]] std::span<const char32_t> result() const { return {begin_, end_}; }

 private:
  char32_t *begin_, *end_;
  bool pending_ = false;
};

std::span<const char32_t> clean_ascii(std::string_view text, TextScratch& scratch) {
  Folding out(scratch.cleaned.of(text.size()).data());
  for (const char c : text) {
    if (is_ascii_space(c))
      out.space();
    else
      out.character(static_cast<char32_t>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c));
  }
  return out.result();
}

std::u16string_view decode_utf8(std::string_view text, Scratch<char16_t>& into) {
  char16_t* const out = into.of(text.size()).data();  // no character has more UTF-16 units than UTF-8 bytes
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  const auto size = static_cast<std::int32_t>(text.size());
  std::int32_t units = 0;
  for (std::int32_t i = 0; i < size;) {
    const std::int32_t start = i;
    UChar32 c;
    U8_NEXT(bytes, i, size, c);
    if (c < 0)
      throw Error(fmt::format("byte {} of the text is not valid UTF-8 (0x{:02X})", start + 1, bytes[start]));
    if (!is_dropped(c)) U16_APPEND_UNSAFE(out, units, c);
  }
  return {out, static_cast<std::size_t>(units)};
}

/// Runs an ICU function that writes to memory and says how much it would have needed.
template <typename Function>
std::u16string_view transform(std::u16string_view text, Scratch<char16_t>& into, const Function& function) {
  for (std::size_t capacity = text.size() * 3 + 1;;) {
    char16_t* const out = into.of(capacity).data();
    UErrorCode code = U_ZERO_ERROR;
    const std::int32_t size = function(out, static_cast<std::int32_t>(capacity), &code);
    if (code != U_BUFFER_OVERFLOW_ERROR) {
      check(code);
      return {out, static_cast<std::size_t>(size)};
    }
    capacity = static_cast<std::size_t>(size) + 1;
  }
}

/// The text itself where it is composed already, as nearly all text is.
std::u16string_view compose(std::u16string_view text, Scratch<char16_t>& into) {
  UErrorCode code = U_ZERO_ERROR;
  const UNormalizer2* const nfc = unorm2_getNFCInstance(&code);
  const auto size = static_cast<std::int32_t>(text.size());
  const std::int32_t composed = unorm2_spanQuickCheckYes(nfc, text.data(), size, &code);
  check(code);
  if (composed == size) return text;
  return transform(text, into, [&](char16_t* out, std::int32_t capacity, UErrorCode* e) {
    return unorm2_normalize(nfc, text.data(), size, out, capacity, e);
  });
}

std::u16string_view lower(std::u16string_view text, Scratch<char16_t>& into) {
  return transform(text, into, [&](char16_t* out, std::int32_t capacity, UErrorCode* e) {
    return u_strToLower(out, capacity, text.data(), static_cast<std::int32_t>(text.size()), "", e);
  });
}

std::span<const char32_t> fold_spaces(std::u16string_view text, Scratch<char32_t>& into) {
  Folding out(into.of(text.size()).data());
  for (std::size_t i = 0; i < text.size();) {
    UChar32 c;
    U16_NEXT_UNSAFE(text.data(), i, c);
    if (is_space(c))
      out.space();
    else
      out.character(static_cast<char32_t>(c));
  }
  return out.result();
}

}  // namespace

std::span<const char32_t> clean_text(std::string_view utf8, TextScratch& scratch) {
  if (utf8.size() > longest_text)
    throw Error(fmt::format("the text must have at most {} bytes, but has {}", longest_text, utf8.size()));
  if (std::all_of(utf8.begin(), utf8.end(), [](char c) { return (c & 0x80) == 0; }))
    return clean_ascii(utf8, scratch);

  // Each step reads one of the two scratches and writes the other.
  auto* from = &scratch.utf16;
  auto* to = &scratch.folded;
  const auto step = [&](std::u16string_view text, auto function) {
    const std::u16string_view result = function(text, *to);
    if (result.data() != text.data()) std::swap(from, to);
    return result;
  };
  std::u16string_view text = decode_utf8(utf8, *from);
  text = step(text, compose);
  text = step(text, lower);
  text = step(text, compose);
  return fold_spaces(text, scratch.cleaned);
}

}  // namespace penstock
