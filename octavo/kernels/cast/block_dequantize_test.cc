#include <cmath>
#include <limits>

#include "octavo/kernels/cast/cast_testing.h"

namespace octavo::kernels::testing {
namespace {

constexpr Format kCodes[] = {Format::e4m3fn, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz,
                             Format::e2m1fn};
constexpr Format kDestinations[] = {Format::f32, Format::bf16, Format::f16};

class BlockDequantize : public CastKernelsTest {};
class BlockDequantizeEquality : public CastKernelsTest {};
OCTAVO_FOR_EACH_ISA(BlockDequantize);
OCTAVO_FOR_EACH_OTHER_ISA(BlockDequantizeEquality);

std::string text(const DequantizeCounts& c) {
  return "overflow " + std::to_string(c.overflow) + " underflow " + std::to_string(c.underflow) +
         " nan " + std::to_string(c.nan);
}

bool equal(const DequantizeCounts& a, const DequantizeCounts& b) {
  return a.overflow == b.overflow && a.underflow == b.underflow && a.nan == b.nan;
}

TEST_P(BlockDequantizeEquality, OnAnyShape) {
  EXPECT_TRUE(check_often([this] {
    const Format from =
        *rc::gen::elementOf(std::vector<Format>(std::begin(kCodes), std::end(kCodes)));
    const Format to = *rc::gen::elementOf(
        std::vector<Format>(std::begin(kDestinations), std::end(kDestinations)));
    const std::size_t per_byte = from == Format::e2m1fn ? 2 : 1;
    Extent e = any_extent(per_byte);
    if (*rc::gen::inRange(0, 4) == 0) e.rows += 128;  // enough for a table per block
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    GuardedBytes codes(e.elements() / per_byte, *rc::gen::arbitrary<bool>());
    fill_bytes(codes, random);
    const bool wild = *rc::gen::arbitrary<bool>();
    std::vector<float> scale(e.blocks());
    std::uniform_real_distribution<float> exponent(-12.0f, 2.0f);
    for (float& s : scale)
      s = wild ? any_float(random)
               : std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0f : -1.0f);

    const std::size_t dst_stride = e.cols + *rc::gen::element<std::size_t>(0, 3, 64);
    const std::size_t dst_bytes = ((e.rows - 1) * dst_stride + e.cols) * bytes_of(to);
    const bool at_start = *rc::gen::arbitrary<bool>();
    GuardedBytes got(dst_bytes, at_start), expected(dst_bytes, at_start);
    got.fill(0xA5);
    expected.fill(0xA5);
    DequantizeCounts got_counts = {1, 2, 3}, expected_counts = {1, 2, 3};
    BlockDequantizeArgs args = {from,
                                codes.data(),
                                e.stride / per_byte,
                                e.rows,
                                e.cols,
                                e.block_cols,
                                scale.data(),
                                to,
                                expected.data(),
                                dst_stride,
                                *rc::gen::arbitrary<bool>(),
                                &expected_counts,
                                false};
    generic::block_dequantize(args);
    args.dst = got.data();
    args.counts = &got_counts;
    args.stream = *rc::gen::arbitrary<bool>();
    kernels_.block_dequantize(args);
    RC_ASSERT(got == expected);
    RC_ASSERT(text(got_counts) == text(expected_counts));
  }));
}

// Scales of all kinds: each boundary of over- and underflow of each pair of formats is crossed by
// the powers of two.
std::vector<float> scales() {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> all = {0.0f,
                            -0.0f,
                            inf,
                            -inf,
                            std::numeric_limits<float>::quiet_NaN(),
                            -std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::max()};
  for (int e = -149; e <= 127; ++e) all.push_back(std::ldexp(e % 2 == 0 ? 1.0f : -1.0f, e));
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) all.push_back(any_float(random));
  std::uniform_real_distribution<float> exponent(-20.0f, 14.0f);
  for (int i = 0; i < 200; ++i) all.push_back(std::exp2(exponent(random)));
  return all;
}

// All 256 codes (or pairs of codes), by few rows and by many: the two may take different paths.
TEST_P(BlockDequantizeEquality, OnAllCodes) {
  constexpr std::size_t kManyRows = 4;
  alignas(64) static std::uint8_t codes[kManyRows][256];
  alignas(64) static std::uint8_t got[kManyRows * 512 * 4], expected[kManyRows * 512 * 4];
  for (std::size_t i = 0; i < kManyRows * 256; ++i)
    codes[i / 256][i % 256] = static_cast<std::uint8_t>(i * 89);
  const std::vector<float> all_scales = scales();
  for (const Format from : kCodes) {
    const std::size_t cols = from == Format::e2m1fn ? 512 : 256;
    for (const Format to : kDestinations) {
      for (const float scale : all_scales) {
        for (const bool saturate : {false, true}) {
          for (const std::size_t rows : {std::size_t{1}, kManyRows}) {
            DequantizeCounts got_counts = {}, expected_counts = {};
            BlockDequantizeArgs args = {from,     codes[0],         256,  rows,     cols,
                                        cols,     &scale,           to,   expected, cols,
                                        saturate, &expected_counts, false};
            generic::block_dequantize(args);
            args.dst = got;
            args.counts = &got_counts;
            args.stream = true;
            kernels_.block_dequantize(args);
            ASSERT_EQ(std::memcmp(got, expected, rows * cols * bytes_of(to)), 0)
                << format_name(from) << " * " << std::hexfloat << scale << " -> " << format_name(to)
                << ", rows " << rows;
            ASSERT_TRUE(equal(got_counts, expected_counts))
                << format_name(from) << " * " << std::hexfloat << scale << " -> " << format_name(to)
                << ", rows " << rows << ": " << text(got_counts) << ", expected "
                << text(expected_counts);
          }
        }
      }
    }
  }
}

float as_float(std::uint16_t bf16) {
  const std::uint32_t bits = std::uint32_t{bf16} << 16;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// NUM-02: the top binade holds numbers, and only 0x7F and 0xFF are NaN.
TEST_P(BlockDequantize, Num02TopBinadeOfE4m3fnIsFinite) {
  std::uint8_t codes[256];
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<std::uint8_t>(i);
  const float one = 1;
  for (const std::size_t rows : {1u, 2u}) {  // two rows of the same codes, by stride zero
    DequantizeCounts counts = {};
    std::uint16_t dst[2][256];
    kernels_.block_dequantize({Format::e4m3fn, codes, 0, rows, 256, 256, &one, Format::bf16, dst,
                               256, false, &counts, false});
    const float top[7] = {256, 288, 320, 352, 384, 416, 448};
    for (int i = 0; i < 7; ++i) {
      EXPECT_EQ(as_float(dst[0][0x78 + i]), top[i]);
      EXPECT_EQ(as_float(dst[0][0xF8 + i]), -top[i]);
    }
    EXPECT_EQ(as_float(dst[0][0x01]), 0x1p-9f);
    for (int i = 0; i < 256; ++i)
      EXPECT_EQ(std::isnan(as_float(dst[0][i])), i == 0x7F || i == 0xFF) << i;
    EXPECT_EQ(counts.nan, 2 * rows);
    EXPECT_EQ(counts.overflow + counts.underflow, 0u);
  }
}

// NUM-03: in fnuz formats 0x80 is NaN, not minus zero, and values are half of what e4m3fn would
// read.
TEST_P(BlockDequantize, Num03FnuzIsNotFn) {
  const std::uint8_t codes[4] = {0x80, 0x00, 0x08, 0x7F};
  const float one = 1;
  DequantizeCounts counts = {};
  float dst[4];
  kernels_.block_dequantize(
      {Format::e4m3fnuz, codes, 4, 1, 4, 4, &one, Format::f32, dst, 4, false, &counts, false});
  EXPECT_TRUE(std::isnan(dst[0]));
  EXPECT_EQ(dst[1], 0.0f);
  EXPECT_EQ(dst[2], 0x1p-7f);
  EXPECT_EQ(dst[3], 240.0f);
  EXPECT_EQ(counts.nan, 1u);
}

TEST_P(BlockDequantize, OverflowIsCountedAndClampedOnRequest) {
  const std::uint8_t codes[4] = {0x7E, 0xFE, 0x38, 0x01};  // 448 -448 1 2^-9
  const float scale = 0x1p10f;
  for (const bool saturate : {false, true}) {
    DequantizeCounts counts = {};
    std::uint16_t dst[4];
    kernels_.block_dequantize(
        {Format::e4m3fn, codes, 4, 1, 4, 4, &scale, Format::f16, dst, 4, saturate, &counts, false});
    EXPECT_EQ(dst[0], saturate ? 0x7BFF : 0x7C00);
    EXPECT_EQ(dst[1], saturate ? 0xFBFF : 0xFC00);
    EXPECT_EQ(dst[2], 0x6400);
    EXPECT_EQ(dst[3], 0x4000);
    EXPECT_EQ(counts.overflow, 2u);
    EXPECT_EQ(counts.underflow, 0u);
  }
}

TEST_P(BlockDequantize, PackedNibblesLowFirst) {
  const std::uint8_t codes[2] = {0x21, 0xF9};  // 0.5 1 / -0.5 -6
  const float scale[2] = {2, 0x1p-3f};
  DequantizeCounts counts = {};
  float dst[4];
  kernels_.block_dequantize(
      {Format::e2m1fn, codes, 2, 1, 4, 2, scale, Format::f32, dst, 4, false, &counts, false});
  EXPECT_EQ(dst[0], 1.0f);
  EXPECT_EQ(dst[1], 2.0f);
  EXPECT_EQ(dst[2], -0.0625f);
  EXPECT_EQ(dst[3], -0.75f);
}

}  // namespace
}  // namespace octavo::kernels::testing
