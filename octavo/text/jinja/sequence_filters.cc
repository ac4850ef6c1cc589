// Filters of lists and dicts.
#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/jinja/filters.h"
#include "octavo/text/jinja/operators.h"
#include "octavo/text/jinja/search.h"

namespace octavo::text::jinja {
namespace {

using Getter = std::function<Value(const Value&)>;

// The value that `attribute` names: an index, or names and indices between points.
Getter make_getter(Renderer& renderer, const std::optional<Value>& attribute,
                   std::optional<Value> otherwise = std::nullopt) {
  Values parts;
  if (attribute && attribute->is_text()) {
    for (const std::string_view part : split(*attribute->as_text(), ".", -1)) {
      const bool digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
      if (digits && part.size() > 18) fail_render("an index is too large");
      parts.push_back(digits ? Value(static_cast<std::int64_t>(std::stoll(std::string(part))))
                             : Value::text(std::string(part)));
    }
  } else if (attribute && !attribute->is<None>()) {
    parts.push_back(*attribute);
  }
  if (otherwise && otherwise->is<None>()) otherwise.reset();
  return
      [&renderer, parts = std::move(parts), otherwise = std::move(otherwise)](const Value& item) {
        Value value = item;
        for (const Value& part : parts) {
          renderer.budget().step();
          value = get_item(value, part, renderer.budget());
          if (otherwise && value.is<Undefined>()) value = *otherwise;
        }
        return value;
      };
}

Value without_case(Renderer& renderer, const Value& value) {
  const std::string* text = value.as_text();
  if (text == nullptr) return value;
  renderer.budget().build(text->size());
  return Value::text(to_lower(*text));
}

bool given_true(const std::optional<Value>& value) { return value && is_true(*value); }

// Keys of a sort: one, or several that commas separate.
Getter make_sort_key(Renderer& renderer, const std::optional<Value>& attribute,
                     bool case_sensitive) {
  std::vector<Getter> getters;
  if (attribute && attribute->is_text()) {
    for (const std::string_view name : split(*attribute->as_text(), ",", -1))
      getters.push_back(make_getter(renderer, Value::text(std::string(name))));
  } else {
    getters.push_back(make_getter(renderer, attribute));
  }
  return [&renderer, getters = std::move(getters), case_sensitive](const Value& item) {
    Values keys;
    for (const Getter& getter : getters) {
      const Value key = getter(item);
      keys.push_back(case_sensitive ? key : without_case(renderer, key));
    }
    return Value::list(std::move(keys));
  };
}

Values sorted(Renderer& renderer, Values items, const Getter& key, bool descending) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) keyed.emplace_back(key(item), std::move(item));
  Budget& budget = renderer.budget();
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    budget.step();
    return descending ? less(b.first, a.first, budget) : less(a.first, b.first, budget);
  });
  Values result;
  for (auto& [ignored, item] : keyed) result.push_back(std::move(item));
  return result;
}

Value sort(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  return Value::list(sorted(renderer, all_items(value, renderer.budget()),
                            make_sort_key(renderer, given[2], given_true(given[1])),
                            given_true(given[0])));
}

Value dictsort(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = given[1] ? need_text(*given[1], "dictsort") : "key";
  if (by != "key" && by != "value") fail_render("dictsort: by \"key\" or \"value\"");
  if (value.as_dict() == nullptr)
    fail_render(fmt::format("dictsort needs a dict, not '{}'", type_name(value)));
  const View items{DictPart::items, *value.get<std::shared_ptr<const Dict>>()};
  const Value place(std::int64_t{by == "key" ? 0 : 1});
  return Value::list(sorted(renderer, all_items(Value(items), renderer.budget()),
                            make_sort_key(renderer, place, given_true(given[0])),
                            given_true(given[2])));
}

Value unique(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "unique", {"case_sensitive", "attribute"});
  const Getter getter = make_getter(renderer, given[1]);
  return generate(renderer.budget(), [&](Values& items) {
    Dict seen(renderer.budget());
    for (const Value& item : all_items(value, renderer.budget())) {
      Value key = getter(item);
      if (!given_true(given[0])) key = without_case(renderer, key);
      if (is_hashable(key) && seen.find(key) != nullptr) continue;
      seen.set(std::move(key), Value());
      items.push_back(item);
    }
  });
}

template <bool largest>
Value extreme(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "min and max", {"case_sensitive", "attribute"});
  const Getter getter = make_getter(renderer, given[1]);
  const auto key_of = [&](const Value& item) {
    const Value key = getter(item);
    return given_true(given[0]) ? key : without_case(renderer, key);
  };
  std::optional<Value> best, best_key;
  for (const Value& item : all_items(value, renderer.budget())) {
    renderer.budget().step();
    Value key = key_of(item);
    const bool better = !best || (largest ? less(*best_key, key, renderer.budget())
                                          : less(key, *best_key, renderer.budget()));
    if (!better) continue;
    best = item;
    best_key = std::move(key);
  }
  return best ? *best : Value::undefined("the smallest or largest of nothing");
}

Value sum(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "sum", {"attribute", "start"});
  const Getter getter = make_getter(renderer, given[0]);
  Value total = given[1].value_or(Value(std::int64_t{0}));
  if (total.is_text()) fail_render("sum does not add texts; use join");
  for (const Value& item : all_items(value, renderer.budget())) {
    renderer.budget().step();
    total = binary_operator("+", total, getter(item), renderer.budget());
  }
  return total;
}

Value join(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "join", {"d", "attribute"});
  const std::string separator = given[0] ? to_text(*given[0], renderer.budget()) : "";
  const Getter getter = make_getter(renderer, given[1]);
  std::string result;
  bool first = true;
  for (const Value& item : all_items(value, renderer.budget())) {
    if (!std::exchange(first, false)) result += separator;
    result += to_text(getter(item), renderer.budget());
    renderer.budget().check_size(result.size());
  }
  renderer.budget().build(result.size());
  return Value::text(std::move(result));
}

Value default_value(Renderer&, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "default", {"default_value", "boolean"});
  const bool missing = value.is<Undefined>() || (given_true(given[1]) && !is_true(value));
  return missing ? given[0].value_or(Value::text("")) : value;
}

Value first(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "first", {});
  std::optional<Value> item = next_item(*iterate(value, renderer.budget()));
  return item ? *std::move(item) : Value::undefined("the first of nothing");
}

Value last(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "last", {});
  if (value.is<std::shared_ptr<Iterator>>()) fail_render("last needs a list, not a generator");
  Values items = all_items(value, renderer.budget());
  return items.empty() ? Value::undefined("the last of nothing") : items.back();
}

Value length(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "length", {});
  if (const auto size = length_of(value, renderer.budget())) return Value(*size);
  fail_render(fmt::format("a value of type '{}' has no length{}", type_name(value),
                          value.is<std::shared_ptr<Iterator>>() ? "; make it a list first" : ""));
}

Value list(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "list", {});
  return Value::list(all_items(value, renderer.budget()));
}

Value items(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "items", {});
  return generate(renderer.budget(), [&](Values& result) {
    if (value.is<Undefined>()) return;
    if (value.as_dict() == nullptr)
      fail_render(fmt::format("items needs a dict, not '{}'", type_name(value)));
    const View view{DictPart::items, *value.get<std::shared_ptr<const Dict>>()};
    result = all_items(Value(view), renderer.budget());
  });
}

Value reverse(Renderer& renderer, const Value& value, Arguments& arguments) {
  bind(arguments, "reverse", {});
  if (const std::string* text = value.as_text()) {
    renderer.budget().build(text->size());
    std::string result;
    for (std::size_t end = text->size(), begin = end; begin > 0; end = begin) {
      while (is_continuation((*text)[--begin]) && begin > 0) {
      }
      result.append(*text, begin, end - begin);
    }
    return Value::text(std::move(result));
  }
  Values all = all_items(value, renderer.budget());
  std::ranges::reverse(all);
  // Python reverses what it knows the end of with an iterator, and makes a list of the others.
  if (value.is<std::shared_ptr<Iterator>>()) return Value::list(std::move(all));
  return generate(renderer.budget(), [&](Values& result) { result = std::move(all); });
}

Value batch(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "batch", {"linecount", "fill_with"}, 1);
  return generate(renderer.budget(), [&](Values& result) {
    const std::int64_t count = need_integer(*given[0], "batch");
    Values group;
    for (const Value& item : all_items(value, renderer.budget())) {
      if (static_cast<std::int64_t>(group.size()) == count) {
        result.push_back(Value::list(std::exchange(group, {})));
      }
      group.push_back(item);
    }
    if (group.empty()) return;
    const bool fill = given[1] && !given[1]->is<None>();
    const auto size = static_cast<std::int64_t>(group.size());
    const auto missing = static_cast<std::uint64_t>(count > size ? count - size : 0);
    if (fill) {
      renderer.budget().build_elements(missing);
      group.insert(group.end(), missing, *given[1]);
    }
    result.push_back(Value::list(std::move(group)));
  });
}

Value slice(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "slice", {"slices", "fill_with"}, 1);
  return generate(renderer.budget(), [&](Values& result) {
    const Values all = all_items(value, renderer.budget());
    const std::int64_t count = need_integer(*given[0], "slice");
    if (count == 0) fail_render("slice: division by zero");
    const auto size = static_cast<std::int64_t>(all.size());
    if (count < 0) return;
    renderer.budget().build_elements(static_cast<std::uint64_t>(count));
    auto at = all.begin();
    for (std::int64_t i = 0; i < count; ++i) {
      const bool longer = i < size % count;
      const auto end = at + size / count + (longer ? 1 : 0);
      Values part(at, end);
      if (given[1] && !given[1]->is<None>() && !longer) part.push_back(*given[1]);
      result.push_back(Value::list(std::move(part)));
      at = end;
    }
  });
}

Value map(Renderer& renderer, const Value& value, Arguments& arguments) {
  return generate(renderer.budget(), [&](Values& result) {
    if (!is_true(value)) return;
    if (arguments.positional.empty()) {
      const auto given = bind(arguments, "map", {"attribute", "default"}, 1);
      const Getter getter = make_getter(renderer, given[0], given[1]);
      for (const Value& item : all_items(value, renderer.budget())) result.push_back(getter(item));
      return;
    }
    const std::string name = need_text(arguments.positional[0], "map");
    const Arguments rest{Values(arguments.positional.begin() + 1, arguments.positional.end()),
                         arguments.named};
    for (const Value& item : all_items(value, renderer.budget())) {
      Arguments copy = rest;
      renderer.budget().step(1 + rest.positional.size() + rest.named.size());
      result.push_back(apply_filter(renderer, name, item, copy));
    }
  });
}

// What a test holds for; with an attribute, for that of the item.
template <bool keep, bool with_attribute>
Value select(Renderer& renderer, const Value& value, Arguments& arguments) {
  return generate(renderer.budget(), [&](Values& result) {
    if (!is_true(value)) return;
    Values& given = arguments.positional;
    constexpr std::size_t kTest = with_attribute ? 1 : 0;
    if (given.size() < kTest) fail_render("selectattr and rejectattr need an attribute");
    const Getter getter =
        make_getter(renderer, with_attribute ? std::optional(given[0]) : std::nullopt);
    const bool tested = given.size() > kTest;
    const std::string name = tested ? need_text(given[kTest], "select and reject") : "";
    Arguments rest{{}, arguments.named};
    if (tested) rest.positional.assign(given.begin() + kTest + 1, given.end());
    for (const Value& item : all_items(value, renderer.budget())) {
      renderer.budget().step(1 + rest.positional.size() + rest.named.size());
      const Value examined = getter(item);
      Arguments copy = rest;
      const bool holds = tested ? apply_test(renderer, name, examined, copy) : is_true(examined);
      if (holds == keep) result.push_back(item);
    }
  });
}

Value attr(Renderer& renderer, const Value& value, Arguments& arguments) {
  const auto given = bind(arguments, "attr", {"name"}, 1);
  const std::string& name = need_text(*given[0], "attr");
  if (std::optional<Value> found = find_attribute(value, name, renderer.budget()))
    return *std::move(found);
  return Value::undefined(
      fmt::format("a value of type '{}' has no attribute '{}'", type_name(value), name));
}

constexpr NamedFilter kFilters[] = {
    {"attr", attr},
    {"batch", batch},
    {"count", length},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", dictsort},
    {"first", first},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"reverse", reverse},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const NamedFilter> sequence_filters() { return kFilters; }

}  // namespace octavo::text::jinja
