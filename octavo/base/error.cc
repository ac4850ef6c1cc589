#include "octavo/base/error.h"

#include <fmt/format.h>

namespace octavo {

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\x{:02X}", byte);
    } else {
      result += c;
    }
  }
  return result;
}

std::unexpected<Error> fail(ErrorCode code, std::string_view message) {
  return std::unexpected(Error{code, printable(message)});
}

}  // namespace octavo
