// Numbers and strings as Python spells them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/base/error.h"

namespace octavo::text::jinja {

// Bytes of the literal of Jinja that `text` begins with; 0 where there is none.
std::size_t float_literal(std::string_view text);
std::size_t integer_literal(std::string_view text);

// int(text, base) and float(text): surrounding space, signs, underscores between digits; base 0
// reads the prefixes 0b, 0o, 0x. Nothing where Python raises ValueError; `overflow` is set where a
// number is sound and has more than 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text, int base,
                                          bool* overflow = nullptr);
std::optional<double> parse_float(std::string_view text);

// The value of a string literal's inside.
Result<std::string> unescape(std::string_view text);

}  // namespace octavo::text::jinja
