// Classes and normal forms of code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::text {

// For tables of Unicode 14: `code`, or an older code point of the class that `code` has now and of
// the same length in UTF-8.
char32_t stand_in(char32_t code);

// Whether stand_in() changes anything in a valid text; false for most at the cost of a glance.
bool has_changed_codes(std::string_view text);
std::string with_stand_ins(std::string_view text);  // of the same length

bool is_space(char32_t code);        // White_Space
bool is_numeric(char32_t code);      // Nd, Nl, No
bool is_punctuation(char32_t code);  // P*, and all of ASCII that is neither letter, digit nor space
bool is_word(char32_t code);         // \w: alphabetic, mark, digit, connector or joiner

enum class NormalForm { nfc, nfd, nfkc, nfkd };
// Of valid text; linear in its length also where combining marks stand in the worst order.
std::string normalized(NormalForm form, std::string_view text);

std::string lowered(std::string_view text);

}  // namespace octavo::text
