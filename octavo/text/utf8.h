// UTF-8, one code point at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace octavo::text {

inline constexpr char32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

// What a text begins with: a code point, or what stands in place of one.
struct Utf8Unit {
  char32_t code;   // kReplacement unless `valid`
  unsigned bytes;  // at least 1: of the code point, or of the longest part that could begin one
  bool valid;
  bool cut;  // the text ends within what could be a code point
};

// `text` is not empty.
Utf8Unit first_unit(std::string_view text);

inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Bytes of the code point that `lead` begins, in valid text.
inline unsigned unit_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point that valid text begins with.
inline char32_t first_code(std::string_view text) {
  return static_cast<unsigned char>(text[0]) < 0x80 ? static_cast<unsigned char>(text[0])
                                                    : first_unit(text).code;
}

// The last code point of valid text, which is not empty.
char32_t last_code(std::string_view text);

// Bytes at the end of a text that begin a code point and do not finish it.
std::size_t cut_bytes(std::string_view text);

void append_utf8(std::string& text, char32_t code);

// Offset of the first byte that belongs to no code point.
std::optional<std::size_t> invalid_utf8_at(std::string_view text);

// Each longest part that begins a code point without completing it, and each other byte that
// belongs to none, becomes U+FFFD: what Unicode recommends, and what Python and Rust do.
std::string valid_utf8(std::string_view text);

}  // namespace octavo::text
