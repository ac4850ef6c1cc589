// Searching and splitting text in linear time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/jinja/unicode.h"

namespace octavo::text::jinja {

// The first and the last `part` of `text`; npos where there is none.
std::size_t find_text(std::string_view text, std::string_view part);
std::size_t find_last_text(std::string_view text, std::string_view part);
std::size_t count_text(std::string_view text, std::string_view part);  // without overlap

// At most `most` times; negative: as often as it occurs. Replacing an empty text puts the new one
// between code points.
std::string replace_text(std::string_view text, std::string_view old, std::string_view now,
                         std::int64_t most);

// As str.split and str.rsplit with a separator, and without one: at white space.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    std::int64_t most);
std::vector<std::string_view> split_last(std::string_view text, std::string_view separator,
                                         std::int64_t most);
std::vector<std::string_view> split_space(std::string_view text, std::int64_t most);
std::vector<std::string_view> split_space_last(std::string_view text, std::int64_t most);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// Without the code points of `characters` at the ends; without white space where it is null.
std::string_view strip(std::string_view text, const std::string* characters, bool left, bool right);

}  // namespace octavo::text::jinja
