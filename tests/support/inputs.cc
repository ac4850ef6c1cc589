#include "tests/support/inputs.h"

#include <cmath>
#include <random>

namespace octavo::tests {
namespace {

float magnitude_of_block(std::uint64_t row, std::uint64_t col) {
  const auto index = static_cast<int>(row / 128 * 7 + col / 128 * 3);
  return std::ldexp(1.0f, index % 11 - 9);
}

template <class Draw>
std::vector<float> draw_matrix(const Extent& matrix, const Draw& draw) {
  std::vector<float> values(matrix.count());
  for (std::uint64_t r = 0; r < matrix.rows; ++r) {
    for (std::uint64_t c = 0; c < matrix.cols; ++c) {
      values[r * matrix.cols + c] = bf16_value(bf16_bits(draw() * magnitude_of_block(r, c)));
    }
  }
  return values;
}

bool is_number(Fp8 format, std::uint8_t code) { return std::isfinite(decode_fp8(format, code)); }

}  // namespace

std::vector<float> gaussian(const Extent& matrix, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  return draw_matrix(matrix, [&] { return normal(random); });
}

std::vector<float> heavy_tailed(const Extent& matrix, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::student_t_distribution<float> student(2.0f);
  return draw_matrix(matrix, [&] { return student(random); });
}

Tensor bf16_weight(const Extent& matrix, std::uint64_t seed) {
  return make_tensor("BF16", {matrix.rows, matrix.cols}, gaussian(matrix, seed));
}

Bytes random_codes(const Extent& matrix, Fp8 format, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes codes(matrix.count());
  for (std::uint8_t& code : codes) {
    do {
      code = static_cast<std::uint8_t>(random() & 0xFF);
    } while (!is_number(format, code));
  }
  return codes;
}

std::vector<float> distinct_scales(std::uint64_t count) {
  std::vector<float> scales(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    scales[i] = std::ldexp(1.0f + 0.371f * static_cast<float>(i) / static_cast<float>(count),
                           static_cast<int>(i % 7) - 10);
  }
  return scales;
}

std::vector<float> power_of_two_scales(std::uint64_t count) {
  std::vector<float> scales(count);
  for (std::uint64_t i = 0; i < count; ++i)
    scales[i] = std::ldexp(1.0f, static_cast<int>(i * 5 % 12) - 12);
  return scales;
}

Fp8Weight fp8_weight(const Extent& matrix, std::uint64_t seed, std::uint64_t block_rows,
                     std::uint64_t block_cols) {
  const Extent grid = grid_of(matrix, block_rows, block_cols);
  const std::vector<float> scales = distinct_scales(grid.count());
  Fp8Weight weight{{"F8_E4M3", {matrix.rows, matrix.cols}, random_codes(matrix, Fp8::e4m3fn, seed)},
                   make_tensor("F32", {grid.rows, grid.cols}, scales),
                   {}};
  weight.values =
      dequantize(weight.codes.bytes, Fp8::e4m3fn, matrix, scales, block_rows, block_cols);
  return weight;
}

Fp8Weight fp8_weight(const Extent& matrix, std::uint64_t seed, const std::vector<float>& scales) {
  const Extent grid = grid_of(matrix, 128, 128);
  Fp8Weight weight{{"F8_E4M3", {matrix.rows, matrix.cols}, random_codes(matrix, Fp8::e4m3fn, seed)},
                   make_tensor("F32", {grid.rows, grid.cols}, scales),
                   {}};
  weight.values = dequantize(weight.codes.bytes, Fp8::e4m3fn, matrix, scales, 128, 128);
  return weight;
}

Tensor as_bf16(const Fp8Weight& weight) {
  return make_tensor("BF16", weight.codes.shape, weight.values);
}

Tensor e8m0_tensor(Dims shape, const std::vector<float>& powers_of_two) {
  Tensor tensor{"F8_E8M0", std::move(shape), {}};
  for (const float scale : powers_of_two) tensor.bytes.push_back(e8m0_byte(scale));
  return tensor;
}

QuantizedTensors expected_quantized(const Tensor& wide, const Recipe& recipe) {
  const Extent matrix{wide.shape[wide.shape.size() - 2], wide.shape.back()};
  const Extent grid = grid_of(matrix, recipe.block_rows, recipe.block_cols);
  const std::vector<float> values = values_of(wide);
  QuantizedTensors result{{"F8_E4M3", wide.shape, {}}, {}};
  std::vector<float> scales;
  for (std::uint64_t at = 0; at < values.size(); at += matrix.count()) {
    const Quantized slice = quantize(std::span(values).subspan(at, matrix.count()), matrix, recipe);
    result.codes.bytes.insert(result.codes.bytes.end(), slice.codes.begin(), slice.codes.end());
    scales.insert(scales.end(), slice.scales.begin(), slice.scales.end());
  }
  Dims shape = wide.shape;
  shape[shape.size() - 2] = grid.rows;
  shape.back() = grid.cols;
  result.scales = recipe.ue8m0 ? e8m0_tensor(shape, scales) : make_tensor("F32", shape, scales);
  return result;
}

}  // namespace octavo::tests
