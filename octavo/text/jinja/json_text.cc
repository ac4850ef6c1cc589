#include "octavo/text/jinja/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/text/jinja/unicode.h"

namespace octavo::text::jinja {
namespace {

class Writer {
 public:
  Writer(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value, int level);
  std::string result;

 private:
  using Items = std::vector<std::pair<Value, Value>>;

  void write_text(std::string_view text);
  void write_escape(CodePoint code) { result += fmt::format("\\u{:04x}", code); }
  void write_list(const Values& items, int level);
  void write_dict(const Dict& dict, int level);
  void write_key(const Value& key);
  void new_line(int level) {
    if (!style_.indented) return;
    result += '\n';
    budget_.build(style_.indent.size() * static_cast<std::size_t>(level));
    for (int i = 0; i < level; ++i) result += style_.indent;
  }
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_repr(value);
  }

  const JsonStyle& style_;
  Budget& budget_;
};

void Writer::write_text(std::string_view text) {
  budget_.build(text.size());
  static constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b";
  static constexpr std::string_view kLetters = "\"\\nrtfb";
  result += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const CodePoint code = next_code_point(text, at);
    const std::size_t special =
        code < 0x80 ? kSpecial.find(static_cast<char>(code)) : kSpecial.npos;
    if (special != kSpecial.npos) {
      result += '\\';
      result += kLetters[special];
    } else if (code < 0x20 || (style_.ascii_only && code > 0x7E && code < 0x10000)) {
      write_escape(code);
    } else if (style_.ascii_only && code >= 0x10000) {
      write_escape(0xD800 + ((code - 0x10000) >> 10));
      write_escape(0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      result += text.substr(begin, at - begin);
    }
  }
  result += '"';
}

void Writer::write_key(const Value& key) {
  if (const std::string* text = key.as_text()) return write_text(*text);
  if (const bool* yes = key.get<bool>()) return write_text(*yes ? "true" : "false");
  if (key.is<None>()) return write_text("null");
  if (const double* real = key.get<double>()) return write_text(number(*real));
  if (const auto integer = key.as_integer()) return write_text(fmt::format("{}", *integer));
  fail_render(fmt::format("tojson: a key of type '{}'", type_name(key)));
}

void Writer::write_list(const Values& items, int level) {
  if (items.empty()) {
    result += "[]";
    return;
  }
  result += '[';
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) result += style_.item_separator;
    new_line(level + 1);
    write(items[i], level + 1);
  }
  new_line(level);
  result += ']';
}

void Writer::write_dict(const Dict& dict, int level) {
  if (dict.items.empty()) {
    result += "{}";
    return;
  }
  Items sorted;
  if (style_.sort_keys) {
    budget_.build_elements(2 * dict.items.size());
    sorted = dict.items;
    std::ranges::stable_sort(sorted, [&](const auto& a, const auto& b) {
      budget_.step();
      return less(a.first, b.first, budget_);
    });
  }
  result += '{';
  bool first = true;
  for (const auto& [key, value] : style_.sort_keys ? sorted : dict.items) {
    if (!std::exchange(first, false)) result += style_.item_separator;
    new_line(level + 1);
    write_key(key);
    result += style_.key_separator;
    write(value, level + 1);
  }
  new_line(level);
  result += '}';
}

void Writer::write(const Value& value, int level) {
  budget_.step();
  budget_.check_size(result.size());
  if (value.is<None>()) {
    result += "null";
  } else if (const bool* yes = value.get<bool>()) {
    result += *yes ? "true" : "false";
  } else if (const auto* integer = value.get<std::int64_t>()) {
    result += fmt::format("{}", *integer);
  } else if (const double* real = value.get<double>()) {
    result += number(*real);
  } else if (const std::string* text = value.as_text()) {
    write_text(*text);
  } else if (const Values* items = value.as_sequence()) {
    write_list(*items, level);
  } else if (const Dict* dict = value.as_dict()) {
    write_dict(*dict, level);
  } else {
    fail_render(fmt::format("tojson: a value of type '{}' has no JSON form", type_name(value)));
  }
}

Value convert(const OrderedJson& json, Budget& budget, int level) {
  if (level > kMaxDepth)
    fail_render(fmt::format("values are nested more than {} levels deep", kMaxDepth));
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value(json.get<std::int64_t>());
    case OrderedJson::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > INT64_MAX) fail_render("an integer does not fit in 64 bits");
      return Value(static_cast<std::int64_t>(number));
    }
    case OrderedJson::value_t::number_float:
      return Value(json.get<double>());
    case OrderedJson::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      if (invalid_utf8_at(text)) fail_render("a text is not UTF-8");
      return Value::text(text);
    }
    case OrderedJson::value_t::array: {
      Values items;
      for (const OrderedJson& item : json) items.push_back(convert(item, budget, level + 1));
      return Value::list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      auto dict = std::make_shared<Dict>(budget);
      for (const auto& [key, value] : json.items()) {
        if (invalid_utf8_at(key)) fail_render("a text is not UTF-8");
        dict->set(Value::text(key), convert(value, budget, level + 1));
      }
      return Value(std::shared_ptr<const Dict>(std::move(dict)));
    }
    default:
      return Value();
  }
}

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  Writer writer(style, budget);
  writer.write(value, 0);
  budget.build(writer.result.size());
  return std::move(writer.result);
}

Value from_json(const OrderedJson& json, Budget& budget) { return convert(json, budget, 0); }

}  // namespace octavo::text::jinja
