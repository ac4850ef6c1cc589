#include "octavo/text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/text/jinja/format.h"
#include "octavo/text/jinja/search.h"

namespace octavo::text::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view symbol, const Value& a, const Value& b) {
  for (const Value* side : {&a, &b}) {
    if (const auto* undefined = side->get<Undefined>()) fail_render(*undefined->why);
  }
  fail_render(fmt::format("'{}' does not take '{}' and '{}'", symbol, type_name(a), type_name(b)));
}

[[noreturn]] void fail_overflow() { fail_render("an integer does not fit in 64 bits"); }

Value add_text(const Value& a, const Value& b, Budget& budget) {
  const std::string& left = *a.as_text();
  const std::string& right = *b.as_text();
  budget.build(left.size() + right.size());
  if (a.is_markup() == b.is_markup()) return Value::text(left + right, a.is_markup());
  // What is not marked safe is escaped.
  return Value::text(a.is_markup() ? left + escape_html(right) : escape_html(left) + right, true);
}

Value add_items(const Value& a, const Value& b, Budget& budget) {
  Values items = *a.as_sequence();
  budget.build_elements(items.size() + b.as_sequence()->size());
  items.insert(items.end(), b.as_sequence()->begin(), b.as_sequence()->end());
  return a.is<std::shared_ptr<const List>>() ? Value::list(std::move(items))
                                             : Value::tuple(std::move(items));
}

Value repeat(const Value& value, std::int64_t count, Budget& budget) {
  const auto times = static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
  const auto total = [&](std::size_t size) {
    std::uint64_t product = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(size), times, &product))
      return UINT64_MAX;
    return product;
  };
  if (const std::string* text = value.as_text()) {
    budget.build(total(text->size()));
    std::string result;
    if (text->empty()) return Value::text("", value.is_markup());
    for (std::uint64_t i = 0; i < times; ++i) result += *text;
    return Value::text(std::move(result), value.is_markup());
  }
  const Values& items = *value.as_sequence();
  budget.build_elements(total(items.size()));
  Values result;
  if (!items.empty()) {
    for (std::uint64_t i = 0; i < times; ++i)
      result.insert(result.end(), items.begin(), items.end());
  }
  return value.is<std::shared_ptr<const List>>() ? Value::list(std::move(result))
                                                 : Value::tuple(std::move(result));
}

Value floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) fail_render("division by zero");
  if (a == INT64_MIN && b == -1) fail_overflow();
  const std::int64_t quotient = a / b;
  return Value(quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
}

Value modulo(std::int64_t a, std::int64_t b) {
  if (b == 0) fail_render("modulo by zero");
  if (b == -1) return Value(std::int64_t{0});
  const std::int64_t rest = a % b;
  return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

// As Python rounds: the sign of the rest is the divisor's.
double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_floor_divide(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1.0 : floor;
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail_render("0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value(result);
}

Value float_power(double base, double exponent) {
  if (base == 0 && exponent < 0) fail_render("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(exponent) && exponent != std::floor(exponent))
    fail_unsupported("complex numbers are not supported");
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent))
    fail_render("a result is too large");
  return Value(result);
}

Value integer_operator(std::string_view symbol, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (symbol == "+") {
    if (__builtin_add_overflow(a, b, &result)) fail_overflow();
    return Value(result);
  }
  if (symbol == "-") {
    if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
    return Value(result);
  }
  if (symbol == "*") {
    if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
    return Value(result);
  }
  if (symbol == "/") {
    if (b == 0) fail_render("division by zero");
    return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  }
  if (symbol == "//") return floor_divide(a, b);
  if (symbol == "%") return modulo(a, b);
  return integer_power(a, b);
}

Value float_operator(std::string_view symbol, double a, double b) {
  if (symbol == "+") return Value(a + b);
  if (symbol == "-") return Value(a - b);
  if (symbol == "*") return Value(a * b);
  if (symbol == "**") return float_power(a, b);
  if (b == 0) fail_render("division by zero");
  if (symbol == "/") return Value(a / b);
  return Value(symbol == "//" ? float_floor_divide(a, b) : float_modulo(a, b));
}

// Where a slice begins and ends in `size` elements, for a `step` of either sign.
struct Bounds {
  std::int64_t start, stop, step;
};

Bounds slice_bounds(const Value& start, const Value& stop, const Value& step, std::int64_t size) {
  const auto integer = [](const Value& value, std::int64_t otherwise) {
    if (value.is<None>()) return otherwise;
    if (const auto found = value.as_integer()) return *found;
    fail_render(fmt::format("the bounds of a slice are integers, this is '{}'", type_name(value)));
  };
  Bounds bounds{0, 0, integer(step, 1)};
  if (bounds.step == 0) fail_render("the step of a slice is 0");
  const bool forward = bounds.step > 0;
  const std::int64_t low = forward ? 0 : -1;
  const std::int64_t high = forward ? size : size - 1;
  const auto clamp = [&](std::int64_t at) {
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  bounds.start = start.is<None>() ? (forward ? low : high) : clamp(integer(start, 0));
  bounds.stop = stop.is<None>() ? (forward ? high : low) : clamp(integer(stop, 0));
  return bounds;
}

// The positions of a slice, in order.
std::vector<std::size_t> positions(const Bounds& bounds, Budget& budget) {
  const Range range{bounds.start, bounds.stop, bounds.step};
  budget.build_elements(static_cast<std::uint64_t>(range.size()));
  std::vector<std::size_t> result;
  std::int64_t at = bounds.start;
  for (std::int64_t i = 0; i < range.size(); ++i) {
    result.push_back(static_cast<std::size_t>(at));
    if (i + 1 < range.size()) at += bounds.step;
  }
  return result;
}

Value slice_text(const Value& value, const Value& start, const Value& stop, const Value& step,
                 Budget& budget) {
  const std::string& text = *value.as_text();
  budget.build(text.size());
  const auto size = static_cast<std::int64_t>(count_code_points(text));
  const Bounds bounds = slice_bounds(start, stop, step, size);
  if (bounds.step == 1) {
    const std::size_t begin = byte_offset(text, static_cast<std::size_t>(bounds.start));
    const auto count = static_cast<std::size_t>(std::max(bounds.stop - bounds.start, 0L));
    const std::size_t bytes = byte_offset(std::string_view(text).substr(begin), count);
    return Value::text(text.substr(begin, bytes), value.is_markup());
  }
  const std::vector<std::string_view> codes = code_points(text);
  budget.text(codes.size() * sizeof(std::string_view));
  std::string result;
  for (const std::size_t at : positions(bounds, budget)) result += codes[at];
  return Value::text(std::move(result), value.is_markup());
}

}  // namespace

Value binary_operator(std::string_view symbol, const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) {
    const auto left = a.as_integer();
    const auto right = b.as_integer();
    return left && right ? integer_operator(symbol, *left, *right)
                         : float_operator(symbol, a.as_double(), b.as_double());
  }
  const bool same = a.data().index() == b.data().index();
  if (symbol == "+" && same && a.is_text()) return add_text(a, b, budget);
  if (symbol == "+" && same && a.as_sequence() != nullptr) return add_items(a, b, budget);
  if (symbol == "*") {
    const auto repeatable = [](const Value& value) {
      return value.is_text() || value.as_sequence() != nullptr;
    };
    if (repeatable(a) && b.as_integer()) return repeat(a, *b.as_integer(), budget);
    if (repeatable(b) && a.as_integer()) return repeat(b, *a.as_integer(), budget);
  }
  if (symbol == "%" && a.is_text() && !b.is<Undefined>())
    return Value::text(percent_format(*a.as_text(), b, budget), a.is_markup());
  fail_operands(symbol, a, b);
}

Value negated(const Value& value) {
  if (const auto integer = value.as_integer()) {
    if (*integer == INT64_MIN) fail_overflow();
    return Value(-*integer);
  }
  if (const auto* real = value.get<double>()) return Value(-*real);
  fail_operands("-", value, value);
}

Value unary_plus(const Value& value) {
  if (const auto integer = value.as_integer()) return Value(*integer);
  if (value.is<double>()) return value;
  fail_operands("+", value, value);
}

bool compare(std::string_view symbol, const Value& a, const Value& b, Budget& budget) {
  if (symbol == "==") return equal(a, b, budget);
  if (symbol == "!=") return !equal(a, b, budget);
  if (symbol == "in") return contains(b, a, budget);
  if (symbol == "not in") return !contains(b, a, budget);
  if (symbol == "<") return less(a, b, budget);
  if (symbol == ">") return less(b, a, budget);
  const bool strict = symbol == "<=" ? less(a, b, budget) : less(b, a, budget);
  return strict || equal(a, b, budget);
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const std::string* text = container.as_text()) {
    const std::string* part = item.as_text();
    if (part == nullptr)
      fail_render(fmt::format("'in' a text needs a text, not '{}'", type_name(item)));
    budget.text(text->size());
    return find_text(*text, *part) != std::string::npos;
  }
  const Dict* dict = container.as_dict();
  if (const View* view = container.get<View>(); view != nullptr && view->part == DictPart::keys)
    dict = view->dict.get();
  if (dict != nullptr) {
    if (!is_hashable(item)) fail_render(fmt::format("unhashable type: '{}'", type_name(item)));
    return dict->find(item) != nullptr;
  }
  if (const Range* range = container.get<Range>(); range != nullptr && item.as_integer()) {
    const std::int64_t value = *item.as_integer();
    const bool up = range->step > 0;
    if (up ? value < range->start || value >= range->stop
           : value > range->start || value <= range->stop)
      return false;
    // Unsigned: the distance of two 64-bit numbers.
    const auto from = static_cast<std::uint64_t>(up ? range->start : value);
    const auto to = static_cast<std::uint64_t>(up ? value : range->start);
    const auto step = static_cast<std::uint64_t>(range->step);
    return (to - from) % (up ? step : 0 - step) == 0;
  }
  const std::shared_ptr<Iterator> items = iterate(container, budget);
  while (const std::optional<Value> next = next_item(*items)) {
    budget.step();
    if (equal(*next, item, budget)) return true;
  }
  return false;
}

Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step,
                Budget& budget) {
  if (value.is_text()) return slice_text(value, start, stop, step, budget);
  if (const Range* range = value.get<Range>()) {
    const Bounds bounds = slice_bounds(start, stop, step, range->size());
    const auto element = [&](std::int64_t at) {
      std::int64_t result = 0;
      if (__builtin_mul_overflow(at, range->step, &result) ||
          __builtin_add_overflow(range->start, result, &result))
        fail_overflow();
      return result;
    };
    Range part{element(bounds.start), element(bounds.stop), 0};
    if (__builtin_mul_overflow(range->step, bounds.step, &part.step)) fail_overflow();
    return Value(part);
  }
  const Values* items = value.as_sequence();
  if (items == nullptr) {
    if (const auto* undefined = value.get<Undefined>()) fail_render(*undefined->why);
    fail_render(fmt::format("a value of type '{}' cannot be sliced", type_name(value)));
  }
  const Bounds bounds = slice_bounds(start, stop, step, static_cast<std::int64_t>(items->size()));
  Values result;
  for (const std::size_t at : positions(bounds, budget)) result.push_back((*items)[at]);
  return value.is<std::shared_ptr<const List>>() ? Value::list(std::move(result))
                                                 : Value::tuple(std::move(result));
}

}  // namespace octavo::text::jinja
