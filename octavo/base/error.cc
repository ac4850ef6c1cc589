#include "octavo/base/error.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

namespace octavo {
namespace {

// Bytes of the character that `text` begins with; 0 where it is a control character or no UTF-8.
std::size_t printable_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  if (first < 0xC0 || first > 0xF7) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  std::uint32_t code = first & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  // 0x80 to 0x9F are control characters too.
  constexpr std::array<std::uint32_t, 3> kSmallest = {0xA0, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code >= kSmallest[length - 2] && code <= 0x10FFFF && !surrogate ? length : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = printable_bytes(text);
    if (bytes == 0) {
      result += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[0]));
    } else {
      result += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return result;
}

std::unexpected<Error> fail(ErrorCode code, std::string_view message) {
  return std::unexpected(Error{code, printable(message)});
}

}  // namespace octavo
