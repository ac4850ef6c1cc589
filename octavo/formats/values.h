// A code with its format: the types to store and pass numbers of a small format. Nothing converts
// by itself; the two ways between a number and its code, bits and value, are named.
#pragma once

#include "octavo/formats/convert.h"

namespace octavo {

template <Format F>
class Value {
 public:
  static constexpr Format kFormat = F;

  constexpr Value() = default;  // code 0: zero, and 2^-127 for e8m0fnu
  static constexpr Value from_bits(Code<F> bits) {
    Value value;
    value.bits_ = bits;
    return value;
  }
  static constexpr Value rounded(double x, Rounding rounding, Overflow overflow) {
    return from_bits(encode<F>(x, rounding, overflow));
  }

  constexpr Code<F> bits() const { return bits_; }
  constexpr float to_float() const { return decode<F>(bits_); }
  constexpr bool is_nan() const { return traits(F).is_nan(bits_); }

 private:
  Code<F> bits_ = 0;
};

using Bf16 = Value<Format::bf16>;
using F16 = Value<Format::f16>;
using E4m3fn = Value<Format::e4m3fn>;
using E5m2 = Value<Format::e5m2>;
using E4m3fnuz = Value<Format::e4m3fnuz>;
using E5m2fnuz = Value<Format::e5m2fnuz>;
using E8m0fnu = Value<Format::e8m0fnu>;
using E2m1fn = Value<Format::e2m1fn>;  // one code in the low half of a byte

}  // namespace octavo
