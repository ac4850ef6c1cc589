// The values of all codes of an 8-bit format (of a narrower one, repeated), for code that decodes
// by looking up.
#pragma once

#include <array>

#include "octavo/formats/convert.h"

namespace octavo {

template <Format F>
  requires(sizeof(Code<F>) == 1)
inline constexpr std::array<float, 256> kDecoded = [] {
  std::array<float, 256> values{};
  for (std::uint32_t code = 0; code < 256; ++code) {
    values[code] = decode<F>(static_cast<Code<F>>(code & traits(F).all_bits()));
  }
  return values;
}();

}  // namespace octavo
