// Filters and tests by name.
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "octavo/text/jinja/renderer.h"
#include "octavo/text/jinja/value.h"

namespace octavo::text::jinja {

using Filter = Value (*)(Renderer& renderer, const Value& value, Arguments& arguments);
using NamedFilter = std::pair<std::string_view, Filter>;

std::span<const NamedFilter> text_filters();      // text and numbers to text and numbers
std::span<const NamedFilter> sequence_filters();  // lists, dicts

bool is_filter(std::string_view name);
bool is_unsupported_filter(std::string_view name);  // Jinja has it
Value apply_filter(Renderer& renderer, std::string_view name, const Value& value,
                   Arguments& arguments);

bool is_test(std::string_view name);
bool apply_test(Renderer& renderer, std::string_view name, const Value& value,
                Arguments& arguments);

}  // namespace octavo::text::jinja
