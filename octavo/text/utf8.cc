#include "octavo/text/utf8.h"

#include <cstdint>
#include <cstring>

namespace octavo::text {

Utf8Unit first_unit(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {kReplacement, 1, false, false};
  const unsigned length = unit_bytes(text[0]);
  // The second byte's range excludes long forms, surrogates and what is beyond U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code = lead & (0x7F >> length);
  for (unsigned i = 1; i < length; ++i) {
    if (i == text.size()) return {kReplacement, i, false, true};
    if (byte(i) < low || byte(i) > high) return {kReplacement, i, false, false};
    code = code << 6 | (byte(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {code, length, true, false};
}

char32_t last_code(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && is_continuation(text[at])) --at;
  return first_code(text.substr(at));
}

std::size_t cut_bytes(std::string_view text) {
  for (std::size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const std::string_view end = text.substr(text.size() - n);
    if (!is_continuation(end[0])) return first_unit(end).cut ? n : 0;
  }
  return 0;
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  const auto tail = [&](int shift) { put(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    tail(6);
  } else {
    put(0xF0 | code >> 18);
    tail(12);
    tail(6);
  }
  tail(0);
}

std::optional<std::size_t> invalid_utf8_at(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t eight = 0;
    if (text.size() - at >= 8 &&
        (std::memcpy(&eight, text.data() + at, 8), (eight & kHighBits) == 0)) {
      at += 8;
      continue;
    }
    const Utf8Unit unit = first_unit(text.substr(at));
    if (!unit.valid) return at;
    at += unit.bytes;
  }
  return std::nullopt;
}

std::string valid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t good = invalid_utf8_at(text).value_or(text.size());
    result += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) break;
    result += kReplacementText;
    text.remove_prefix(first_unit(text).bytes);
  }
  return result;
}

}  // namespace octavo::text
