// Python's view of text: strings are sequences of code points. Input is valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/utf8.h"

namespace octavo::text::jinja {

using CodePoint = std::int32_t;

// The code point that begins at `at`, which moves past it.
CodePoint next_code_point(std::string_view text, std::size_t& at);
std::size_t count_code_points(std::string_view text);
// Where code point `index` begins; the size of the text where there is none.
std::size_t byte_offset(std::string_view text, std::size_t index);
std::vector<std::string_view> code_points(std::string_view text);

// As str.isspace, isalpha, isalnum, isdecimal, isdigit, isnumeric, isprintable and the `cased`
// property say of one code point.
bool is_space(CodePoint code);
bool is_alpha(CodePoint code);
bool is_alnum(CodePoint code);
bool is_decimal(CodePoint code);
bool is_digit(CodePoint code);
bool is_numeric(CodePoint code);
bool is_printable(CodePoint code);
bool is_lower(CodePoint code);
bool is_upper(CodePoint code);
bool is_title(CodePoint code);

// Simple case mappings, and the full one of U+00DF (to "SS", "Ss").
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_capitalized(std::string_view text);  // the first letter up, the rest down
std::string to_title(std::string_view text);        // the first of each run of letters
std::string swap_case(std::string_view text);

// Bytes of white space at the beginning and at the end.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

}  // namespace octavo::text::jinja
