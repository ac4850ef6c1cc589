// What each format is: how many bits for what, where it ends, and which codes are special.
//
// A code is sign, exponent field E, mantissa field M, from the top bit down. E = 0 means subnormal:
//
//     value = (-1)^sign x            M / 2^mantissa_bits  x 2^(1 - bias)      if E == 0
//     value = (-1)^sign x (1 + M / 2^mantissa_bits) x 2^(E - bias)            otherwise
//
// except for the codes that the table names as infinity and NaN, and except for e8m0fnu, which is
// all exponent: no sign, no zero, no subnormals, value = 2^(E - bias) for each of its codes but
// one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/formats/format.h"

namespace octavo {

struct FormatTraits {
  const char* name;
  int bits;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  double largest;               // largest finite value
  std::uint32_t largest_code;   // its code
  std::uint32_t infinity_code;  // of +infinity; 0: the format has none
  std::uint32_t nan_code;  // canonical quiet NaN, sign clear, payload zero; 0: the format has none
  double smallest_normal;

  constexpr bool has_sign() const { return bits == 1 + exponent_bits + mantissa_bits; }
  constexpr bool has_infinity() const { return infinity_code != 0; }
  constexpr bool has_nan() const { return nan_code != 0; }

  // The smallest positive value: subnormal but for e8m0fnu, which has none.
  constexpr double smallest() const { return smallest_normal / (1 << mantissa_bits); }

  constexpr std::uint32_t sign_bit() const { return has_sign() ? 1u << (bits - 1) : 0u; }
  constexpr std::uint32_t all_bits() const { return 0xFFFFFFFFu >> (32 - bits); }
  constexpr std::uint32_t magnitude_bits() const { return all_bits() & ~sign_bit(); }

  // fnuz: what would be minus zero is the only NaN.
  constexpr bool has_unsigned_zero() const { return has_sign() && nan_code == sign_bit(); }

  constexpr bool is_nan(std::uint32_t code) const {
    if (has_unsigned_zero()) return code == nan_code;
    const std::uint32_t last_number = has_infinity() ? infinity_code : largest_code;
    return has_nan() && (code & magnitude_bits()) > last_number;
  }
  constexpr bool is_infinite(std::uint32_t code) const {
    return has_infinity() && (code & magnitude_bits()) == infinity_code;
  }
};

// In the order of Format.
// clang-format off
inline constexpr FormatTraits kFormatTraits[kFormatCount] = {
    // name, bits, exponent, mantissa bits, bias; largest, its code; infinity; NaN; smallest normal
    {"f32",      32, 8, 23, 127, 0x1.fffffep127, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x1p-126},
    {"bf16",     16, 8, 7,  127, 0x1.fep127,     0x7F7F,     0x7F80,     0x7FC0,     0x1p-126},
    {"f16",      16, 5, 10, 15,  65504,          0x7BFF,     0x7C00,     0x7E00,     0x1p-14},
    {"e4m3fn",   8,  4, 3,  7,   448,            0x7E,       0,          0x7F,       0x1p-6},
    {"e5m2",     8,  5, 2,  15,  57344,          0x7B,       0x7C,       0x7E,       0x1p-14},
    {"e4m3fnuz", 8,  4, 3,  8,   240,            0x7F,       0,          0x80,       0x1p-7},
    {"e5m2fnuz", 8,  5, 2,  16,  57344,          0x7F,       0,          0x80,       0x1p-15},
    {"e8m0fnu",  8,  8, 0,  127, 0x1p127,        0xFE,       0,          0xFF,       0x1p-127},
    {"e2m1fn",   4,  2, 1,  1,   6,              0x7,        0,          0,          1},
};
// clang-format on

constexpr const FormatTraits& traits(Format format) {
  return kFormatTraits[static_cast<int>(format)];
}

constexpr const char* format_name(Format format) { return traits(format).name; }
constexpr int bits_per_element(Format format) { return traits(format).bits; }
constexpr std::size_t bytes_per_element(Format format) {  // 0 for e2m1fn, which is packed
  return static_cast<std::size_t>(traits(format).bits) / 8;
}
constexpr double largest_finite(Format format) { return traits(format).largest; }

}  // namespace octavo
