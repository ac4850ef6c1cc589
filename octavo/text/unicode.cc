#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "octavo/text/unicode_changes.h"
#include "octavo/text/unicode_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

utf8proc_category_t category_of(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(stand_in(code)));
}

// Canonical order: marks between two starters by their class, equal classes as they stand.
void sort_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto mark_class = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  for (std::size_t begin = 0; begin < codes.size(); ++begin) {
    if (mark_class(codes[begin]) == 0) continue;
    std::size_t end = begin + 1;
    while (end < codes.size() && mark_class(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(begin),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    begin = end;
  }
}

// Of the code points below, none changes in the form or takes part in a change.
char32_t first_affected(NormalForm form) {
  switch (form) {
    case NormalForm::nfc:
      return 0x300;
    case NormalForm::nfd:
      return 0xC0;
    default:
      return 0xA0;
  }
}

}  // namespace

char32_t stand_in(char32_t code) {
  const auto* const range = std::ranges::lower_bound(
      kUnicodeChanges, code, {}, [](const UnicodeChange& change) { return change.last; });
  return range != kUnicodeChanges.end() && range->first <= code ? range->stand_in : code;
}

bool has_changed_codes(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    // None of them has two bytes.
    const unsigned bytes = unit_bytes(text[at]);
    if (bytes > 2) {
      const char32_t code = first_code(text.substr(at));
      if (stand_in(code) != code) return true;
    }
    at += bytes;
  }
  return false;
}

std::string with_stand_ins(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += unit_bytes(text[at]))
    append_utf8(result, stand_in(first_code(text.substr(at))));
  return result;
}

bool is_space(char32_t code) {
  if (code <= 0x20) return code == 0x20 || (code >= 0x09 && code <= 0x0D);
  if (code < 0x1680) return code == 0x85 || code == 0xA0;
  return code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_numeric(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  const utf8proc_category_t category = category_of(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return code > 0x20 && code < 0x7F && !is_numeric(code) &&
           ((code | 0x20) < 'a' || (code | 0x20) > 'z');
  }
  const utf8proc_category_t category = category_of(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t code) {
  constexpr char32_t kNonJoiner = 0x200C;
  constexpr char32_t kJoiner = 0x200D;
  // So, and alphabetic.
  const bool circled_letter =
      (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
      (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
  if (circled_letter || code == kNonJoiner || code == kJoiner) return true;
  const utf8proc_category_t category = category_of(code);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

std::string normalized(NormalForm form, std::string_view text) {
  const bool compat = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const char32_t affected = first_affected(form);
  std::size_t same = 0;
  while (same < text.size() && first_code(text.substr(same)) < affected)
    same += unit_bytes(text[same]);
  if (same == text.size()) return std::string(text);

  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compat ? UTF8PROC_COMPAT : 0));
  // The longest decomposition of one code point (U+FDFA) has 18.
  std::array<utf8proc_int32_t, 32> parts;
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += unit_bytes(text[at])) {
    const auto code = static_cast<utf8proc_int32_t>(first_code(text.substr(at)));
    int boundary_class = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(code, parts.data(), parts.size(), options, &boundary_class);
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  sort_marks(codes);
  auto count = static_cast<utf8proc_ssize_t>(codes.size());
  if (compose) {
    count = utf8proc_normalize_utf32(
        codes.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  }
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(result, static_cast<char32_t>(codes[static_cast<std::size_t>(i)]));
  return result;
}

std::string lowered(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += unit_bytes(text[at])) {
    const char32_t code = first_code(text.substr(at));
    // The one code point whose lower case is two.
    if (code == 0x130) {
      result += "i\xCC\x87";
    } else {
      append_utf8(result,
                  static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
    }
  }
  return result;
}

}  // namespace octavo::text
