#include "octavo/text/jinja/unicode.h"

#include <utf8proc.h>

namespace octavo::text::jinja {
namespace {

utf8proc_category_t category(CodePoint code) { return utf8proc_category(code); }

enum class Case { upper, lower, title };

void append_cased(std::string& to, CodePoint code, Case target) {
  constexpr CodePoint kSharpS = 0xDF;
  switch (target) {
    case Case::upper:
      if (code == kSharpS) {
        to += "SS";
      } else {
        append_utf8(to, static_cast<char32_t>(utf8proc_toupper(code)));
      }
      return;
    case Case::lower:
      append_utf8(to, static_cast<char32_t>(utf8proc_tolower(code)));
      return;
    case Case::title:
      if (code == kSharpS) {
        to += "Ss";
      } else {
        append_utf8(to, static_cast<char32_t>(utf8proc_totitle(code)));
      }
      return;
  }
}

std::string all_cased(std::string_view text, Case target) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();)
    append_cased(result, next_code_point(text, at), target);
  return result;
}

}  // namespace

CodePoint next_code_point(std::string_view text, std::size_t& at) {
  const Utf8Unit unit = first_unit(text.substr(at));
  at += unit.bytes;
  return static_cast<CodePoint>(unit.code);
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += !is_continuation(c);
  return count;
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (is_continuation(text[at])) continue;
    if (index == 0) return at;
    --index;
  }
  return at;
}

std::vector<std::string_view> code_points(std::string_view text) {
  std::vector<std::string_view> result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at++;
    while (at < text.size() && is_continuation(text[at])) ++at;
    result.push_back(text.substr(begin, at - begin));
  }
  return result;
}

bool is_space(CodePoint code) {
  if (code < 0x80)
    return code == ' ' || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_alpha(CodePoint code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(CodePoint code) { return category(code) == UTF8PROC_CATEGORY_ND; }

bool is_digit(CodePoint code) {
  // Superscripts, subscripts and circled digits: digits, not decimals.
  return is_decimal(code) || code == 0xB2 || code == 0xB3 || code == 0xB9 || code == 0x2070 ||
         (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089) ||
         (code >= 0x2460 && code <= 0x2468);
}

bool is_numeric(CodePoint code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_alnum(CodePoint code) { return is_alpha(code) || is_numeric(code); }

bool is_printable(CodePoint code) {
  if (code == ' ') return true;
  const auto c = category(code);
  return c != UTF8PROC_CATEGORY_CN && !(c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_CO);
}

bool is_lower(CodePoint code) { return category(code) == UTF8PROC_CATEGORY_LL; }
bool is_upper(CodePoint code) { return category(code) == UTF8PROC_CATEGORY_LU; }
bool is_title(CodePoint code) { return category(code) == UTF8PROC_CATEGORY_LT; }

std::string to_upper(std::string_view text) { return all_cased(text, Case::upper); }
std::string to_lower(std::string_view text) { return all_cased(text, Case::lower); }

std::string to_capitalized(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const Case target = at == 0 ? Case::title : Case::lower;
    append_cased(result, next_code_point(text, at), target);
  }
  return result;
}

std::string to_title(std::string_view text) {
  std::string result;
  bool after_letter = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint code = next_code_point(text, at);
    append_cased(result, code, after_letter ? Case::lower : Case::title);
    after_letter = is_lower(code) || is_upper(code) || is_title(code);
  }
  return result;
}

std::string swap_case(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint code = next_code_point(text, at);
    append_cased(result, code, is_upper(code) ? Case::lower : Case::upper);
  }
  return result;
}

std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t next = at;
    if (!is_space(next_code_point(text, next))) break;
    at = next;
  }
  return at;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && is_continuation(text[begin])) --begin;
    std::size_t at = begin;
    if (!is_space(next_code_point(text, at))) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace octavo::text::jinja
