#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "octavo/text/jinja/operators.h"
#include "octavo/text/jinja/renderer.h"
#include "octavo/text/jinja/unicode.h"

namespace octavo::text::jinja {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> all) {
  return std::ranges::find(all, name) != all.end();
}

Value make_method(const Value& self, std::string_view name,
                  Value (*call)(Renderer&, const Value&, Arguments&)) {
  return make_function(
      fmt::format("<method {} of {} object>", name, type_name(self)),
      [self, call](Renderer& renderer, Arguments& arguments) {
        return call(renderer, self, arguments);
      },
      self.depth());
}

Value view_of(const Value& self, DictPart part) {
  return Value(View{part, *self.get<std::shared_ptr<const Dict>>()});
}

Value dict_get(Renderer&, const Value& self, Arguments& arguments) {
  const auto given = bind(arguments, "get", {"", ""}, 1);
  if (!is_hashable(*given[0]))
    fail_render(fmt::format("unhashable type: '{}'", type_name(*given[0])));
  if (const Value* found = self.as_dict()->find(*given[0])) return *found;
  return given[1].value_or(Value());
}

template <DictPart part>
Value dict_view(Renderer&, const Value& self, Arguments& arguments) {
  bind(arguments, "items, keys and values", {});
  return view_of(self, part);
}

Value copy(Renderer&, const Value& self, Arguments& arguments) {
  bind(arguments, "copy", {});
  return self;
}

Value sequence_count(Renderer& renderer, const Value& self, Arguments& arguments) {
  const auto given = bind(arguments, "count", {""}, 1);
  std::int64_t count = 0;
  for (const Value& item : *self.as_sequence()) {
    renderer.budget().step();
    count += equal(item, *given[0], renderer.budget());
  }
  return Value(count);
}

Value sequence_index(Renderer& renderer, const Value& self, Arguments& arguments) {
  const auto given = bind(arguments, "index", {""}, 1);
  const Values& items = *self.as_sequence();
  for (std::size_t i = 0; i < items.size(); ++i) {
    renderer.budget().step();
    if (equal(items[i], *given[0], renderer.budget())) return Value(static_cast<std::int64_t>(i));
  }
  fail_render("index: the value is not in the list");
}

Value loop_cycle(Renderer&, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty() || arguments.positional.empty())
    fail_render("loop.cycle takes one or more values");
  const std::int64_t at = (*self.get<std::shared_ptr<Loop>>())->index0;
  return arguments.positional[static_cast<std::size_t>(std::max<std::int64_t>(at, 0)) %
                              arguments.positional.size()];
}

Value loop_changed(Renderer& renderer, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty()) fail_render("loop.changed takes no named arguments");
  Loop& loop = **self.get<std::shared_ptr<Loop>>();
  const Value now = Value::tuple(arguments.positional);
  const bool same = loop.changed && equal(Value::tuple(*loop.changed), now, renderer.budget());
  // Only an open loop keeps values: close() clears them, which ends chains and cycles of loops.
  if (loop.source) loop.changed = arguments.positional;
  return Value(!same);
}

Value undefined_attribute(const Value& value, std::string_view name) {
  return Value::undefined(
      fmt::format("a value of type '{}' has no attribute '{}'", type_name(value), name));
}

// Jinja's sandbox hides what would change a value.
Value unsafe(const Value& value, std::string_view name) {
  return Value::undefined(fmt::format(
      "a template may not change its values: '{}' of '{}' is not there", name, type_name(value)));
}

std::optional<Value> dict_attribute(const Value& value, std::string_view name) {
  if (name == "get") return make_method(value, name, dict_get);
  if (name == "items") return make_method(value, name, dict_view<DictPart::items>);
  if (name == "keys") return make_method(value, name, dict_view<DictPart::keys>);
  if (name == "values") return make_method(value, name, dict_view<DictPart::values>);
  if (name == "copy") return make_method(value, name, copy);
  if (is_one_of(name, {"clear", "pop", "popitem", "setdefault", "update"}))
    return unsafe(value, name);
  if (name == "fromkeys") fail_unsupported("the method 'fromkeys' is not supported");
  return std::nullopt;
}

std::optional<Value> sequence_attribute(const Value& value, std::string_view name) {
  if (name == "count") return make_method(value, name, sequence_count);
  if (name == "index") return make_method(value, name, sequence_index);
  if (!value.is<std::shared_ptr<const List>>()) return std::nullopt;
  if (name == "copy") return make_method(value, name, copy);
  if (is_one_of(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}))
    return unsafe(value, name);
  return std::nullopt;
}

std::optional<Value> loop_attribute(const Value& value, std::string_view name, Budget& budget) {
  Loop& loop = **value.get<std::shared_ptr<Loop>>();
  if (name == "index") return Value(loop.index0 + 1);
  if (name == "index0") return Value(loop.index0);
  if (name == "first") return Value(loop.index0 == 0);
  if (name == "last") return Value(loop.peek(budget) == nullptr);
  if (name == "length") return Value(loop.length(budget));
  if (name == "revindex") return Value(loop.length(budget) - loop.index0);
  if (name == "revindex0") return Value(loop.length(budget) - loop.index0 - 1);
  if (name == "depth") return Value(std::int64_t{1});
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem") {
    if (loop.index0 <= 0) return Value::undefined("there is no previous item");
    return loop.previous;
  }
  if (name == "nextitem") {
    const Value* next = loop.peek(budget);
    return next == nullptr ? Value::undefined("there is no next item") : *next;
  }
  if (name == "cycle") return make_method(value, name, loop_cycle);
  if (name == "changed") return make_method(value, name, loop_changed);
  return std::nullopt;
}

// The element that an integer names, from the end where it is negative.
std::optional<std::size_t> position(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < -count || index >= count) return std::nullopt;
  return static_cast<std::size_t>(index < 0 ? index + count : index);
}

std::optional<Value> find_item(const Value& value, const Value& key, Budget& budget) {
  if (const Dict* dict = value.as_dict()) {
    if (!is_hashable(key)) return std::nullopt;
    const Value* found = dict->find(key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  const std::optional<std::int64_t> index = key.as_integer();
  if (!index) return std::nullopt;
  if (const Values* items = value.as_sequence()) {
    const auto at = position(*index, items->size());
    return at ? std::optional((*items)[*at]) : std::nullopt;
  }
  if (const std::string* text = value.as_text()) {
    budget.text(text->size());
    const auto at = position(*index, count_code_points(*text));
    if (!at) return std::nullopt;
    std::size_t end = byte_offset(*text, *at);
    const std::size_t begin = end;
    next_code_point(*text, end);
    return Value::text(text->substr(begin, end - begin), value.is_markup());
  }
  if (const Range* range = value.get<Range>()) {
    const auto at = position(*index, static_cast<std::size_t>(range->size()));
    // Unsigned: the element fits in 64 bits, its distance from the start may not.
    if (at) {
      return Value(static_cast<std::int64_t>(static_cast<std::uint64_t>(range->start) +
                                             *at * static_cast<std::uint64_t>(range->step)));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Value> find_attribute(const Value& value, std::string_view name, Budget& budget) {
  if (const auto* undefined = value.get<Undefined>()) fail_render(*undefined->why);
  if (name.starts_with('_')) return std::nullopt;
  if (const auto* space = value.get<Namespace*>()) {
    const Value* found = (*space)->find(name, budget);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (value.is_text()) return find_text_method(value, name);
  if (value.as_dict() != nullptr) return dict_attribute(value, name);
  if (value.as_sequence() != nullptr) return sequence_attribute(value, name);
  if (value.is<std::shared_ptr<Loop>>()) return loop_attribute(value, name, budget);
  return std::nullopt;
}

Value get_attribute(const Value& value, std::string_view name, Budget& budget) {
  if (std::optional<Value> found = find_attribute(value, name, budget)) return *std::move(found);
  if (const Dict* dict = value.as_dict()) {
    if (const Value* found = dict->find(name)) return *found;
  }
  return undefined_attribute(value, name);
}

Value get_item(const Value& value, const Value& key, Budget& budget) {
  if (const auto* undefined = value.get<Undefined>()) fail_render(*undefined->why);
  if (std::optional<Value> found = find_item(value, key, budget)) return *std::move(found);
  if (const std::string* name = key.as_text()) {
    if (std::optional<Value> found = find_attribute(value, *name, budget)) return *std::move(found);
    return undefined_attribute(value, *name);
  }
  return Value::undefined(
      fmt::format("a value of type '{}' has no such element", type_name(value)));
}

}  // namespace octavo::text::jinja
