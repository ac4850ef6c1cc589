#include "octavo/ops/quantize_activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/formats/convert.h"

namespace octavo::ops {
namespace {

struct Quantized {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  Operand operand;
};

Quantized quantize(const std::vector<float>& x, std::size_t stride, std::size_t rows,
                   std::size_t cols, std::size_t group, int threads) {
  ThreadPool pool(threads);
  Quantized q{std::vector<std::uint8_t>(rows * cols, 0xA5),
              std::vector<float>(rows * ceil_div(cols, std::min(group, cols)), -1.0f),
              {}};
  q.operand = quantize_activations(
      {x.data(), stride, rows, cols, group, q.codes.data(), q.scales.data()}, Context{&pool});
  return q;
}

// Rows of all magnitudes, zeros among them.
std::vector<float> activations(std::mt19937& random, std::size_t rows, std::size_t stride) {
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * stride);
  for (std::size_t r = 0; r < rows; ++r) {
    const int exponent = r % 5 == 3 ? -140 : static_cast<int>(random() % 100) - 60;
    for (std::size_t c = 0; c < stride; ++c) {
      x[r * stride + c] = std::ldexp(normal(random), exponent);
    }
    if (r % 4 == 1) {
      std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(r * stride), stride / 2, 0.0f);
    }
    if (r % 7 == 2) std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(r * stride), stride, -0.0f);
  }
  return x;
}

TEST(QuantizeActivations, AreBlocksOfOneRowUnderDeepseeksRule) {
  std::mt19937 random(1);
  const struct {
    std::size_t rows, cols, group;
  } cases[] = {{1, 1, 128},   {1, 128, 128},     {9, 200, 128}, {17, 576, 128},
               {5, 100, 32},  {3, 130, 64},      {3, 2200, 32}, {40, 2100, 128},
               {6, 300, 300}, {6, 300, 1 << 20}, {0, 64, 128},  {200, 513, 256}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.cols) + " by " +
                 std::to_string(c.group));
    const std::size_t stride = c.cols + 3, group = std::min(c.group, c.cols);
    const std::vector<float> x = activations(random, c.rows, stride);
    std::vector<std::uint8_t> codes(c.rows * c.cols);
    std::vector<float> scales(c.rows * ceil_div(c.cols, group));
    const auto bad = quantize_blocks(kernels::cast_kernels(Isa::generic),
                                     {Format::f32, x.data(), c.rows, c.cols, stride},
                                     {{1, group}, ScaleRule::deepseek, ScaleFormat::float32},
                                     {codes.data(), c.cols}, scales, false);
    ASSERT_FALSE(bad);
    for (const int threads : {1, 2, 3}) {
      const Quantized q = quantize(x, stride, c.rows, c.cols, c.group, threads);
      EXPECT_EQ(q.codes, codes);
      EXPECT_EQ(q.scales, scales);
      EXPECT_EQ(q.operand.matrix.format, Format::e4m3fn);
      EXPECT_EQ(q.operand.matrix.data, q.codes.data());
      EXPECT_EQ(q.operand.matrix.rows, c.rows);
      EXPECT_EQ(q.operand.matrix.stride, c.cols);
      EXPECT_EQ(q.operand.scale.data, q.scales.data());
      EXPECT_EQ(q.operand.scale.stride, ceil_div(c.cols, group));
      EXPECT_EQ(q.operand.scale.block, (BlockSize{1, group}));
    }
  }
}

TEST(QuantizeActivations, ZerosHaveScaleOne) {
  const Quantized q = quantize(std::vector<float>(2 * 256), 256, 2, 256, 128, 1);
  EXPECT_EQ(q.codes, std::vector<std::uint8_t>(2 * 256, 0));
  EXPECT_EQ(q.scales, std::vector<float>(4, 1.0f));
}

// What is not finite gives NaN codes there and nowhere else; scales stay finite, other groups as
// they were.
TEST(QuantizeActivations, WhatIsNotFiniteStaysWhereItIs) {
  std::mt19937 random(2);
  constexpr std::size_t kRows = 6, kCols = 300, kGroup = 128;
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kCols);
  for (float& value : x) value = normal(random);
  const Quantized before = quantize(x, kCols, kRows, kCols, kGroup, 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  x[0 * kCols + 5] = nan;
  x[2 * kCols + 130] = inf;
  x[2 * kCols + 200] = -inf;
  x[5 * kCols + 299] = -nan;
  const Quantized after = quantize(x, kCols, kRows, kCols, kGroup, 1);
  const auto is_hit = [](std::size_t row, std::size_t group) {
    return (row == 0 && group == 0) || (row == 2 && group == 1) || (row == 5 && group == 2);
  };
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t col = 0; col < kCols; ++col) {
      const std::size_t i = row * kCols + col, group = col / kGroup;
      EXPECT_EQ((after.codes[i] & 0x7F) == 0x7F, !std::isfinite(x[i])) << row << ", " << col;
      if (!is_hit(row, group)) {
        EXPECT_EQ(after.codes[i], before.codes[i]);
      }
      const float scale = after.scales[row * 3 + group];
      EXPECT_TRUE(std::isfinite(scale) && scale > 0);
      EXPECT_EQ(scale == before.scales[row * 3 + group], !is_hit(row, group));
    }
  }
}

TEST(QuantizeActivations, StaticScaleIsOneForAll) {
  std::mt19937 random(3);
  constexpr std::size_t kRows = 50, kCols = 700, kStride = 705;
  std::normal_distribution<float> normal(0.0f, 100.0f);
  std::vector<float> x(kRows * kStride);
  for (float& value : x) value = normal(random);
  x[1] = std::numeric_limits<float>::quiet_NaN();
  x[2] = std::numeric_limits<float>::infinity();  // clamped, as any number that is too large
  x[3] = -1e30f;
  const float scale = 0.37f;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::vector<std::uint8_t> codes(kRows * kCols);
    float stored = 0;
    const Operand operand = quantize_activations_static(
        {x.data(), kStride, kRows, kCols, 128, codes.data(), &stored}, scale, Context{&pool});
    EXPECT_EQ(stored, scale);
    EXPECT_EQ(operand.scale.data, &stored);
    EXPECT_EQ(operand.scale.block, (BlockSize{kRows, kCols}));
    for (std::size_t i = 0; i < kRows * kCols; ++i) {
      const float value = x[i / kCols * kStride + i % kCols];
      ASSERT_EQ(codes[i],
                encode<Format::e4m3fn>(value / scale, Rounding::nearest_even, Overflow::saturate))
          << i;
    }
  }
}

TEST(QuantizeActivations, OfNoRowsNeedNoMemory) {
  float untouched = -1;
  for (float* scales : {static_cast<float*>(nullptr), &untouched}) {
    const QuantizeActivationsArgs none = {nullptr, 64, 0, 64, 128, nullptr, scales};
    EXPECT_EQ(quantize_activations(none).matrix.rows, 0u);
    EXPECT_EQ(quantize_activations_static(none, 0.5f).matrix.rows, 0u);
  }
  EXPECT_EQ(untouched, -1);
}

TEST(RoundActivations, RoundsOnceToBf16) {
  std::mt19937 random(4);
  constexpr std::size_t kRows = 60, kCols = 600, kStride = 601;
  const std::vector<float> x = activations(random, kRows, kStride);
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::vector<std::uint16_t> rounded(kRows * kCols);
    const Operand operand =
        round_activations(x.data(), kStride, kRows, kCols, rounded.data(), Context{&pool});
    EXPECT_EQ(operand.matrix.format, Format::bf16);
    EXPECT_EQ(operand.scale.data, nullptr);
    for (std::size_t i = 0; i < kRows * kCols; ++i) {
      ASSERT_EQ(rounded[i], encode<Format::bf16>(x[i / kCols * kStride + i % kCols],
                                                 Rounding::nearest_even, Overflow::special));
    }
  }
}

TEST(QuantizeActivations, NeedsAPool) {
  const float x = 1;
  std::uint8_t code = 0;
  float scale = 0;
  EXPECT_THROW(quantize_activations({&x, 1, 1, 1, 128, &code, &scale}, Context{nullptr}),
               ContractError);
}

}  // namespace
}  // namespace octavo::ops
