// The number formats by name, and how a conversion rounds and overflows. Dependency-free and C++20:
// device code and instruction-set files include it.
#pragma once

#include <cstdint>

namespace octavo {

// Element formats. Names are the specification's (OCP OFP8, OCP MX, ml_dtypes): fn = finite (no
// infinity), uz = unsigned zero (0x80 is the only NaN), u = unsigned. e2m1fn in a byte of its own
// unless a contract says packed.
enum class Format : std::uint8_t {
  f32,
  bf16,
  f16,
  e4m3fn,
  e5m2,
  e4m3fnuz,
  e5m2fnuz,
  e8m0fnu,
  e2m1fn
};
inline constexpr int kFormatCount = 9;

enum class Rounding : std::uint8_t {
  nearest_even,
  toward_zero,
  away_from_zero,  // e8m0fnu: the next power of two up
};

// What becomes of a magnitude that, after rounding, exceeds the largest finite value, and of
// infinity.
enum class Overflow : std::uint8_t {
  saturate,  // largest finite of that sign, infinities included (NVIDIA's satfinite); NaN stays NaN
  special,   // infinity where the format has one, else NaN (ml_dtypes' and PyTorch's cast)
};

}  // namespace octavo
