#include "octavo/text/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "octavo/text/jinja/operators.h"
#include "octavo/text/jinja/unicode.h"

namespace octavo::text::jinja {
namespace {

constexpr int kMaxWidth = 100'000;
constexpr int kMaxPrecision = 1000;

// What stands between % and a letter, or behind a colon.
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, or 0: as the type has it
  char sign = '-';
  bool alternate = false;
  bool zeros = false;
  int width = 0;
  bool grouped = false;
  int precision = -1;
  char type = 0;
};

// Reads digits; -1 where there are none.
int read_number(std::string_view text, std::size_t& at, int most) {
  int value = -1;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = std::max(value, 0) * 10 + (text[at] - '0');
    if (value > most) fail_render(fmt::format("a format of more than {} characters", most));
  }
  return value;
}

// The digits of a number behind its sign, before padding.
std::string float_digits(double value, const Spec& spec) {
  const char type = spec.type == 0 ? 'g' : spec.type;
  if (std::isnan(value)) return type == 'F' || type == 'E' || type == 'G' ? "NAN" : "nan";
  if (std::isinf(value)) return type == 'F' || type == 'E' || type == 'G' ? "INF" : "inf";
  if (spec.type == 0 && spec.precision < 0) return float_repr(std::fabs(value));
  const char c_type = type == '%' ? 'f' : type;
  const std::string pattern = std::string("%") + (spec.alternate ? "#" : "") + ".*" + c_type;
  const double shown = std::fabs(type == '%' ? value * 100 : value);
  const int precision = spec.precision < 0 ? 6 : spec.precision;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int size = std::snprintf(nullptr, 0, pattern.c_str(), precision, shown);
  std::string digits(static_cast<std::size_t>(size) + 1, '\0');
  std::snprintf(digits.data(), digits.size(), pattern.c_str(), precision, shown);
#pragma GCC diagnostic pop
  digits.pop_back();
  if (spec.type == 0 && digits.find_first_not_of("0123456789") == digits.npos) digits += ".0";
  return type == '%' ? digits + "%" : digits;
}

std::string integer_digits(std::int64_t value, const Spec& spec) {
  const std::uint64_t size =
      value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  switch (spec.type) {
    case 'x':
      return (spec.alternate ? "0x" : "") + fmt::format("{:x}", size);
    case 'X':
      return (spec.alternate ? "0X" : "") + fmt::format("{:X}", size);
    case 'o':
      return (spec.alternate ? "0o" : "") + fmt::format("{:o}", size);
    case 'b':
      return (spec.alternate ? "0b" : "") + fmt::format("{:b}", size);
    default:
      return fmt::format("{}", size);
  }
}

// Commas between groups of three digits before the point.
std::string with_commas(const std::string& digits) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string result;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < whole && (whole - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result;
}

std::string pad(const std::string& sign, const std::string& body, char align, const Spec& spec,
                Budget& budget) {
  const auto size = static_cast<int>(count_code_points(sign) + count_code_points(body));
  const int missing = std::max(spec.width - size, 0);
  budget.build(sign.size() + body.size() + static_cast<std::size_t>(missing) * spec.fill.size());
  const auto filled = [&](int count) {
    std::string result;
    for (int i = 0; i < count; ++i) result += spec.fill;
    return result;
  };
  switch (align) {
    case '<':
      return sign + body + filled(missing);
    case '^':
      return filled(missing / 2) + sign + body + filled(missing - missing / 2);
    case '=':
      return sign + filled(missing) + body;
    default:
      return filled(missing) + sign + body;
  }
}

std::string format_number(const Value& value, Spec spec, Budget& budget) {
  const auto integer = value.as_integer();
  const bool as_integer =
      integer &&
      (spec.type == 0 || std::string_view("dioxXbu").find(spec.type) != std::string_view::npos);
  const bool negative = as_integer ? *integer < 0 : std::signbit(value.as_double());
  std::string digits =
      as_integer ? integer_digits(*integer, spec) : float_digits(value.as_double(), spec);
  if (as_integer && spec.precision > static_cast<int>(digits.size()))
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  if (spec.grouped) digits = with_commas(digits);
  const std::string sign = negative           ? "-"
                           : spec.sign != '-' ? std::string(1, spec.sign)
                                              : std::string();
  if (spec.zeros && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  return pad(sign, digits, spec.align == 0 ? '>' : spec.align, spec, budget);
}

std::string format_text(std::string_view text, const Spec& spec, char align, Budget& budget) {
  if (spec.precision >= 0)
    text = text.substr(0, byte_offset(text, static_cast<std::size_t>(spec.precision)));
  return pad("", std::string(text), align, spec, budget);
}

// One conversion of `%`.
std::string convert(const Value& value, Spec spec, Budget& budget) {
  const char align = spec.align == '<' ? '<' : '>';
  spec.fill = " ";
  switch (spec.type) {
    case 's':
      return format_text(to_text(value, budget), spec, align, budget);
    case 'r':
    case 'a':
      return format_text(repr(value, budget), spec, align, budget);
    case 'c': {
      if (const std::string* text = value.as_text(); text && count_code_points(*text) == 1)
        return format_text(*text, spec, align, budget);
      const auto code = value.as_integer();
      if (!code || *code < 0 || *code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF))
        fail_render("%c needs a character");
      std::string text;
      append_utf8(text, static_cast<char32_t>(*code));
      return format_text(text, spec, align, budget);
    }
    default:
      break;
  }
  if (value.is<Undefined>()) fail_render(*value.get<Undefined>()->why);
  if (!value.is_number())
    fail_render(fmt::format("%{} needs a number, not '{}'", spec.type, type_name(value)));
  if (std::string_view("diu").find(spec.type) != std::string_view::npos && value.is<double>()) {
    const double real = value.as_double();
    if (!(std::fabs(real) < 0x1p63)) fail_render("an integer does not fit in 64 bits");
    return format_number(Value(static_cast<std::int64_t>(real)), spec, budget);
  }
  if (std::string_view("xXo").find(spec.type) != std::string_view::npos && value.is<double>())
    fail_render(fmt::format("%{} needs an integer", spec.type));
  return format_number(value, spec, budget);
}

}  // namespace

std::string percent_format(std::string_view text, const Value& values, Budget& budget) {
  const auto* tuple = values.get<std::shared_ptr<const Tuple>>();
  std::size_t used = 0;
  const auto next_value = [&]() -> Value {
    if (tuple == nullptr && used++ == 0) return values;
    if (tuple != nullptr && used < (*tuple)->items.size()) return (*tuple)->items[used++];
    fail_render("a format has more places than values");
  };
  bool by_name = false;
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '%') {
      result += text[at++];
      continue;
    }
    ++at;
    Spec spec;
    std::optional<Value> named;
    if (at < text.size() && text[at] == '(') {
      const std::size_t end = text.find(')', at);
      if (end == text.npos || values.as_dict() == nullptr) fail_render("%(name) needs a dict");
      const Value* found = values.as_dict()->find(text.substr(at + 1, end - at - 1));
      if (found == nullptr) fail_render("a format names what the dict does not have");
      named = *found;
      by_name = true;
      at = end + 1;
    }
    for (; at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string_view::npos;
         ++at) {
      if (text[at] == '-') spec.align = '<';
      if (text[at] == '+' || (text[at] == ' ' && spec.sign == '-')) spec.sign = text[at];
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0') spec.zeros = true;
    }
    if (at < text.size() && text[at] == '*') fail_unsupported("* in a format is not supported");
    spec.width = std::max(read_number(text, at, kMaxWidth), 0);
    if (at < text.size() && text[at] == '.')
      spec.precision = std::max(read_number(text, ++at, kMaxPrecision), 0);
    if (at == text.size()) fail_render("a format ends inside a conversion");
    spec.type = text[at++];
    if (spec.type == '%') {
      result += '%';
    } else if (std::string_view("diouxXeEfFgGcrsa").find(spec.type) == std::string_view::npos) {
      fail_render("a format has an unknown conversion");
    } else {
      result += convert(named ? *named : next_value(), spec, budget);
    }
    budget.check_size(result.size());
  }
  const bool unused = tuple != nullptr ? used < (*tuple)->items.size()
                                       : used == 0 && values.as_dict() == nullptr &&
                                             !values.is<std::shared_ptr<const List>>();
  if (!by_name && unused) fail_render("a format has fewer places than values");
  budget.build(result.size());
  return result;
}

namespace {

Spec parse_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t i) {
    return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
  };
  std::size_t first = 0;
  if (!text.empty()) next_code_point(text, first);
  if (is_align(first) && first > 0) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    at = first + 1;
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  const auto skip = [&](char c) {
    if (at >= text.size() || text[at] != c) return false;
    ++at;
    return true;
  };
  if (skip('+')) {
    spec.sign = '+';
  } else if (skip(' ')) {
    spec.sign = ' ';
  } else {
    skip('-');
  }
  spec.alternate = skip('#');
  spec.zeros = skip('0');
  spec.width = std::max(read_number(text, at, kMaxWidth), 0);
  spec.grouped = skip(',');
  if (skip('.')) {
    spec.precision = read_number(text, at, kMaxPrecision);
    if (spec.precision < 0) fail_render("a format lacks its precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) fail_render("a format is malformed");
  return spec;
}

std::string format_value(const Value& value, std::string_view text, Budget& budget) {
  if (text.empty()) return to_text(value, budget);
  const Spec spec = parse_spec(text);
  if (const std::string* string = value.as_text()) {
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.grouped ||
        spec.sign != '-' || spec.alternate)
      fail_render("a format does not fit a text");
    Spec filled = spec;
    if (spec.zeros && spec.align == 0) filled.fill = "0";
    return format_text(*string, filled, spec.align == 0 ? '<' : spec.align, budget);
  }
  const bool real = value.is<double>();
  const std::string_view types = real ? "eEfFgG%" : "dxXobeEfFgG%";
  if (!value.is_number()) fail_render(fmt::format("'{}' takes no format", type_name(value)));
  if (value.is<bool>() && spec.type == 0) fail_unsupported("a format of a boolean");
  if (spec.type != 0 && types.find(spec.type) == types.npos)
    fail_render(fmt::format("the format '{}' does not fit '{}'", spec.type, type_name(value)));
  const bool integer = !real && (spec.type == 0 || std::string_view("dxXob").find(spec.type) !=
                                                       std::string_view::npos);
  if (integer && spec.precision >= 0) fail_render("an integer has no precision");
  if (spec.zeros && spec.grouped) fail_unsupported("zeros and commas in one format");
  return format_number(value, spec, budget);
}

// The numbering of fields: all of them count, or all have numbers.
struct Numbering {
  std::size_t next = 0;
  bool by_hand = false;
};

// The value that a field names: `0`, `name`, `0.attribute[index]`.
Value field_value(std::string_view field, const Arguments& arguments, Numbering& numbering,
                  Budget& budget) {
  const std::size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view first = field.substr(0, end);
  const auto positional = [&](std::size_t i) {
    if (i >= arguments.positional.size()) fail_render("format: there is no such argument");
    return arguments.positional[i];
  };
  Value value;
  if (first.empty()) {
    if (numbering.by_hand) fail_render("format: fields with and without numbers");
    value = positional(numbering.next++);
  } else if (first.find_first_not_of("0123456789") == first.npos) {
    if (numbering.next > 0) fail_render("format: fields with and without numbers");
    numbering.by_hand = true;
    std::size_t at = 0;
    value = positional(static_cast<std::size_t>(read_number(first, at, kMaxWidth)));
  } else {
    const auto found =
        std::ranges::find(arguments.named, first, [](const auto& entry) { return entry.first; });
    if (found == arguments.named.end()) fail_render("format: there is no such argument");
    value = found->second;
  }
  for (std::size_t at = end; at < field.size();) {
    if (field[at] == '.') {
      const std::size_t stop = std::min(field.find_first_of(".[", at + 1), field.size());
      value = get_attribute(value, field.substr(at + 1, stop - at - 1), budget);
      at = stop;
    } else {
      const std::size_t stop = field.find(']', at);
      if (field[at] != '[' || stop == field.npos) fail_render("format: a field is malformed");
      const std::string key(field.substr(at + 1, stop - at - 1));
      std::size_t digits = 0;
      const bool number = key.find_first_not_of("0123456789") == key.npos && !key.empty();
      value = get_item(
          value,
          number ? Value(std::int64_t{read_number(key, digits, kMaxWidth)}) : Value::text(key),
          budget);
      at = stop + 1;
    }
  }
  return value;
}

}  // namespace

std::string brace_format(std::string_view text, const Arguments& arguments, Budget& budget) {
  std::string result;
  Numbering numbering;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at++];
    if (c != '{' && c != '}') {
      result += c;
      continue;
    }
    if (at < text.size() && text[at] == c) {
      result += c;
      ++at;
      continue;
    }
    const std::size_t end = text.find('}', at);
    if (c == '}' || end == text.npos) fail_render("format: a brace is alone");
    std::string_view field = text.substr(at, end - at);
    if (field.find('{') != field.npos) fail_unsupported("format: a field inside a field");
    at = end + 1;
    const std::size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = colon < field.size() ? field.substr(colon + 1) : "";
    field = field.substr(0, colon);
    const std::size_t mark = std::min(field.find('!'), field.size());
    const std::string_view conversion = field.substr(mark);
    Value value = field_value(field.substr(0, mark), arguments, numbering, budget);
    if (conversion == "!r") {
      value = Value::text(repr(value, budget));
    } else if (conversion == "!s") {
      value = Value::text(to_text(value, budget));
    } else if (!conversion.empty()) {
      fail_render("format: an unknown conversion");
    }
    result += format_value(value, spec, budget);
    budget.check_size(result.size());
  }
  return result;
}

}  // namespace octavo::text::jinja
