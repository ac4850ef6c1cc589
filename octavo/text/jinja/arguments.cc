// Iteration, and what functions take.
#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/jinja/renderer.h"
#include "octavo/text/jinja/unicode.h"

namespace octavo::text::jinja {
namespace {

Values view_items(const View& view) {
  Values items;
  for (const auto& [key, value] : view.dict->items) {
    switch (view.part) {
      case DictPart::keys:
        items.push_back(key);
        break;
      case DictPart::values:
        items.push_back(value);
        break;
      case DictPart::items:
        items.push_back(Value::tuple({key, value}));
        break;
    }
  }
  return items;
}

Values text_items(const std::string& text, bool markup, Budget& budget) {
  constexpr std::size_t kElement = 64;  // more than a text of one letter takes
  budget.step(text.size());
  budget.text(text.size() * kElement);
  Values items;
  for (const std::string_view code : code_points(text))
    items.push_back(Value::text(std::string(code), markup));
  return items;
}

Values range_items(const Range& range, Budget& budget) {
  budget.build_elements(static_cast<std::uint64_t>(range.size()));
  Values items;
  std::int64_t at = range.start;
  for (std::int64_t i = 0; i < range.size(); ++i) {
    items.emplace_back(at);
    if (i + 1 < range.size()) at += range.step;
  }
  return items;
}

Values listed(const Value& value, Budget& budget) {
  if (const Values* items = value.as_sequence()) {
    budget.build_elements(items->size());
    return *items;
  }
  if (const std::string* text = value.as_text())
    return text_items(*text, value.is_markup(), budget);
  if (const Dict* dict = value.as_dict()) {
    budget.build_elements(dict->items.size());
    return view_items({DictPart::keys, *value.get<std::shared_ptr<const Dict>>()});
  }
  if (const View* view = value.get<View>()) {
    budget.build_elements(4 * view->dict->items.size());
    return view_items(*view);
  }
  if (const Range* range = value.get<Range>()) return range_items(*range, budget);
  if (value.is<Undefined>()) return {};
  fail_render(fmt::format("a value of type '{}' cannot be iterated over", type_name(value)));
}

}  // namespace

std::shared_ptr<Iterator> iterate(const Value& value, Budget& budget) {
  if (const auto* iterator = value.get<std::shared_ptr<Iterator>>()) return *iterator;
  auto result = std::make_shared<Iterator>();
  result->items = listed(value, budget);
  result->depth = depth_of(result->items);
  return result;
}

std::optional<Value> next_item(Iterator& iterator) {
  if (iterator.next < iterator.items.size()) return std::move(iterator.items[iterator.next++]);
  if (iterator.failure) throw *std::exchange(iterator.failure, std::nullopt);
  return std::nullopt;
}

Values all_items(const Value& value, Budget& budget) {
  if (!value.is<std::shared_ptr<Iterator>>()) return listed(value, budget);
  Iterator& iterator = **value.get<std::shared_ptr<Iterator>>();
  budget.build_elements(iterator.items.size() - iterator.next);
  Values items;
  while (std::optional<Value> item = next_item(iterator)) items.push_back(*std::move(item));
  return items;
}

Value generate(Budget& budget, const std::function<void(Values&)>& produce) {
  auto iterator = std::make_shared<Iterator>();
  try {
    produce(iterator->items);
  } catch (Failure& failure) {
    iterator->failure = std::move(failure);
  }
  budget.build_elements(iterator->items.size());
  iterator->depth = depth_of(iterator->items);
  return Value(std::move(iterator));
}

std::optional<std::int64_t> length_of(const Value& value, Budget& budget) {
  const auto count = [](std::size_t size) { return static_cast<std::int64_t>(size); };
  if (const std::string* text = value.as_text()) {
    budget.text(text->size());
    return count(count_code_points(*text));
  }
  if (const Values* items = value.as_sequence()) return count(items->size());
  if (const Dict* dict = value.as_dict()) return count(dict->items.size());
  if (const View* view = value.get<View>()) return count(view->dict->items.size());
  if (const Range* range = value.get<Range>()) return range->size();
  if (value.is<Undefined>()) return 0;
  if (const auto* loop = value.get<std::shared_ptr<Loop>>()) return (*loop)->length(budget);
  return std::nullopt;
}

Value make_function(std::string description, std::function<Value(Renderer&, Arguments&)> call,
                    int depth) {
  if (depth >= kMaxDepth) fail_render("values are nested too deep");
  return Value(std::make_shared<const Function>(
      Function{std::move(description), std::move(call), depth + 1}));
}

std::vector<std::optional<Value>> bind(Arguments& arguments, std::string_view callee,
                                       std::initializer_list<std::string_view> names,
                                       std::size_t required) {
  if (arguments.positional.size() > names.size()) {
    fail_render(fmt::format("{} takes at most {} arguments, {} are given", callee, names.size(),
                            arguments.positional.size()));
  }
  std::vector<std::optional<Value>> bound(names.size());
  std::ranges::copy(arguments.positional, bound.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) fail_render(fmt::format("{} takes no argument '{}'", callee, name));
    std::optional<Value>& slot = bound[static_cast<std::size_t>(found - names.begin())];
    if (slot) fail_render(fmt::format("{} is given '{}' twice", callee, name));
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!bound[i]) fail_render(fmt::format("{} needs {} or more arguments", callee, required));
  }
  return bound;
}

const std::string& need_text(const Value& value, std::string_view callee) {
  if (const std::string* text = value.as_text()) return *text;
  if (const auto* undefined = value.get<Undefined>())
    fail_render(fmt::format("{}: {}", callee, *undefined->why));
  fail_render(fmt::format("{} needs a text, not '{}'", callee, type_name(value)));
}

std::int64_t need_integer(const Value& value, std::string_view callee) {
  if (const auto integer = value.as_integer()) return *integer;
  if (const auto* undefined = value.get<Undefined>())
    fail_render(fmt::format("{}: {}", callee, *undefined->why));
  fail_render(fmt::format("{} needs an integer, not '{}'", callee, type_name(value)));
}

}  // namespace octavo::text::jinja
