// The methods of Python's str.
#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/jinja/format.h"
#include "octavo/text/jinja/operators.h"
#include "octavo/text/jinja/renderer.h"
#include "octavo/text/jinja/search.h"

namespace octavo::text::jinja {
namespace {

using Method = Value (*)(Renderer&, const std::string&, Arguments&);

Value text_of(Renderer& renderer, std::string text) {
  renderer.budget().build(text.size());
  return Value::text(std::move(text));
}

Value list_of(Renderer& renderer, const std::vector<std::string_view>& parts) {
  constexpr std::size_t kElement = 64;  // more than an empty text takes
  renderer.budget().build_elements(parts.size());
  renderer.budget().text(parts.size() * kElement);
  Values items;
  for (const std::string_view part : parts) items.push_back(Value::text(std::string(part)));
  return Value::list(std::move(items));
}

// Bytes of the part that `start` and `stop`, the second and third argument, leave. Nothing where
// it begins behind the end.
struct Window {
  std::string_view text;
  std::int64_t start;  // in code points
};
std::optional<Window> window(std::string_view text, const std::optional<Value>& start,
                             const std::optional<Value>& stop, std::string_view callee) {
  const auto size = static_cast<std::int64_t>(count_code_points(text));
  const auto bound = [&](const std::optional<Value>& given, std::int64_t otherwise) {
    if (!given || given->is<None>()) return otherwise;
    const std::int64_t at = need_integer(*given, callee);
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  const std::int64_t first = bound(start, 0);
  const std::int64_t last = std::min(bound(stop, size), size);
  if (first > last) return std::nullopt;
  const std::size_t begin = byte_offset(text, static_cast<std::size_t>(first));
  const std::size_t end = byte_offset(text, static_cast<std::size_t>(last));
  return Window{text.substr(begin, end - begin), first};
}

template <bool left, bool right>
Value strip_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "strip", {""});
  const std::string* characters =
      given[0] && !given[0]->is<None>() ? &need_text(*given[0], "strip") : nullptr;
  return text_of(renderer, std::string(strip(self, characters, left, right)));
}

template <bool last>
Value split_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "split", {"sep", "maxsplit"});
  const std::int64_t most = given[1] ? need_integer(*given[1], "split") : -1;
  if (!given[0] || given[0]->is<None>())
    return list_of(renderer, last ? split_space_last(self, most) : split_space(self, most));
  const std::string& separator = need_text(*given[0], "split");
  if (separator.empty()) fail_render("split: the separator is empty");
  return list_of(renderer, last ? split_last(self, separator, most) : split(self, separator, most));
}

Value split_lines_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "splitlines", {"keepends"});
  return list_of(renderer, split_lines(self, given[0] && is_true(*given[0])));
}

template <bool at_end>
Value affix_method(Renderer&, const std::string& self, Arguments& arguments) {
  const std::string_view callee = at_end ? "endswith" : "startswith";
  const auto given = bind(arguments, callee, {"", "", ""}, 1);
  const std::optional<Window> part = window(self, given[1], given[2], callee);
  const auto matches = [&](const Value& value) {
    const std::string& affix = need_text(value, callee);
    return part && (at_end ? part->text.ends_with(affix) : part->text.starts_with(affix));
  };
  if (const auto* tuple = given[0]->get<std::shared_ptr<const Tuple>>())
    return Value(std::ranges::any_of((*tuple)->items, matches));
  return Value(matches(*given[0]));
}

template <bool last, bool must_be_there>
Value find_method(Renderer&, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "find", {"", "", ""}, 1);
  const std::string& part = need_text(*given[0], "find");
  const std::optional<Window> where = window(self, given[1], given[2], "find");
  const std::size_t found = !where ? std::string::npos
                            : last ? find_last_text(where->text, part)
                                   : find_text(where->text, part);
  if (found != std::string::npos) {
    const auto before = static_cast<std::int64_t>(count_code_points(where->text.substr(0, found)));
    return Value(where->start + before);
  }
  if (must_be_there) fail_render("index: the text is not there");
  return Value(std::int64_t{-1});
}

Value count_method(Renderer&, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "count", {"", "", ""}, 1);
  const std::string& part = need_text(*given[0], "count");
  const std::optional<Window> where = window(self, given[1], given[2], "count");
  return Value(where ? static_cast<std::int64_t>(count_text(where->text, part)) : 0);
}

Value replace_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "replace", {"", "", ""}, 2);
  const std::string& old = need_text(*given[0], "replace");
  const std::string& now = need_text(*given[1], "replace");
  return replaced(renderer, self, old, now, given[2] ? need_integer(*given[2], "replace") : -1);
}

Value join_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "join", {""}, 1);
  std::string result;
  bool first = true;
  for (const Value& item : all_items(*given[0], renderer.budget())) {
    if (!std::exchange(first, false)) result += self;
    result += need_text(item, "join");
    renderer.budget().check_size(result.size());
  }
  return text_of(renderer, std::move(result));
}

template <std::string (*change)(std::string_view)>
Value case_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  bind(arguments, "a method", {});
  return text_of(renderer, change(self));
}

// True where the text is not empty and `holds` does for all of it.
template <bool (*holds)(CodePoint)>
Value all_method(Renderer&, const std::string& self, Arguments& arguments) {
  bind(arguments, "a method", {});
  for (std::size_t at = 0; at < self.size();) {
    if (!holds(next_code_point(self, at))) return Value(false);
  }
  return Value(!self.empty());
}

template <bool upper>
Value is_case_method(Renderer&, const std::string& self, Arguments& arguments) {
  bind(arguments, "a method", {});
  return Value(is_all_of_case(self, upper));
}

Value is_ascii_method(Renderer&, const std::string& self, Arguments& arguments) {
  bind(arguments, "isascii", {});
  return Value(std::ranges::all_of(self, [](char c) { return (c & 0x80) == 0; }));
}

template <bool at_end>
Value remove_affix_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "removeprefix and removesuffix", {""}, 1);
  const std::string& affix = need_text(*given[0], "removeprefix and removesuffix");
  if (at_end ? !self.ends_with(affix) : !self.starts_with(affix)) return text_of(renderer, self);
  const std::size_t rest = self.size() - affix.size();
  return text_of(renderer, self.substr(at_end ? 0 : affix.size(), rest));
}

template <bool last>
Value partition_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "partition", {""}, 1);
  const std::string& separator = need_text(*given[0], "partition");
  if (separator.empty()) fail_render("partition: the separator is empty");
  renderer.budget().build(self.size());
  const std::size_t found = last ? find_last_text(self, separator) : find_text(self, separator);
  const Value empty = Value::text("");
  if (found == std::string::npos) {
    return last ? Value::tuple({empty, empty, Value::text(self)})
                : Value::tuple({Value::text(self), empty, empty});
  }
  return Value::tuple({Value::text(self.substr(0, found)), Value::text(separator),
                       Value::text(self.substr(found + separator.size()))});
}

enum class Side { left, right, center };

template <Side side>
Value pad_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "ljust, rjust and center", {"", ""}, 1);
  const std::int64_t width = need_integer(*given[0], "ljust, rjust and center");
  const std::string fill = given[1] ? need_text(*given[1], "ljust, rjust and center") : " ";
  if (count_code_points(fill) != 1) fail_render("text is filled up with one character");
  if (side == Side::center) return centered(renderer, self, width, fill);
  return padded(renderer, self, width, fill, side == Side::right);
}

Value zfill_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  const auto given = bind(arguments, "zfill", {""}, 1);
  const bool sign = self.starts_with('-') || self.starts_with('+');
  const std::int64_t width =
      std::max<std::int64_t>(need_integer(*given[0], "zfill"), 1) - (sign ? 1 : 0);
  const Value digits = padded(renderer, self.substr(sign ? 1 : 0), width, "0", true);
  return Value::text((sign ? self.substr(0, 1) : "") + *digits.as_text());
}

Value format_method(Renderer& renderer, const std::string& self, Arguments& arguments) {
  return text_of(renderer, brace_format(self, arguments, renderer.budget()));
}

constexpr std::pair<std::string_view, Method> kMethods[] = {
    {"capitalize", case_method<to_capitalized>},
    {"center", pad_method<Side::center>},
    {"count", count_method},
    {"endswith", affix_method<true>},
    {"find", find_method<false, false>},
    {"format", format_method},
    {"index", find_method<false, true>},
    {"isalnum", all_method<is_alnum>},
    {"isalpha", all_method<is_alpha>},
    {"isascii", is_ascii_method},
    {"isdecimal", all_method<is_decimal>},
    {"isdigit", all_method<is_digit>},
    {"islower", is_case_method<false>},
    {"isnumeric", all_method<is_numeric>},
    {"isspace", all_method<is_space>},
    {"isupper", is_case_method<true>},
    {"join", join_method},
    {"ljust", pad_method<Side::left>},
    {"lower", case_method<to_lower>},
    {"lstrip", strip_method<true, false>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_affix_method<false>},
    {"removesuffix", remove_affix_method<true>},
    {"replace", replace_method},
    {"rfind", find_method<true, false>},
    {"rindex", find_method<true, true>},
    {"rjust", pad_method<Side::right>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"splitlines", split_lines_method},
    {"startswith", affix_method<false>},
    {"strip", strip_method<true, true>},
    {"swapcase", case_method<swap_case>},
    {"title", case_method<to_title>},
    {"upper", case_method<to_upper>},
    {"zfill", zfill_method},
};

constexpr std::string_view kUnsupported[] = {"casefold",   "encode",       "expandtabs",
                                             "format_map", "isidentifier", "isprintable",
                                             "istitle",    "maketrans",    "translate"};

}  // namespace

std::optional<Value> find_text_method(const Value& text, std::string_view name) {
  const auto found =
      std::ranges::find(kMethods, name, [](const auto& method) { return method.first; });
  if (found != std::end(kMethods)) {
    return make_function(fmt::format("<built-in method {} of str object>", name),
                         [self = *text.get<std::shared_ptr<const Text>>(), call = found->second](
                             Renderer& renderer, Arguments& arguments) {
                           renderer.budget().text(self->bytes.size());
                           return call(renderer, self->bytes, arguments);
                         });
  }
  if (std::ranges::find(kUnsupported, name) != std::end(kUnsupported))
    fail_unsupported(fmt::format("the method '{}' of text is not supported", name));
  return std::nullopt;
}

Value replaced(Renderer& renderer, const std::string& text, const std::string& old,
               const std::string& now, std::int64_t most) {
  // The size first: a long replacement of many short parts would fill the memory.
  std::uint64_t times = count_text(text, old);
  if (most >= 0) times = std::min(times, static_cast<std::uint64_t>(most));
  renderer.budget().step(times);
  renderer.budget().text(text.size() + old.size());
  std::uint64_t added = 0;
  if (__builtin_mul_overflow(times, now.size(), &added)) added = UINT64_MAX / 2;
  renderer.budget().build(text.size() - times * old.size() + added);
  return Value::text(replace_text(text, old, now, most));
}

Value padded(Renderer& renderer, const std::string& text, std::int64_t width,
             const std::string& fill, bool on_the_left) {
  const auto size = static_cast<std::int64_t>(count_code_points(text));
  const auto count = static_cast<std::uint64_t>(width > size ? width - size : 0);
  renderer.budget().check_size(count);  // before it is multiplied
  renderer.budget().build(text.size() + count * fill.size());
  std::string padding;
  for (std::uint64_t i = 0; i < count; ++i) padding += fill;
  return Value::text(on_the_left ? padding + text : text + padding);
}

Value centered(Renderer& renderer, const std::string& text, std::int64_t width,
               const std::string& fill) {
  const auto size = static_cast<std::int64_t>(count_code_points(text));
  if (width <= size) return Value::text(text);
  const std::int64_t missing = width - size;
  const std::int64_t left = missing / 2 + (missing & width & 1);
  const Value begun = padded(renderer, text, size + left, fill, true);
  return padded(renderer, *begun.as_text(), width, fill, false);
}

bool is_all_of_case(std::string_view text, bool upper) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint code = next_code_point(text, at);
    if (is_title(code) || (upper ? is_lower(code) : is_upper(code))) return false;
    any = any || is_upper(code) || is_lower(code);
  }
  return any;
}

}  // namespace octavo::text::jinja
