#include "tests/support/reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace octavo::tests {
namespace {

// `value` on the grid of a binary format: `fraction_bits` after the leading one, subnormals below
// 2^least_exponent.
double round_to_grid(double value, int fraction_bits, int least_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least_exponent);
  const double unit = std::ldexp(1.0, exponent - fraction_bits);
  return std::nearbyint(value / unit) * unit;  // the default mode is to nearest even
}

double decode_bits(std::uint8_t code, int fraction_bits, int bias) {
  const int field = (code & 0x7F) >> fraction_bits;
  const int fraction = code & ((1 << fraction_bits) - 1);
  const double magnitude =
      field == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                 : std::ldexp((1 << fraction_bits) + fraction, field - bias - fraction_bits);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace

double decode_fp8(Fp8 format, std::uint8_t code) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const int magnitude = code & 0x7F;
  switch (format) {
    case Fp8::e4m3fn:
      return magnitude == 0x7F ? nan : decode_bits(code, 3, 7);
    case Fp8::e5m2:
      if (magnitude > 0x7C) return nan;
      if (magnitude == 0x7C) return code == 0x7C ? HUGE_VAL : -HUGE_VAL;
      return decode_bits(code, 2, 15);
    case Fp8::e4m3fnuz:
      return code == 0x80 ? nan : decode_bits(code, 3, 8);
    case Fp8::e5m2fnuz:
      return code == 0x80 ? nan : decode_bits(code, 2, 16);
  }
  return nan;
}

double decode_e2m1(std::uint8_t code) {
  constexpr std::array<double, 8> kValues = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double magnitude = kValues.at(code & 7);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

float decode_e8m0(std::uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(std::ldexp(1.0, code - 127));
}

std::uint8_t e8m0_byte(float power_of_two) {
  for (int code = 0; code < 255; ++code) {
    if (decode_e8m0(static_cast<std::uint8_t>(code)) == power_of_two)
      return static_cast<std::uint8_t>(code);
  }
  throw std::invalid_argument("not a power of two within E8M0");
}

std::uint8_t encode_e4m3(float value) {
  constexpr int kLargest = 0x7E;  // 448
  static const std::array<double, kLargest + 1> kValues = [] {
    std::array<double, kLargest + 1> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = decode_fp8(Fp8::e4m3fn, static_cast<std::uint8_t>(i));
    }
    return values;
  }();
  const int sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | 0x7F);
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto above = std::ranges::lower_bound(kValues, magnitude);
  if (above == kValues.end()) return static_cast<std::uint8_t>(sign | kLargest);
  auto code = static_cast<int>(above - kValues.begin());
  if (*above != magnitude) {
    const double to_above = *above - magnitude;
    const double to_below = magnitude - *(above - 1);
    if (to_below < to_above || (to_below == to_above && code % 2 == 1)) --code;
  }
  return static_cast<std::uint8_t>(sign | code);
}

std::uint16_t bf16_bits(float value) {
  if (std::isnan(value)) return std::signbit(value) ? 0xFFC0 : 0x7FC0;
  // Rounds beyond the largest BF16 give 2^128, which is infinity as f32.
  const auto rounded = static_cast<float>(round_to_grid(value, 7, -126));
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) >> 16);
}

float bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t f16_bits(float value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00);
  const double magnitude = round_to_grid(std::fabs(static_cast<double>(value)), 10, -14);
  if (magnitude >= 65536.0) return static_cast<std::uint16_t>(sign | 0x7C00);
  int field = 0;
  double fraction = std::ldexp(magnitude, 24);  // in units of the smallest subnormal
  if (magnitude >= std::ldexp(1.0, -14)) {
    const int exponent = std::ilogb(magnitude);
    field = exponent + 15;
    fraction = std::ldexp(magnitude, 10 - exponent) - 1024;
  }
  return static_cast<std::uint16_t>(sign | field << 10 | static_cast<int>(fraction));
}

float f16_value(std::uint16_t bits) {
  const int field = bits >> 10 & 31;
  const int fraction = bits & 1023;
  double magnitude =
      field == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, field - 25);
  if (field == 31) magnitude = fraction == 0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

const char* rule_name(Rule rule) {
  switch (rule) {
    case Rule::transformers:
      return "transformers";
    case Rule::deepseek:
      return "deepseek";
    case Rule::deepgemm:
      return "deepgemm";
  }
  return "";
}

Extent grid_of(const Extent& matrix, std::uint64_t block_rows, std::uint64_t block_cols) {
  return {(matrix.rows + block_rows - 1) / block_rows, (matrix.cols + block_cols - 1) / block_cols};
}

namespace {

// A block's scale, and the number and operation that its codes come from.
struct BlockScale {
  float scale;
  float factor;
  bool divide;
};

BlockScale scale_of(float amax, const Recipe& recipe) {
  constexpr float kMax = 448.0f;
  if (recipe.rule == Rule::deepgemm) amax = std::max(amax, 1e-4f);
  BlockScale result{1.0f, 1.0f, false};
  if (amax > 0) {
    // Transformers divides a Python number by a tensor, which torch computes as number x
    // reciprocal.
    const float q = recipe.rule == Rule::transformers ? kMax * (1.0f / amax) : kMax / amax;
    if (std::isinf(q)) {
      result.factor = std::numeric_limits<float>::max();
      result.scale = 1.0f / result.factor;
    } else if (recipe.rule == Rule::transformers) {
      result = {1.0f / q, q, false};
    } else {
      result.scale = amax / kMax;
      result.factor = 1.0f / result.scale;
    }
  }
  if (recipe.ue8m0) {
    int exponent = 0;
    const float fraction =
        std::frexp(result.scale, &exponent);  // scale = fraction x 2^exponent, 0.5 <= fraction < 1
    if (fraction == 0.5f) --exponent;
    result.scale = static_cast<float>(std::ldexp(1.0, std::clamp(exponent, -126, 127)));
    result.factor = 1.0f / result.scale;
  } else if (recipe.rule == Rule::deepseek) {
    result.factor = result.scale;
    result.divide = true;
  }
  return result;
}

}  // namespace

Quantized quantize(std::span<const float> values, const Extent& matrix, const Recipe& recipe) {
  const Extent grid = grid_of(matrix, recipe.block_rows, recipe.block_cols);
  std::vector<float> amax(grid.count(), 0.0f);
  const auto block_of = [&](std::uint64_t row, std::uint64_t col) {
    return row / recipe.block_rows * grid.cols + col / recipe.block_cols;
  };
  for (std::uint64_t r = 0; r < matrix.rows; ++r) {
    for (std::uint64_t c = 0; c < matrix.cols; ++c) {
      float& largest = amax[block_of(r, c)];
      largest = std::max(largest, std::fabs(values[r * matrix.cols + c]));
    }
  }
  Quantized result{std::vector<std::uint8_t>(matrix.count()), std::vector<float>(grid.count())};
  std::vector<BlockScale> scales(grid.count());
  for (std::uint64_t b = 0; b < grid.count(); ++b) {
    scales[b] = scale_of(amax[b], recipe);
    result.scales[b] = scales[b].scale;
  }
  for (std::uint64_t r = 0; r < matrix.rows; ++r) {
    for (std::uint64_t c = 0; c < matrix.cols; ++c) {
      const BlockScale& block = scales[block_of(r, c)];
      const float w = values[r * matrix.cols + c];
      result.codes[r * matrix.cols + c] =
          encode_e4m3(block.divide ? w / block.factor : w * block.factor);
    }
  }
  return result;
}

std::vector<float> dequantize(std::span<const std::uint8_t> codes, Fp8 format, const Extent& matrix,
                              std::span<const float> scales, std::uint64_t block_rows,
                              std::uint64_t block_cols) {
  const Extent grid = grid_of(matrix, block_rows, block_cols);
  std::array<float, 256> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(decode_fp8(format, static_cast<std::uint8_t>(i)));
  }
  std::vector<float> result(matrix.count());
  for (std::uint64_t r = 0; r < matrix.rows; ++r) {
    for (std::uint64_t c = 0; c < matrix.cols; ++c) {
      result[r * matrix.cols + c] =
          values[codes[r * matrix.cols + c]] * scales[r / block_rows * grid.cols + c / block_cols];
    }
  }
  return result;
}

}  // namespace octavo::tests
