// The formats once more, from their definitions, and rounding by searching all values: slow, plain,
// and with nothing in common with convert.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "octavo/formats/format.h"

namespace octavo::testing {

enum class Specials {
  ieee,  // all ones in the exponent: infinity and NaN
  fn,    // all ones in exponent and mantissa: NaN
  fnuz,  // only the sign: NaN
  none,
};

struct Definition {
  int exponent_bits, mantissa_bits, bias;
  Specials specials;
  int bits() const { return 1 + exponent_bits + mantissa_bits; }
};

inline Definition definition(Format format) {
  switch (format) {
    case Format::bf16:
      return {8, 7, 127, Specials::ieee};
    case Format::f16:
      return {5, 10, 15, Specials::ieee};
    case Format::e4m3fn:
      return {4, 3, 7, Specials::fn};
    case Format::e5m2:
      return {5, 2, 15, Specials::ieee};
    case Format::e4m3fnuz:
      return {4, 3, 8, Specials::fnuz};
    case Format::e5m2fnuz:
      return {5, 2, 16, Specials::fnuz};
    case Format::e2m1fn:
      return {2, 1, 1, Specials::none};
    default:
      return {};  // f32 and e8m0fnu are tested by other means
  }
}

// The value of a code; nothing for NaN.
inline std::optional<double> value_of(Format format, std::uint32_t code) {
  const Definition d = definition(format);
  const int sign = static_cast<int>(code >> (d.bits() - 1));
  const int e = static_cast<int>(code >> d.mantissa_bits) & ((1 << d.exponent_bits) - 1);
  const int m = static_cast<int>(code) & ((1 << d.mantissa_bits) - 1);
  const bool e_full = e == (1 << d.exponent_bits) - 1;
  const bool m_full = m == (1 << d.mantissa_bits) - 1;
  if (d.specials == Specials::fnuz && sign == 1 && e == 0 && m == 0) return std::nullopt;
  if (d.specials == Specials::fn && e_full && m_full) return std::nullopt;
  double value = 0;
  if (d.specials == Specials::ieee && e_full) {
    if (m != 0) return std::nullopt;
    value = std::numeric_limits<double>::infinity();
  } else if (e == 0) {
    value = std::ldexp(m, 1 - d.bias - d.mantissa_bits);
  } else {
    value = std::ldexp((1 << d.mantissa_bits) + m, e - d.bias - d.mantissa_bits);
  }
  return sign == 1 ? -value : value;
}

// The finite non-negative values of a format, in order; index = code.
class Search {
 public:
  explicit Search(Format format) : format_(format) {
    for (std::uint32_t code = 0;; ++code) {
      const std::optional<double> value = value_of(format, code);
      if (!value || std::signbit(*value) || std::isinf(*value)) break;
      values_.push_back(*value);
    }
  }

  std::uint32_t largest_code() const { return static_cast<std::uint32_t>(values_.size() - 1); }
  double value(std::uint32_t code) const { return values_[code]; }

  // Where the last value's neighbour would be, were there one more code.
  double beyond() const { return 2 * values_.back() - values_[values_.size() - 2]; }

  // The code of a non-negative number, or nothing where it overflows: rounded on a grid without
  // end, it would lie beyond.
  std::optional<std::uint32_t> round(double x, Rounding rounding) const {
    const auto above = std::upper_bound(values_.begin(), values_.end(), x);
    const auto low = static_cast<std::uint32_t>(above - values_.begin()) - 1;
    const double low_value = values_[low];
    const double high_value = low == largest_code() ? beyond() : values_[low + 1];
    bool up = false;
    if (rounding == Rounding::away_from_zero) up = x > low_value;
    if (rounding == Rounding::nearest_even) {
      const double middle = (low_value + high_value) / 2;
      up = x > middle || (x == middle && low % 2 == 1);
    }
    if (x >= high_value) return std::nullopt;
    if (!up) return low;
    if (low == largest_code()) return std::nullopt;
    return low + 1;
  }

  // The code of any number, by the rules of convert.h.
  std::uint32_t encode(double x, Rounding rounding, Overflow overflow) const {
    const Definition d = definition(format_);
    const bool negative = std::signbit(x);
    const std::uint32_t sign = 1u << (d.bits() - 1);
    const std::uint32_t all_exponent = ((1u << d.exponent_bits) - 1) << d.mantissa_bits;
    std::uint32_t nan = 0, infinity = 0;
    switch (d.specials) {
      case Specials::ieee:
        infinity = all_exponent;
        nan = all_exponent | 1u << (d.mantissa_bits - 1);
        break;
      case Specials::fn:
        infinity = nan = sign - 1;
        break;
      case Specials::fnuz:
        if (std::isnan(x)) return sign;
        infinity = sign;
        break;
      case Specials::none:
        if (std::isnan(x))
          return overflow == Overflow::saturate ? largest_code() : negative ? 0 : sign;
        infinity = largest_code();
        break;
    }
    if (std::isnan(x)) return nan | (negative ? sign : 0);
    std::optional<std::uint32_t> magnitude;
    if (!std::isinf(x)) magnitude = round(std::abs(x), rounding);
    if (!magnitude) magnitude = overflow == Overflow::saturate ? largest_code() : infinity;
    if (d.specials == Specials::fnuz && *magnitude == 0) return 0;
    return *magnitude | (negative ? sign : 0);
  }

 private:
  Format format_;
  std::vector<double> values_;
};

}  // namespace octavo::testing
