// Operators, subscripts and attributes with Python's meaning.
#pragma once

#include <string_view>

#include "octavo/text/jinja/renderer.h"
#include "octavo/text/jinja/value.h"

namespace octavo::text::jinja {

Value binary_operator(std::string_view symbol, const Value& a, const Value& b, Budget& budget);
Value negated(const Value& value);
Value unary_plus(const Value& value);
bool compare(std::string_view symbol, const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

// `value.name`: an attribute, else an item; undefined where there is neither.
Value get_attribute(const Value& value, std::string_view name, Budget& budget);
// `value[key]`: an item, else an attribute.
Value get_item(const Value& value, const Value& key, Budget& budget);
// An attribute and nothing else; nothing where there is none.
std::optional<Value> find_attribute(const Value& value, std::string_view name, Budget& budget);
Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step,
                Budget& budget);

// A method of text, bound to it; nothing where Python has none of that name.
std::optional<Value> find_text_method(const Value& text, std::string_view name);
// What methods and filters share.
Value replaced(Renderer& renderer, const std::string& text, const std::string& old,
               const std::string& now, std::int64_t most);
Value padded(Renderer& renderer, const std::string& text, std::int64_t width,
             const std::string& fill, bool on_the_left);
Value centered(Renderer& renderer, const std::string& text, std::int64_t width,
               const std::string& fill);
bool is_all_of_case(std::string_view text, bool upper);  // and has letters

}  // namespace octavo::text::jinja
