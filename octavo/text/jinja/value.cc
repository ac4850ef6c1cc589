#include "octavo/text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "octavo/text/jinja/unicode.h"

namespace octavo::text::jinja {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

bool equal_items(const Values& a, const Values& b, Budget& budget) {
  budget.step(std::min(a.size(), b.size()));
  return std::ranges::equal(a, b,
                            [&](const Value& x, const Value& y) { return equal(x, y, budget); });
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  budget.step(a.items.size());
  return std::ranges::all_of(a.items, [&](const auto& item) {
    const Value* other = b.find(item.first);
    return other != nullptr && equal(item.second, *other, budget);
  });
}

// Exact for any two numbers: the mantissa of long double has 64 bits.
long double as_long_double(const Value& value) {
  if (const auto integer = value.as_integer()) return static_cast<long double>(*integer);
  return value.as_double();
}

bool less_items(const Values& a, const Values& b, Budget& budget) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    budget.step();
    if (!equal(a[i], b[i], budget)) return less(a[i], b[i], budget);
  }
  return a.size() < b.size();
}

// Text of a value, piece by piece; `levels` guards against namespaces that hold themselves.
class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  void print(const Value& value, int levels = 0);
  std::string result;

 private:
  void print_items(const Values& items, int levels) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) result += ", ";
      print(items[i], levels + 1);
    }
  }
  void print_pairs(const Dict& dict, int levels) {
    bool first = true;
    for (const auto& [key, value] : dict.items) {
      if (!std::exchange(first, false)) result += ", ";
      print(key, levels + 1);
      result += ": ";
      print(value, levels + 1);
    }
  }
  void print_view(const View& view, int levels) {
    static constexpr const char* kNames[] = {"dict_keys([", "dict_values([", "dict_items(["};
    result += kNames[static_cast<int>(view.part)];
    bool first = true;
    for (const auto& [key, value] : view.dict->items) {
      if (!std::exchange(first, false)) result += ", ";
      if (view.part == DictPart::items) result += "(";
      if (view.part != DictPart::values) print(key, levels + 1);
      if (view.part == DictPart::items) result += ", ";
      if (view.part != DictPart::keys) print(value, levels + 1);
      if (view.part == DictPart::items) result += ")";
    }
    result += "])";
  }
  void print_namespace(const Namespace& space, int levels) {
    result += "<Namespace {";
    bool first = true;
    for (const auto& [name, value] : space.attributes) {
      if (!std::exchange(first, false)) result += ", ";
      result += repr(name) + ": ";
      print(value, levels + 1);
    }
    result += "}>";
  }

  Budget& budget_;
};

void Printer::print(const Value& value, int levels) {
  if (levels > kMaxDepth) fail_render("cannot print a value nested this deep");
  budget_.step();
  std::visit(
      Overloaded{
          [&](const Undefined&) { result += "Undefined"; },
          [&](None) { result += "None"; },
          [&](bool b) { result += b ? "True" : "False"; },
          [&](std::int64_t i) { result += fmt::format("{}", i); },
          [&](double d) { result += float_repr(d); },
          [&](const std::shared_ptr<const Text>& text) {
            budget_.text(text->bytes.size());
            result +=
                text->markup ? fmt::format("Markup({})", repr(text->bytes)) : repr(text->bytes);
          },
          [&](const std::shared_ptr<const List>& list) {
            result += "[";
            print_items(list->items, levels);
            result += "]";
          },
          [&](const std::shared_ptr<const Tuple>& tuple) {
            result += "(";
            print_items(tuple->items, levels);
            result += tuple->items.size() == 1 ? ",)" : ")";
          },
          [&](const std::shared_ptr<const Dict>& dict) {
            result += "{";
            print_pairs(*dict, levels);
            result += "}";
          },
          [&](const Range& r) {
            result += r.step == 1 ? fmt::format("range({}, {})", r.start, r.stop)
                                  : fmt::format("range({}, {}, {})", r.start, r.stop, r.step);
          },
          [&](const View& view) { print_view(view, levels); },
          [&](const std::shared_ptr<Iterator>&) { result += "<generator object>"; },
          [&](const Namespace* space) { print_namespace(*space, levels); },
          [&](const std::shared_ptr<const Function>& function) { result += function->description; },
          [&](const std::shared_ptr<Loop>&) { result += "<LoopContext>"; },
      },
      value.data());
  budget_.check_size(result.size());
}

}  // namespace

void fail_render(std::string message) { throw Failure{ErrorCode::bad_model, std::move(message)}; }
void fail_unsupported(std::string message) {
  throw Failure{ErrorCode::unsupported, std::move(message)};
}

void Budget::step(std::uint64_t count) {
  steps_ += count;
  if (steps_ > limits_.steps || count > limits_.steps)
    fail_render(fmt::format("the template takes more than {} steps", limits_.steps));
}

void Budget::text(std::uint64_t bytes) {
  bytes_ += bytes;
  if (bytes_ > limits_.bytes || bytes > limits_.bytes)
    fail_render(fmt::format("the template moves more than {} bytes of text", limits_.bytes));
}

void Budget::check_size(std::uint64_t bytes) const {
  if (bytes > limits_.output_bytes)
    fail_render(
        fmt::format("the template makes a text of more than {} bytes", limits_.output_bytes));
}

void Budget::build(std::uint64_t bytes) {
  check_size(bytes);
  text(bytes);
}

void Budget::build_elements(std::uint64_t count) {
  step(count);
  text(count * sizeof(Value));
}

std::int64_t Range::size() const {
  // Unsigned: the distance of two 64-bit numbers.
  const auto distance = [](std::int64_t from, std::int64_t to, std::uint64_t by) {
    const std::uint64_t span = static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
    return static_cast<std::int64_t>(std::min<std::uint64_t>((span - 1) / by + 1, INT64_MAX));
  };
  if (step > 0) return start < stop ? distance(start, stop, static_cast<std::uint64_t>(step)) : 0;
  return start > stop ? distance(stop, start, 0 - static_cast<std::uint64_t>(step)) : 0;
}

bool Range::operator==(const Range& other) const {
  if (size() != other.size()) return false;
  if (size() == 0) return true;
  return start == other.start && (size() == 1 || step == other.step);
}

const Value* Namespace::find(std::string_view name, Budget& budget) const {
  budget.search(attributes.size());
  const auto found =
      std::ranges::find(attributes, name, [](const auto& a) { return std::string_view(a.first); });
  return found == attributes.end() ? nullptr : &found->second;
}

void Namespace::set(std::string_view name, Value value, Budget& budget) {
  budget.search(attributes.size());
  for (auto& [key, old] : attributes) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  attributes.emplace_back(name, std::move(value));
}

Value Value::undefined(std::string why) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

Value Value::text(std::string bytes, bool markup) {
  return Value(std::make_shared<const Text>(Text{std::move(bytes), markup}));
}

int depth_of(const Values& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (depth >= kMaxDepth)
    fail_render(fmt::format("values are nested more than {} levels deep", kMaxDepth));
  return depth + 1;
}

Value Value::list(Values items) {
  const int depth = depth_of(items);
  return Value(std::make_shared<const List>(List{std::move(items), depth}));
}

Value Value::tuple(Values items) {
  Tuple tuple;
  tuple.depth = depth_of(items);
  for (const Value& item : items) {
    const auto* inner = item.get<std::shared_ptr<const Tuple>>();
    tuple.weight = std::min(kMaxWeight, tuple.weight + (inner ? (*inner)->weight : 1));
    tuple.hashable = tuple.hashable && is_hashable(item);
  }
  tuple.items = std::move(items);
  return Value(std::make_shared<const Tuple>(std::move(tuple)));
}

const std::string* Value::as_text() const {
  const auto* text = get<std::shared_ptr<const Text>>();
  return text == nullptr ? nullptr : &(*text)->bytes;
}

const Values* Value::as_sequence() const {
  if (const auto* list = get<std::shared_ptr<const List>>()) return &(*list)->items;
  if (const auto* tuple = get<std::shared_ptr<const Tuple>>()) return &(*tuple)->items;
  return nullptr;
}

const Dict* Value::as_dict() const {
  const auto* dict = get<std::shared_ptr<const Dict>>();
  return dict == nullptr ? nullptr : dict->get();
}

bool Value::is_markup() const {
  const auto* text = get<std::shared_ptr<const Text>>();
  return text != nullptr && (*text)->markup;
}

std::optional<std::int64_t> Value::as_integer() const {
  if (const auto* integer = get<std::int64_t>()) return *integer;
  if (const auto* boolean = get<bool>()) return *boolean ? 1 : 0;
  return std::nullopt;
}

double Value::as_double() const {
  if (const auto* real = get<double>()) return *real;
  return static_cast<double>(as_integer().value_or(0));
}

int Value::depth() const {
  return std::visit(Overloaded{[](const std::shared_ptr<const List>& x) { return x->depth; },
                               [](const std::shared_ptr<const Tuple>& x) { return x->depth; },
                               [](const std::shared_ptr<const Dict>& x) { return x->depth; },
                               [](const View& x) { return x.dict->depth; },
                               [](const std::shared_ptr<Iterator>& x) { return x->depth; },
                               [](const std::shared_ptr<const Function>& x) { return x->depth; },
                               [](const auto&) { return 0; }},
                    data_);
}

bool is_hashable(const Value& value) {
  if (const auto* tuple = value.get<std::shared_ptr<const Tuple>>())
    return (*tuple)->hashable && (*tuple)->weight < kMaxWeight;
  return !value.is<std::shared_ptr<const List>>() && !value.is<std::shared_ptr<const Dict>>() &&
         !value.is<View>();
}

std::size_t ValueHash::operator()(const Value& value) const {
  budget->step();
  if (const std::string* text = value.as_text()) {
    budget->text(text->size());
    return std::hash<std::string>{}(*text);
  }
  // 1, 1.0 and True are one key.
  if (value.is_number()) return std::hash<double>{}(value.as_double());
  if (const Values* items = value.as_sequence()) {
    std::size_t hash = items->size();
    for (const Value& item : *items) hash = hash * 1'000'003 + (*this)(item);
    return hash;
  }
  if (const Range* range = value.get<Range>()) {  // what operator== compares
    const auto size = static_cast<std::size_t>(range->size());
    const auto start = size > 0 ? static_cast<std::size_t>(range->start) : 0;
    const auto step = size > 1 ? static_cast<std::size_t>(range->step) : 0;
    return (size * 1'000'003 + start) * 1'000'003 + step;
  }
  return std::visit(Overloaded{[]<class T>(const std::shared_ptr<T>& x) {
                                 return std::hash<const void*>{}(x.get());
                               },
                               [](const Namespace* x) { return std::hash<const void*>{}(x); },
                               [&](const auto&) { return value.data().index(); }},
                    value.data());
}

bool KeyEqual::operator()(const Value& a, const Value& b) const {
  budget->step();
  return equal(a, b, *budget);
}

void Dict::set(Value key, Value value) {
  if (!is_hashable(key)) fail_render(fmt::format("unhashable type: '{}'", type_name(key)));
  if (std::max(key.depth(), value.depth()) >= kMaxDepth)
    fail_render(fmt::format("values are nested more than {} levels deep", kMaxDepth));
  depth = std::max({depth, key.depth() + 1, value.depth() + 1});
  const auto [at, is_new] = index.try_emplace(key, items.size());
  if (is_new) {
    items.emplace_back(std::move(key), std::move(value));
  } else {
    items[at->second].second = std::move(value);
  }
}

const Value* Dict::find(const Value& key) const {
  const auto found = index.find(key);
  return found == index.end() ? nullptr : &items[found->second].second;
}

const Value* Dict::find(std::string_view key) const { return find(Value::text(std::string(key))); }

bool is_true(const Value& value) {
  return std::visit(
      Overloaded{
          [](const Undefined&) { return false; },
          [](None) { return false; },
          [](bool b) { return b; },
          [](std::int64_t i) { return i != 0; },
          [](double d) { return d != 0; },
          [](const std::shared_ptr<const Text>& text) { return !text->bytes.empty(); },
          [](const std::shared_ptr<const List>& list) { return !list->items.empty(); },
          [](const std::shared_ptr<const Tuple>& tuple) { return !tuple->items.empty(); },
          [](const std::shared_ptr<const Dict>& dict) { return !dict->items.empty(); },
          [](const Range& range) { return range.size() > 0; },
          [](const View& view) { return !view.dict->items.empty(); },
          [](const auto&) { return true; },
      },
      value.data());
}

std::string_view type_name(const Value& value) {
  static constexpr std::string_view kNames[] = {
      "Undefined", "NoneType", "bool", "int",       "float",     "str",      "list",       "tuple",
      "dict",      "range",    "view", "generator", "Namespace", "function", "LoopContext"};
  static constexpr std::string_view kViews[] = {"dict_keys", "dict_values", "dict_items"};
  if (const View* view = value.get<View>()) return kViews[static_cast<int>(view->part)];
  return kNames[value.data().index()];
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) return as_long_double(a) == as_long_double(b);
  if (a.data().index() != b.data().index()) return false;
  if (const std::string* text = a.as_text()) {
    if (text->size() == b.as_text()->size()) budget.text(text->size());
    return *text == *b.as_text();
  }
  if (const Values* items = a.as_sequence()) return equal_items(*items, *b.as_sequence(), budget);
  if (const Dict* dict = a.as_dict()) return equal_dicts(*dict, *b.as_dict(), budget);
  if (const Range* range = a.get<Range>()) return *range == *b.get<Range>();
  return std::visit(
      Overloaded{
          [](const Undefined&, const Undefined&) { return true; },
          [](None, None) { return true; },
          [&](const View& x, const View& y) {
            return x.part == y.part &&
                   (x.dict == y.dict ||
                    (x.part != DictPart::values && equal_dicts(*x.dict, *y.dict, budget)));
          },
          []<class T>(const std::shared_ptr<T>& x, const std::shared_ptr<T>& y) { return x == y; },
          [](Namespace* x, Namespace* y) { return x == y; },
          [](const auto&, const auto&) { return false; },
      },
      a.data(), b.data());
}

bool less(const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) return as_long_double(a) < as_long_double(b);
  if (a.data().index() == b.data().index()) {
    if (const std::string* text = a.as_text()) {
      budget.text(std::min(text->size(), b.as_text()->size()));
      return *text < *b.as_text();  // the order of UTF-8 is that of code points
    }
    if (const Values* items = a.as_sequence()) return less_items(*items, *b.as_sequence(), budget);
  }
  for (const Value* side : {&a, &b}) {
    if (const auto* undefined = side->get<Undefined>()) fail_render(*undefined->why);
  }
  fail_render(fmt::format("cannot order '{}' and '{}'", type_name(a), type_name(b)));
}

std::string to_text(const Value& value, Budget& budget) {
  if (const std::string* text = value.as_text()) {
    budget.text(text->size());
    return *text;
  }
  if (value.is<Undefined>()) return "";
  return repr(value, budget);
}

std::string repr(const Value& value, Budget& budget) {
  Printer printer(budget);
  printer.print(value);
  return std::move(printer.result);
}

std::string repr(std::string_view text) {
  const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string result(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const CodePoint code = next_code_point(text, at);
    if (code == quote || code == '\\') {
      result += '\\';
      result += static_cast<char>(code);
    } else if (code == '\n') {
      result += "\\n";
    } else if (code == '\r') {
      result += "\\r";
    } else if (code == '\t') {
      result += "\\t";
    } else if (is_printable(code)) {
      result += text.substr(begin, at - begin);
    } else {
      result += code < 0x100     ? fmt::format("\\x{:02x}", code)
                : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                 : fmt::format("\\U{:08x}", code);
    }
  }
  result += quote;
  return result;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = shortest.find('e');
  const int exponent = std::stoi(std::string(shortest.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  std::string digits;  // without sign and point
  for (const char c : shortest.substr(0, e)) {
    if (c != '-' && c != '.') digits += c;
  }
  const std::string sign = shortest[0] == '-' ? "-" : "";
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string escape_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      case '"':
        result += "&#34;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace octavo::text::jinja
