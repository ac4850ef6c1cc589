// Filters of one text or number.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/text/jinja/filters.h"
#include "octavo/text/jinja/format.h"
#include "octavo/text/jinja/json_text.h"
#include "octavo/text/jinja/literals.h"
#include "octavo/text/jinja/operators.h"
#include "octavo/text/jinja/search.h"

namespace octavo::text::jinja {
namespace {

// What filters of text see: str() of anything.
std::string text_of(Renderer& renderer, const Value& value) {
  return to_text(value, renderer.budget());
}

Value made(Renderer& renderer, std::string text, bool markup = false) {
  renderer.budget().build(text.size());
  return Value::text(std::move(text), markup);
}

template <std::string (*change)(std::string_view)>
Value case_filter(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "a filter of text", {});
  return made(renderer, change(text_of(renderer, value)));
}

// Words begin after white space and after one of - ( { [ <.
std::string titled(std::string_view text) {
  std::string result;
  std::string word;
  const auto flush = [&] {
    result += to_capitalized(word);
    word.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const CodePoint code = next_code_point(text, at);
    if (is_space(code) || (code < 0x80 && std::string_view("-({[<").find(static_cast<char>(code)) !=
                                              std::string_view::npos)) {
      flush();
      result += text.substr(begin, at - begin);
    } else {
      word += text.substr(begin, at - begin);
    }
  }
  flush();
  return result;
}

Value trim(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "trim", {"chars"});
  const std::string* characters =
      given[0] && !given[0]->is<None>() ? &need_text(*given[0], "trim") : nullptr;
  const std::string text = text_of(renderer, value);
  return made(renderer, std::string(strip(text, characters, true, true)), value.is_markup());
}

Value string(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "string", {});
  return value.is_text() ? value : made(renderer, text_of(renderer, value));
}

Value safe(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "safe", {});
  return made(renderer, text_of(renderer, value), true);
}

Value escape(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "escape", {});
  if (value.is_markup()) return value;
  return made(renderer, escape_html(text_of(renderer, value)), true);
}

Value force_escape(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "forceescape", {});
  return made(renderer, escape_html(text_of(renderer, value)), true);
}

Value replace(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "replace", {"old", "new", "count"}, 2);
  const std::int64_t most =
      given[2] && !given[2]->is<None>() ? need_integer(*given[2], "replace") : -1;
  return replaced(renderer, text_of(renderer, value), text_of(renderer, *given[0]),
                  text_of(renderer, *given[1]), most);
}

Value center(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "center", {"width"});
  const std::int64_t width = given[0] ? need_integer(*given[0], "center") : 80;
  return centered(renderer, text_of(renderer, value), width, " ");
}

Value indent(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "indent", {"width", "first", "blank"});
  std::string indention = "    ";
  if (given[0] && given[0]->is_text()) {
    indention = *given[0]->as_text();
  } else if (given[0]) {
    const std::int64_t width = std::max<std::int64_t>(need_integer(*given[0], "indent"), 0);
    renderer.budget().build(static_cast<std::uint64_t>(width));
    indention.assign(static_cast<std::size_t>(width), ' ');
  }
  const bool blank = given[2] && is_true(*given[2]);
  const std::string text = need_text(value, "indent") + "\n";
  const std::vector<std::string_view> lines = split_lines(text, false);
  std::string result = given[1] && is_true(*given[1]) ? indention : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += '\n';
    if (i > 0 && (blank || !lines[i].empty())) result += indention;
    result += lines[i];
    renderer.budget().check_size(result.size());
  }
  return made(renderer, std::move(result));
}

Value truncate(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  const std::string& text = need_text(value, "truncate");
  const std::int64_t length = given[0] ? need_integer(*given[0], "truncate") : 255;
  const std::string end = given[2] ? need_text(*given[2], "truncate") : "...";
  const std::int64_t leeway =
      given[3] && !given[3]->is<None>() ? need_integer(*given[3], "truncate") : 5;
  const auto end_length = static_cast<std::int64_t>(count_code_points(end));
  if (length < end_length || leeway < 0)
    fail_render("truncate: the length is less than that of the end");
  if (static_cast<std::int64_t>(count_code_points(text)) - leeway <= length) return value;
  std::string_view cut = std::string_view(text).substr(
      0, byte_offset(text, static_cast<std::size_t>(length - end_length)));
  const bool whole_words = !(given[1] && is_true(*given[1]));
  if (const std::size_t space = cut.rfind(' '); whole_words && space != cut.npos)
    cut = cut.substr(0, space);
  return made(renderer, std::string(cut) + end);
}

Value wordcount(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "wordcount", {});
  const std::string text = text_of(renderer, value);
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint code = next_code_point(text, at);
    const bool letter = code == '_' || is_alnum(code);
    words += letter && !inside;
    inside = letter;
  }
  return Value(words);
}

Value format(Renderer& renderer, const Value& value, Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty())
    fail_render("format takes positional or named values, not both");
  Value values = Value::tuple(arguments.positional);
  if (!arguments.named.empty()) {
    auto dict = std::make_shared<Dict>(renderer.budget());
    for (const auto& [name, named] : arguments.named) dict->set(Value::text(name), named);
    values = Value(std::shared_ptr<const Dict>(std::move(dict)));
  }
  return made(renderer, percent_format(text_of(renderer, value), values, renderer.budget()));
}

Value truncated(double real) {
  if (!(std::fabs(real) < 0x1p63)) fail_render("an integer does not fit in 64 bits");
  return Value(static_cast<std::int64_t>(real));
}

Value to_integer(Renderer&, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "int", {"default", "base"});
  const std::int64_t base = given[1] ? need_integer(*given[1], "int") : 10;
  const Value otherwise = given[0].value_or(Value(std::int64_t{0}));
  if (const auto* undefined = value.get<Undefined>()) fail_render(*undefined->why);
  if (const auto integer = value.as_integer()) return Value(*integer);
  if (const double* real = value.get<double>()) {
    if (std::isnan(*real)) return otherwise;
    return truncated(*real);
  }
  const std::string* text = value.as_text();
  if (text == nullptr) return otherwise;
  bool overflow = false;
  if (base == 0 || (base >= 2 && base <= 36)) {
    if (const auto integer = parse_integer(*text, static_cast<int>(base), &overflow))
      return Value(*integer);
  }
  if (overflow) fail_render("an integer does not fit in 64 bits");
  const std::optional<double> real = parse_float(*text);
  if (!real || !std::isfinite(*real)) return otherwise;
  return truncated(*real);
}

Value to_real(Renderer&, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "float", {"default"});
  if (const auto* undefined = value.get<Undefined>()) fail_render(*undefined->why);
  if (value.is_number()) return Value(value.as_double());
  const std::string* text = value.as_text();
  const std::optional<double> real = text ? parse_float(*text) : std::nullopt;
  return real ? Value(*real) : given[0].value_or(Value(0.0));
}

Value absolute(Renderer&, const Value& value, Arguments& arguments) {
  bind(arguments, "abs", {});
  if (const auto integer = value.as_integer())
    return *integer < 0 ? negated(value) : Value(*integer);
  if (const double* real = value.get<double>()) return Value(std::fabs(*real));
  if (const auto* undefined = value.get<Undefined>()) fail_render(*undefined->why);
  fail_render(fmt::format("abs needs a number, not '{}'", type_name(value)));
}

// To nearest, ties to even, of the decimal digits.
Value round_common(const Value& value, std::int64_t precision) {
  const auto integer = value.as_integer();
  if (integer && precision >= 0) return Value(*integer);
  if (precision < 0) fail_unsupported("round to fewer than 0 digits is not supported");
  const double real = value.as_double();
  if (!std::isfinite(real) || precision > 320) return value;
  const std::optional<double> rounded = parse_float(fmt::format("{:.{}f}", real, precision));
  return Value(rounded.value_or(real));
}

Value round(Renderer&, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "round", {"precision", "method"});
  const std::int64_t precision = given[0] ? need_integer(*given[0], "round") : 0;
  const std::string method = given[1] ? need_text(*given[1], "round") : "common";
  if (const auto* undefined = value.get<Undefined>()) fail_render(*undefined->why);
  if (!value.is_number())
    fail_render(fmt::format("round needs a number, not '{}'", type_name(value)));
  if (method == "common") return round_common(value, precision);
  if (method != "ceil" && method != "floor") fail_render("round: common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.as_double() * scale;
  if (!std::isfinite(scaled)) fail_render("round: not a finite number");
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value tojson(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given =
      bind(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii_only = given[0] && is_true(*given[0]);
  style.sort_keys = given[3] && is_true(*given[3]);
  if (given[1] && !given[1]->is<None>()) {
    style.indented = true;
    style.item_separator = ",";
    if (const std::string* text = given[1]->as_text()) {
      style.indent = *text;
    } else {
      const std::int64_t width = std::max<std::int64_t>(need_integer(*given[1], "tojson"), 0);
      renderer.budget().build(static_cast<std::uint64_t>(width));
      style.indent.assign(static_cast<std::size_t>(width), ' ');
    }
  }
  if (given[2] && !given[2]->is<None>()) {
    const Values separators = all_items(*given[2], renderer.budget());
    if (separators.size() != 2) fail_render("tojson: separators are two texts");
    style.item_separator = need_text(separators[0], "tojson");
    style.key_separator = need_text(separators[1], "tojson");
  }
  return Value::text(to_json(value, style, renderer.budget()));
}

constexpr NamedFilter kFilters[] = {
    {"abs", absolute},
    {"capitalize", case_filter<to_capitalized>},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"float", to_real},
    {"forceescape", force_escape},
    {"format", format},
    {"indent", indent},
    {"int", to_integer},
    {"lower", case_filter<to_lower>},
    {"replace", replace},
    {"round", round},
    {"safe", safe},
    {"string", string},
    {"title", case_filter<titled>},
    {"tojson", tojson},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", case_filter<to_upper>},
    {"wordcount", wordcount},
};

}  // namespace

std::span<const NamedFilter> text_filters() { return kFilters; }

}  // namespace octavo::text::jinja
