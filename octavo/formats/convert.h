// encode and decode: one number to its code and back, for every format, exactly.
//
// encode rounds once, whatever the source: float and double both come as the exact double that they
// are. decode is exact, because f32 holds every value of every format here. Overflow is decided
// after rounding as if the exponent had no end: 464 is a tie that goes to 448, and toward_zero
// overflows only from 480 on.
//
// NaN becomes the target's canonical NaN with the source's sign (fnuz: its only one). Signed zero
// is kept where the format has it. Two formats have less than the rest, and say here what they do
// instead:
//   e2m1fn   has neither infinity nor NaN: too large always clamps to +-6, infinity too. NaN under
//   `special` as in
//            ml_dtypes (the zero of the other sign), under `saturate` as in NVIDIA's conversion
//            (+6).
//   e8m0fnu  has neither sign nor zero. What is not a positive finite number is NaN under
//   `special`; under `saturate`
//            it is clamped: +infinity to 2^127, zero and negative numbers to 2^-127. Nearest goes
//            up from a significand of 1.5 (there is no even code to tie to), also between 2^-127
//            and 2^-126.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "octavo/formats/format.h"
#include "octavo/formats/traits.h"

namespace octavo {

// The unsigned integer that holds a code of F.
template <Format F>
using Code =
    std::conditional_t<traits(F).bits == 32, std::uint32_t,
                       std::conditional_t<traits(F).bits == 16, std::uint16_t, std::uint8_t>>;

namespace detail {

// A non-negative finite double is significand x 2^exponent, exactly.
struct Unpacked {
  std::uint64_t significand;  // below 2^53; at or above 2^52 unless the double is subnormal
  int exponent;
};

constexpr Unpacked unpack(std::uint64_t magnitude) {
  const int field = static_cast<int>(magnitude >> 52);
  const std::uint64_t mantissa = magnitude & 0xF'FFFF'FFFF'FFFF;
  if (field == 0) return {mantissa, 1 - 1023 - 52};
  return {mantissa | 1ull << 52, field - 1023 - 52};
}

// significand / 2^shift as an integer; shift >= 1.
constexpr std::uint64_t round_shift(std::uint64_t significand, int shift, Rounding rounding) {
  if (shift > 54) shift = 54;  // already less than half of one
  const std::uint64_t kept = significand >> shift;
  const std::uint64_t dropped = significand & ((1ull << shift) - 1);
  const std::uint64_t half = 1ull << (shift - 1);
  switch (rounding) {
    case Rounding::toward_zero:
      return kept;
    case Rounding::away_from_zero:
      return kept + (dropped != 0 ? 1 : 0);
    case Rounding::nearest_even:
      break;
  }
  const bool up = dropped > half || (dropped == half && (kept & 1) != 0);
  return kept + (up ? 1 : 0);
}

// The code of a positive magnitude, as if the exponent field had no end: above largest_code means
// overflow.
constexpr std::uint64_t round_magnitude(std::uint64_t magnitude, const FormatTraits& format,
                                        Rounding rounding) {
  const Unpacked x = unpack(magnitude);
  const int smallest_exponent = 1 - format.bias;
  const int exponent = x.exponent + 52 > smallest_exponent ? x.exponent + 52 : smallest_exponent;
  const int last_place = exponent - format.mantissa_bits;
  // Below 2^mantissa_bits for subnormals; for normals with the implicit one, which carries into the
  // exponent field, as does rounding up to the next power of two.
  const std::uint64_t kept = round_shift(x.significand, last_place - x.exponent, rounding);
  const auto exponent_field = static_cast<std::uint64_t>(exponent - smallest_exponent);
  return (exponent_field << format.mantissa_bits) + kept;
}

constexpr std::uint32_t encode_e8m0fnu(double x, Rounding rounding, Overflow overflow) {
  constexpr FormatTraits kFormat = traits(Format::e8m0fnu);
  if (x != x) return kFormat.nan_code;
  if (!(x > 0)) return overflow == Overflow::saturate ? 0 : kFormat.nan_code;
  const auto magnitude = std::bit_cast<std::uint64_t>(x);
  const bool infinite = magnitude == 0x7FF0'0000'0000'0000;
  int exponent = static_cast<int>(magnitude >> 52) - 1023;
  const std::uint64_t mantissa = magnitude & 0xF'FFFF'FFFF'FFFF;
  if (rounding == Rounding::away_from_zero && mantissa != 0) ++exponent;
  if (rounding == Rounding::nearest_even && mantissa >= 1ull << 51) ++exponent;
  if (infinite || exponent > kFormat.bias) {
    return overflow == Overflow::saturate ? kFormat.largest_code : kFormat.nan_code;
  }
  return exponent < -kFormat.bias ? 0 : static_cast<std::uint32_t>(exponent + kFormat.bias);
}

}  // namespace detail

template <Format F>
constexpr Code<F> encode(double x, Rounding rounding, Overflow overflow) {
  if constexpr (F == Format::e8m0fnu) {
    return static_cast<Code<F>>(detail::encode_e8m0fnu(x, rounding, overflow));
  } else {
    constexpr FormatTraits kFormat = traits(F);
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t magnitude = bits & 0x7FFF'FFFF'FFFF'FFFF;
    const bool negative = (bits >> 63) != 0;
    const std::uint32_t sign = negative ? kFormat.sign_bit() : 0;
    constexpr std::uint64_t kInfinity = 0x7FF0'0000'0000'0000;

    if (magnitude > kInfinity) {  // NaN
      if constexpr (kFormat.has_nan()) return static_cast<Code<F>>(kFormat.nan_code | sign);
      if (overflow == Overflow::saturate) return static_cast<Code<F>>(kFormat.largest_code);
      return static_cast<Code<F>>(sign ^ kFormat.sign_bit());
    }

    std::uint64_t code = kFormat.largest_code + 1ull;
    if (magnitude < kInfinity) code = detail::round_magnitude(magnitude, kFormat, rounding);
    if (code > kFormat.largest_code) {
      const bool clamp = overflow == Overflow::saturate || !kFormat.has_nan();
      code = clamp                    ? kFormat.largest_code
             : kFormat.has_infinity() ? kFormat.infinity_code
                                      : kFormat.nan_code;
    }
    if (kFormat.has_unsigned_zero() && code == 0) return 0;
    return static_cast<Code<F>>(code | sign);
  }
}

// The value of a code; the NaN of a fnuz format counts as negative.
template <Format F>
constexpr float decode(Code<F> code) {
  constexpr FormatTraits kFormat = traits(F);
  if constexpr (F == Format::f32) {
    return std::bit_cast<float>(kFormat.is_nan(code)
                                    ? kFormat.nan_code | (code & kFormat.sign_bit())
                                    : static_cast<std::uint32_t>(code));
  } else {
    const std::uint32_t sign = (code & kFormat.sign_bit()) != 0 ? 0x8000'0000u : 0u;
    if (kFormat.is_nan(code)) return std::bit_cast<float>(0x7FC0'0000u | sign);
    if (kFormat.is_infinite(code)) return std::bit_cast<float>(0x7F80'0000u | sign);

    const std::uint32_t magnitude = code & kFormat.magnitude_bits();
    const auto field = static_cast<int>(magnitude >> kFormat.mantissa_bits);
    const std::uint32_t mantissa = magnitude & ((1u << kFormat.mantissa_bits) - 1);
    constexpr std::uint32_t kImplicitOne = 1u << kFormat.mantissa_bits;
    const bool subnormal = field == 0 && F != Format::e8m0fnu;
    const std::uint32_t significand = subnormal ? mantissa : mantissa | kImplicitOne;
    const int exponent = (subnormal ? 1 : field) - kFormat.bias - kFormat.mantissa_bits;
    const auto power = std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
    const double value = significand * power;
    return static_cast<float>(sign != 0 ? -value : value);
  }
}

}  // namespace octavo
