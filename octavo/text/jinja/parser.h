#pragma once

#include <string_view>

#include "octavo/text/jinja/syntax.h"

namespace octavo::text::jinja {

// Throws Failure.
Block parse(std::string_view source);

}  // namespace octavo::text::jinja
