#pragma once

#include <cstdint>

namespace octavo {

// a / b, rounded up; b at least 1.
constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace octavo
