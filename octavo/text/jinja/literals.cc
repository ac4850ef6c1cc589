#include "octavo/text/jinja/literals.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "octavo/text/jinja/unicode.h"

namespace octavo::text::jinja {
namespace {

char lowered(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = lowered(c);
  return low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;
}

// Bytes of digits below `base`, single underscores between them.
std::size_t digits(std::string_view text, int base) {
  std::size_t end = 0;
  while (end < text.size()) {
    if (digit_value(text[end]) < base) {
      ++end;
    } else if (text[end] == '_' && end > 0 && end + 1 < text.size() &&
               digit_value(text[end + 1]) < base) {
      ++end;
    } else {
      break;
    }
  }
  return end;
}

std::string_view stripped(std::string_view text) {
  text.remove_prefix(leading_space(text));
  text.remove_suffix(trailing_space(text));
  return text;
}

// The base that a prefix names, or 0.
int prefixed_base(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  const char letter = lowered(text[1]);
  return letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 0;
}

int hex_digits(std::string_view text, std::size_t count) {
  if (text.size() < count) return -1;
  int value = 0;
  for (const char c : text.substr(0, count)) {
    if (digit_value(c) >= 16) return -1;
    value = value * 16 + digit_value(c);
    if (value > 0x10FFFF) return -1;
  }
  return value;
}

}  // namespace

std::size_t float_literal(std::string_view text) {
  const std::size_t whole = digits(text, 10);
  if (whole == 0) return 0;
  std::size_t end = whole;
  if (end < text.size() && text[end] == '.') {
    const std::size_t fraction = digits(text.substr(end + 1), 10);
    if (fraction > 0) end += 1 + fraction;
  }
  if (end < text.size() && lowered(text[end]) == 'e') {
    std::size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const std::size_t size = exponent < text.size() ? digits(text.substr(exponent), 10) : 0;
    if (size > 0) return exponent + size;
  }
  return end > whole ? end : 0;
}

std::size_t integer_literal(std::string_view text) {
  if (const int base = prefixed_base(text)) {
    // A first underscore may follow the prefix.
    const std::size_t skip = text.size() > 2 && text[2] == '_' ? 3 : 2;
    if (const std::size_t size = digits(text.substr(skip), base)) return skip + size;
  }
  // No other digit follows a first 0.
  return text[0] == '0' ? digits(text, 1) : digits(text, 10);
}

std::optional<std::int64_t> parse_integer(std::string_view text, int base, bool* overflow) {
  text = stripped(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const int prefix = prefixed_base(text);
  if (prefix != 0 && (base == 0 || base == prefix)) {
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
    base = prefix;
  } else if (base == 0) {
    // A leading 0 is for zero alone.
    if (text.starts_with('0') && text.find_first_not_of("0_") != text.npos) return std::nullopt;
    base = 10;
  }
  if (text.empty() || digits(text, base) != text.size()) return std::nullopt;
  std::string plain(negative ? "-" : "");
  for (const char c : text) {
    if (c != '_') plain += c;
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value, base);
  if (error != std::errc{}) {
    if (overflow != nullptr) *overflow = true;
    return std::nullopt;
  }
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  text = stripped(text);
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_digit_at = [&](std::size_t at) {
      return at < text.size() && digit_value(text[at]) < 10;
    };
    if (text[i] == '_') {
      if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return std::nullopt;
    } else {
      plain += lowered(text[i]);
    }
  }
  const bool negative = plain.starts_with('-');
  if (negative || plain.starts_with('+')) plain.erase(0, 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double value = 0;
  if (plain == "inf" || plain == "infinity") {
    value = kInfinity;
  } else if (plain == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (plain.empty() || (digit_value(plain[0]) >= 10 && plain[0] != '.')) return std::nullopt;
    const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
    if (end != plain.data() + plain.size()) return std::nullopt;
    if (error == std::errc::result_out_of_range) {
      // from_chars does not say which way; the exponent does.
      const std::size_t e = plain.find('e');
      const bool tiny = e != plain.npos ? plain[e + 1] == '-' : plain.starts_with("0");
      value = tiny ? 0.0 : kInfinity;
    } else if (error != std::errc{}) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

Result<std::string> unescape(std::string_view text) {
  static constexpr std::string_view kLetters = "\\'\"abfnrtv";
  static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      result += text[i];
      continue;
    }
    const char c = text[++i];
    if (c == '\n') continue;
    if (const std::size_t letter = kLetters.find(c); letter != kLetters.npos) {
      result += kMeanings[letter];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const int code = hex_digits(text.substr(i + 1), count);
      if (code < 0)
        return fail(ErrorCode::bad_file,
                    fmt::format("\\{} in a string needs {} hex digits", c, count));
      if (code >= 0xD800 && code <= 0xDFFF)
        return fail(ErrorCode::unsupported, "a string holds half of a surrogate pair; write \\U");
      append_utf8(result, static_cast<char32_t>(code));
      i += count;
    } else if (c >= '0' && c <= '7') {
      CodePoint code = 0;
      std::size_t count = 0;
      for (; count < 3 && i + count < text.size() && digit_value(text[i + count]) < 8; ++count)
        code = code * 8 + digit_value(text[i + count]);
      append_utf8(result, static_cast<char32_t>(code));
      i += count - 1;
    } else if (c == 'N') {
      return fail(ErrorCode::unsupported, "\\N in a string is not supported; write \\u");
    } else {
      result += '\\';
      result += c;
    }
  }
  return result;
}

}  // namespace octavo::text::jinja
