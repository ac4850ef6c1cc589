// What the targets have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "octavo/base/error.h"

namespace octavo::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the process; kept in every build, as assert is not.
inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", property);
  std::abort();
}

// A message for a user: it names the file, and is one line that a terminal can show.
inline void require_message(std::string_view message, std::string_view file) {
  require(message.starts_with(file) && message.size() > file.size() + 2, "errors name the file");
  require(printable(message) == message, "errors are one printable line");
}

}  // namespace octavo::fuzz
