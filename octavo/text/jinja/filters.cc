#include "octavo/text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/jinja/operators.h"

namespace octavo::text::jinja {
namespace {

constexpr std::string_view kUnsupported[] = {"filesizeformat", "groupby",   "pprint",
                                             "random",         "striptags", "urlize",
                                             "urlencode",      "wordwrap",  "xmlattr"};

Filter find_filter(std::string_view name) {
  for (const std::span<const NamedFilter> filters : {text_filters(), sequence_filters()}) {
    const auto found = std::ranges::find(filters, name, &NamedFilter::first);
    if (found != filters.end()) return found->second;
  }
  return nullptr;
}

// What a test asks of one value.
using Question = bool (*)(Renderer& renderer, const Value& value);

std::int64_t rest_of_division(Renderer& renderer, const Value& value, const Value& by) {
  if (!value.is_number() || !by.is_number()) fail_render("odd, even and divisibleby need numbers");
  const Value rest = binary_operator("%", value, by, renderer.budget());
  if (const auto integer = rest.as_integer()) return *integer;
  return rest.as_double() == 0 ? 0 : rest.as_double() == 1 ? 1 : 2;
}

bool has_length_and_items(const Value& value) {
  return value.is<Undefined>() || value.is_text() || value.as_sequence() != nullptr ||
         value.as_dict() != nullptr || value.is<Range>();
}

bool is_iterable(const Value& value) {
  return has_length_and_items(value) || value.is<View>() || value.is<std::shared_ptr<Iterator>>() ||
         value.is<std::shared_ptr<Loop>>();
}

template <bool yes>
bool is_the_boolean(Renderer&, const Value& value) {
  const bool* boolean = value.get<bool>();
  return boolean != nullptr && *boolean == yes;
}

template <bool upper>
bool is_in_case(Renderer& renderer, const Value& value) {
  return is_all_of_case(to_text(value, renderer.budget()), upper);
}

constexpr std::pair<std::string_view, Question> kQuestions[] = {
    {"odd", [](Renderer& r,
               const Value& v) { return rest_of_division(r, v, Value(std::int64_t{2})) == 1; }},
    {"even", [](Renderer& r,
                const Value& v) { return rest_of_division(r, v, Value(std::int64_t{2})) == 0; }},
    {"defined", [](Renderer&, const Value& v) { return !v.is<Undefined>(); }},
    {"undefined", [](Renderer&, const Value& v) { return v.is<Undefined>(); }},
    {"none", [](Renderer&, const Value& v) { return v.is<None>(); }},
    {"boolean", [](Renderer&, const Value& v) { return v.is<bool>(); }},
    {"true", is_the_boolean<true>},
    {"false", is_the_boolean<false>},
    {"integer", [](Renderer&, const Value& v) { return v.is<std::int64_t>(); }},
    {"float", [](Renderer&, const Value& v) { return v.is<double>(); }},
    {"number", [](Renderer&, const Value& v) { return v.is_number(); }},
    {"string", [](Renderer&, const Value& v) { return v.is_text(); }},
    {"mapping", [](Renderer&, const Value& v) { return v.as_dict() != nullptr; }},
    {"sequence", [](Renderer&, const Value& v) { return has_length_and_items(v); }},
    {"iterable", [](Renderer&, const Value& v) { return is_iterable(v); }},
    {"callable",
     [](Renderer&, const Value& v) {
       return v.is<std::shared_ptr<const Function>>() || v.is<Undefined>() ||
              v.is<std::shared_ptr<Loop>>();
     }},
    {"escaped", [](Renderer&, const Value& v) { return v.is_markup(); }},
    {"lower", is_in_case<false>},
    {"upper", is_in_case<true>},
    {"filter", [](Renderer&, const Value& v) { return v.is_text() && is_filter(*v.as_text()); }},
    {"test", [](Renderer&, const Value& v) { return v.is_text() && is_test(*v.as_text()); }},
};

// Tests that compare with one more value, and the operator that they are.
constexpr std::pair<std::string_view, std::string_view> kComparisons[] = {
    {"==", "=="},      {"eq", "=="}, {"equalto", "=="}, {"!=", "!="},
    {"ne", "!="},      {">", ">"},   {"gt", ">"},       {"greaterthan", ">"},
    {">=", ">="},      {"ge", ">="}, {"<", "<"},        {"lt", "<"},
    {"lessthan", "<"}, {"<=", "<="}, {"le", "<="},      {"in", "in"},
};

bool same_as(const Value& a, const Value& b, Budget& budget) {
  if (a.data().index() != b.data().index()) return false;
  if (const auto* text = a.get<std::shared_ptr<const Text>>())
    return *text == *b.get<std::shared_ptr<const Text>>();
  if (const auto* list = a.get<std::shared_ptr<const List>>())
    return *list == *b.get<std::shared_ptr<const List>>();
  if (const auto* tuple = a.get<std::shared_ptr<const Tuple>>())
    return *tuple == *b.get<std::shared_ptr<const Tuple>>();
  if (const auto* dict = a.get<std::shared_ptr<const Dict>>())
    return *dict == *b.get<std::shared_ptr<const Dict>>();
  return equal(a, b, budget);
}

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

bool is_unsupported_filter(std::string_view name) {
  return std::ranges::find(kUnsupported, name) != std::end(kUnsupported);
}

Value apply_filter(Renderer& renderer, std::string_view name, const Value& value,
                   Arguments& arguments) {
  const Filter filter = find_filter(name);
  if (filter == nullptr) {
    fail_unsupported(is_unsupported_filter(name)
                         ? fmt::format("the filter '{}' is not supported", name)
                         : fmt::format("there is no filter '{}'", name));
  }
  const Renderer::Deeper deeper(renderer, renderer.line());
  return filter(renderer, value, arguments);
}

bool is_test(std::string_view name) {
  return name == "sameas" || name == "divisibleby" ||
         std::ranges::find(kQuestions, name, [](const auto& q) { return q.first; }) !=
             std::end(kQuestions) ||
         std::ranges::find(kComparisons, name, [](const auto& c) { return c.first; }) !=
             std::end(kComparisons);
}

bool apply_test(Renderer& renderer, std::string_view name, const Value& value,
                Arguments& arguments) {
  for (const auto& [question, ask] : kQuestions) {
    if (question != name) continue;
    bind(arguments, name, {});
    return ask(renderer, value);
  }
  if (name == "divisibleby") {
    const auto given = bind(arguments, name, {"num"}, 1);
    return rest_of_division(renderer, value, *given[0]) == 0;
  }
  if (name == "sameas")
    return same_as(value, *bind(arguments, name, {"other"}, 1)[0], renderer.budget());
  for (const auto& [comparison, symbol] : kComparisons) {
    if (comparison == name)
      return compare(symbol, value, *bind(arguments, name, {name == "in" ? "seq" : ""}, 1)[0],
                     renderer.budget());
  }
  fail_unsupported(fmt::format("there is no test '{}'", name));
}

}  // namespace octavo::text::jinja
