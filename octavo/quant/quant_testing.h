// What the tests of quantization share: the rules computed a second way, from the formulas alone,
// and inputs for them. Every f32 operation is written as an exact (or wider) double operation and
// one explicit rounding.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "octavo/formats/traits.h"
#include "octavo/quant/block.h"

namespace octavo::testing {

constexpr double kM = 448;

inline float rounded(double x) { return static_cast<float>(x); }

// The value of a source element, from the definition of its format.
inline double source_value(Format format, std::uint32_t bits) {
  const int mantissa_bits = format == Format::f32 ? 23 : format == Format::bf16 ? 7 : 10;
  const int exponent_bits = format == Format::f16 ? 5 : 8;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const int field = static_cast<int>(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
  const bool negative = (bits >> (mantissa_bits + exponent_bits) & 1) != 0;
  double value = 0;
  if (field == (1 << exponent_bits) - 1) {
    value = mantissa == 0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  } else if (field == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1u << mantissa_bits), field - bias - mantissa_bits);
  }
  return negative ? -value : value;
}

// The 127 magnitudes of e4m3fn by code: 448 is the last one, 0x7F is NaN.
inline const std::vector<double>& e4m3_magnitudes() {
  static const std::vector<double> values = [] {
    std::vector<double> v;
    for (int code = 0; code < 127; ++code) {
      const int field = code / 8;
      const int mantissa = code % 8;
      v.push_back(field == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, field - 10));
    }
    return v;
  }();
  return values;
}

// Clamped to +-448, then to the nearest code, of two equally near ones the even one.
inline std::uint8_t e4m3_code(float x) {
  const std::vector<double>& values = e4m3_magnitudes();
  const double magnitude = std::min(std::abs(static_cast<double>(x)), kM);
  const auto above = std::ranges::lower_bound(values, magnitude);
  auto code = static_cast<unsigned>(above - values.begin());
  if (*above != magnitude) {
    const double middle = (values[code - 1] + values[code]) / 2;
    if (magnitude < middle || (magnitude == middle && code % 2 == 1)) --code;
  }
  return static_cast<std::uint8_t>(code | (std::signbit(x) ? 0x80u : 0u));
}

// The smallest power of two >= x that a byte of 1..254 holds; x = 0 is far below it.
inline int exponent_up(double x) {
  int exponent = -126;
  while (exponent < 127 && std::ldexp(1, exponent) < x) ++exponent;
  return exponent;
}

struct ExpectedScale {
  float scale;
  float factor;
  bool divide;
};

inline ExpectedScale expected_scale(double amax, ScaleRule rule, ScaleFormat scale_fmt) {
  ExpectedScale e{1, 1, false};
  if (rule == ScaleRule::deepgemm) amax = std::max(amax, static_cast<double>(1e-4f));
  if (amax > 0) {
    // PyTorch computes 448 / tensor as 448 times the rounded reciprocal.
    const float q =
        rule == ScaleRule::transformers ? rounded(kM * rounded(1.0 / amax)) : rounded(kM / amax);
    if (q > std::numeric_limits<float>::max()) {
      e.factor = std::numeric_limits<float>::max();
      e.scale = rounded(1.0 / e.factor);
    } else if (rule == ScaleRule::transformers) {
      e.factor = q;
      e.scale = rounded(1.0 / e.factor);
    } else {
      e.scale = rounded(amax / kM);
      e.factor = rounded(1.0 / e.scale);
    }
  }
  if (scale_fmt == ScaleFormat::ue8m0) {
    const int exponent = exponent_up(e.scale);
    return {rounded(std::ldexp(1, exponent)), rounded(std::ldexp(1, -exponent)), false};
  }
  if (rule == ScaleRule::deepseek) return {e.scale, e.scale, true};
  return e;
}

inline std::uint8_t expected_code(double w, const ExpectedScale& scale) {
  return e4m3_code(rounded(scale.divide ? w / scale.factor : w * scale.factor));
}

// A matrix of source bits inside rows of `stride` elements; what lies between is NaN.
struct Source {
  Format format;
  std::size_t rows;
  std::size_t cols;
  std::size_t stride;
  std::vector<std::byte> bytes;

  Source(Format f, std::size_t r, std::size_t c, std::size_t padding = 0)
      : format(f),
        rows(r),
        cols(c),
        stride(c + padding),
        bytes(r * stride * width(), std::byte{0xFF}) {}

  std::size_t width() const { return format == Format::f32 ? 4 : 2; }
  void set(std::size_t r, std::size_t c, std::uint32_t bits) {
    std::memcpy(bytes.data() + (r * stride + c) * width(), &bits, width());
  }
  std::uint32_t get(std::size_t r, std::size_t c) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + (r * stride + c) * width(), width());
    return bits;
  }
  double value(std::size_t r, std::size_t c) const { return source_value(format, get(r, c)); }
  ConstMatrix view() const { return {format, bytes.data(), rows, cols, stride}; }
};

// The bits nearest to zero from x in a source format: any value near x will do as an input.
inline std::uint32_t bits_near(Format format, float x) {
  if (format == Format::f32) return std::bit_cast<std::uint32_t>(x);
  if (format == Format::bf16) return std::bit_cast<std::uint32_t>(x) >> 16;
  const float clamped = std::clamp(x, -65504.0f, 65504.0f);
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(clamped));
}

enum class Kind { gaussian, heavy_tailed, subnormal, zeros, any_finite, midpoints };
inline constexpr Kind kKinds[] = {Kind::gaussian, Kind::heavy_tailed, Kind::subnormal,
                                  Kind::zeros,    Kind::any_finite,   Kind::midpoints};

inline void fill(Source& source, Kind kind, std::mt19937& random) {
  const std::uint32_t infinity = bits_near(Format::f32, std::numeric_limits<float>::infinity());
  const std::uint32_t finite = source.format == Format::f32    ? infinity
                               : source.format == Format::bf16 ? 0x7F80u
                                                               : 0x7C00u;
  const std::uint32_t sign = source.format == Format::f32 ? 0x8000'0000u : 0x8000u;
  const std::uint32_t least_normal = source.format == Format::f32    ? 0x80'0000u
                                     : source.format == Format::bf16 ? 0x80u
                                                                     : 0x400u;
  std::normal_distribution<float> normal(0, 0.02f);
  std::cauchy_distribution<float> cauchy(0, 0.01f);
  const auto below = [&](std::uint32_t end) {
    return std::uniform_int_distribution<std::uint32_t>(0, end - 1)(random) |
           (random() % 2 == 0 ? sign : 0u);
  };
  for (std::size_t r = 0; r < source.rows; ++r) {
    for (std::size_t c = 0; c < source.cols; ++c) {
      std::uint32_t bits = 0;
      switch (kind) {
        case Kind::gaussian:
          bits = bits_near(source.format, normal(random));
          break;
        case Kind::heavy_tailed:
          bits = bits_near(source.format, cauchy(random));
          break;
        case Kind::subnormal:
          bits = below(least_normal);
          break;
        case Kind::zeros:
          bits = random() % 2 == 0 ? sign : 0;
          break;
        case Kind::any_finite:
          bits = below(finite);
          break;
        case Kind::midpoints: {  // between two neighbouring codes at scale 1: amax is 448
          const auto code = random() % 126;
          const double middle = (e4m3_magnitudes()[code] + e4m3_magnitudes()[code + 1]) / 2;
          bits = bits_near(source.format, static_cast<float>(c == 0 ? kM : middle)) |
                 (random() % 2 == 0 ? sign : 0);
          break;
        }
      }
      source.set(r, c, bits);
    }
  }
}

struct Quantized {
  std::vector<float> scales;
  std::vector<std::uint8_t> codes;  // (rows, cols), no padding
};

// Block by block, each on its own.
inline Quantized expected_blocks(const Source& source, const BlockRecipe& recipe) {
  Quantized result;
  result.codes.resize(source.rows * source.cols);
  for (std::size_t row = 0; row < source.rows; row += recipe.block.rows) {
    for (std::size_t col = 0; col < source.cols; col += recipe.block.cols) {
      const std::size_t row_end = std::min<std::size_t>(source.rows, row + recipe.block.rows);
      const std::size_t col_end = std::min<std::size_t>(source.cols, col + recipe.block.cols);
      double amax = 0;
      for (std::size_t r = row; r < row_end; ++r) {
        for (std::size_t c = col; c < col_end; ++c)
          amax = std::max(amax, std::abs(source.value(r, c)));
      }
      const ExpectedScale scale = expected_scale(amax, recipe.rule, recipe.scale_fmt);
      result.scales.push_back(scale.scale);
      for (std::size_t r = row; r < row_end; ++r) {
        for (std::size_t c = col; c < col_end; ++c) {
          result.codes[r * source.cols + c] = expected_code(source.value(r, c), scale);
        }
      }
    }
  }
  return result;
}

inline constexpr ScaleRule kRules[] = {ScaleRule::transformers, ScaleRule::deepseek,
                                       ScaleRule::deepgemm};
inline constexpr ScaleFormat kScaleFormats[] = {ScaleFormat::float32, ScaleFormat::ue8m0};
inline constexpr Format kSourceFormats[] = {Format::f32, Format::bf16, Format::f16};

inline std::string describe(const BlockRecipe& recipe, Format format) {
  return std::string(rule_name(recipe.rule)) + " " +
         std::string(scale_format_name(recipe.scale_fmt)) + " " + format_name(format) + " blocks " +
         std::to_string(recipe.block.rows) + "x" + std::to_string(recipe.block.cols);
}

}  // namespace octavo::testing
