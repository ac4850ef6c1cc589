// The number formats and the quantization rules, from their definitions: scalar, slow, and without
// a line of the library.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace octavo::tests {

enum class Fp8 { e4m3fn, e5m2, e4m3fnuz, e5m2fnuz };

double decode_fp8(Fp8 format, std::uint8_t code);
double decode_e2m1(std::uint8_t code);  // 0..15
float decode_e8m0(std::uint8_t code);

// Nearest even among the finite codes; clamped to +-448. NaN is 0x7F with its sign.
std::uint8_t encode_e4m3(float value);

// f32 rounded once to nearest even, as bits; and back.
std::uint16_t bf16_bits(float value);
float bf16_value(std::uint16_t bits);
std::uint16_t f16_bits(float value);
float f16_value(std::uint16_t bits);

enum class Rule { transformers, deepseek, deepgemm };
inline constexpr Rule kAllRules[] = {Rule::transformers, Rule::deepseek, Rule::deepgemm};
const char* rule_name(Rule rule);  // as --rule spells it

struct Recipe {
  std::uint64_t block_rows = 128;
  std::uint64_t block_cols = 128;
  Rule rule = Rule::transformers;
  bool ue8m0 = false;
};

struct Extent {
  std::uint64_t rows;
  std::uint64_t cols;
  std::uint64_t count() const { return rows * cols; }
};

Extent grid_of(const Extent& matrix, std::uint64_t block_rows, std::uint64_t block_cols);

struct Quantized {
  std::vector<std::uint8_t> codes;  // (rows, cols)
  std::vector<float> scales;        // grid_of(...)
};

// One matrix, row-major, of finite values.
Quantized quantize(std::span<const float> values, const Extent& matrix, const Recipe& recipe);

// code x scale, one f32 rounding.
std::vector<float> dequantize(std::span<const std::uint8_t> codes, Fp8 format, const Extent& matrix,
                              std::span<const float> scales, std::uint64_t block_rows,
                              std::uint64_t block_cols);

// 2^exponent of a power of two as an E8M0 byte; the value must be one.
std::uint8_t e8m0_byte(float power_of_two);

}  // namespace octavo::tests
