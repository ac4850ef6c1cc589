// The two ways of Python to write values into a text.
#pragma once

#include <string>
#include <string_view>

#include "octavo/text/jinja/value.h"

namespace octavo::text::jinja {

// `text % values`: a tuple, a dict for %(name)s, or one value.
std::string percent_format(std::string_view text, const Value& values, Budget& budget);
// `text.format(...)`.
std::string brace_format(std::string_view text, const Arguments& arguments, Budget& budget);

}  // namespace octavo::text::jinja
