#include <bit>
#include <cmath>
#include <limits>

#include "octavo/formats/convert.h"
#include "octavo/kernels/cast/cast_testing.h"

namespace octavo::kernels::testing {
namespace {

constexpr Format kSources[] = {Format::f32, Format::bf16, Format::f16};
constexpr Format kCodes[] = {Format::e4m3fn, Format::e5m2};

class BlockAmax : public CastKernelsTest {};
class BlockAmaxEquality : public CastKernelsTest {};
class BlockQuantize : public CastKernelsTest {};
class BlockQuantizeEquality : public CastKernelsTest {};
OCTAVO_FOR_EACH_ISA(BlockAmax);
OCTAVO_FOR_EACH_OTHER_ISA(BlockAmaxEquality);
OCTAVO_FOR_EACH_ISA(BlockQuantize);
OCTAVO_FOR_EACH_OTHER_ISA(BlockQuantizeEquality);

TEST_P(BlockAmaxEquality, OnAnyShape) {
  EXPECT_TRUE(check_often([this] {
    const Extent e = any_extent();
    const Format format =
        *rc::gen::elementOf(std::vector<Format>(std::begin(kSources), std::end(kSources)));
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    GuardedBytes src(e.elements() * bytes_of(format), *rc::gen::arbitrary<bool>());
    fill_floats(src, format, random, *rc::gen::arbitrary<bool>());

    std::vector<std::uint32_t> before(e.blocks());
    for (auto& amax : before) amax = random() % 2 == 0 ? 0 : 0x3E00;
    std::vector<std::uint32_t> got = before, expected = before;
    kernels_.block_amax({format, src.data(), e.stride, e.rows, e.cols, e.block_cols, got.data()});
    generic::block_amax(
        {format, src.data(), e.stride, e.rows, e.cols, e.block_cols, expected.data()});
    RC_ASSERT(got == expected);
  }));
}

TEST_P(BlockAmax, ValuesByHand) {
  const std::uint16_t src[2][3] = {{0x3F80, 0xC000, 0x0001},
                                   {0xBF81, 0x8000, 0xFFC1}};  // bf16 1 -2 tiny / -1.0078 -0 NaN
  std::uint32_t amax[2] = {0x3000, 0};
  kernels_.block_amax({Format::bf16, src, 3, 1, 3, 2, amax});
  EXPECT_EQ(amax[0], 0x4000u);
  EXPECT_EQ(amax[1], 0x0001u);
  kernels_.block_amax(
      {Format::bf16, src[1], 3, 1, 3, 2, amax});  // the second piece of the same blocks
  EXPECT_EQ(amax[0], 0x4000u);
  EXPECT_EQ(amax[1], 0x7FC1u) << "NaN is above infinity";
}

struct Quantized {
  Quantized(const Extent& extent, std::size_t stride, bool at_start)
      : codes(extent.rows == 0 ? 0 : (extent.rows - 1) * stride + extent.cols, at_start) {
    codes.fill(0xA5);
  }
  GuardedBytes codes;
};

TEST_P(BlockQuantizeEquality, OnAnyShape) {
  EXPECT_TRUE(check_often([this] {
    const Extent e = any_extent();
    const Format format =
        *rc::gen::elementOf(std::vector<Format>(std::begin(kSources), std::end(kSources)));
    const ScaleOp op = *rc::gen::element(ScaleOp::multiply, ScaleOp::divide);
    const Format code_format = *rc::gen::element(Format::e4m3fn, Format::e5m2);
    const bool wild = *rc::gen::arbitrary<bool>();
    const std::size_t codes_stride = e.cols + *rc::gen::element<std::size_t>(0, 3, 64);
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());

    GuardedBytes src(e.elements() * bytes_of(format), *rc::gen::arbitrary<bool>());
    GuardedBytes ahead(e.elements() * bytes_of(format));
    fill_floats(src, format, random, wild);
    std::vector<float> factor(e.blocks());
    std::uniform_real_distribution<float> exponent(-8.0f, 8.0f);
    for (float& f : factor) f = wild ? any_positive(random) : std::exp2(exponent(random));

    const bool at_start = *rc::gen::arbitrary<bool>();
    Quantized got(e, codes_stride, at_start), expected(e, codes_stride, at_start);
    std::vector<std::uint32_t> got_amax(e.blocks()), amax(e.blocks());
    for (std::size_t b = 0; b < e.blocks(); ++b) {
      got_amax[b] = amax[b] = random() % 2 == 0 ? 0 : 0x3E00;
    }
    BlockQuantizeArgs args = {
        format,       src.data(),    e.stride, e.rows,      e.cols,
        e.block_cols, factor.data(), op,       code_format, expected.codes.data(),
        codes_stride, nullptr,       false};
    generic::block_quantize(args);
    args.codes = got.codes.data();
    args.prefetch = *rc::gen::arbitrary<bool>() ? ahead.data() : nullptr;
    args.stream = *rc::gen::arbitrary<bool>();
    args.amax = *rc::gen::arbitrary<bool>() ? got_amax.data() : nullptr;
    kernels_.block_quantize(args);
    RC_ASSERT(got.codes == expected.codes);
    if (args.amax == nullptr) return;
    generic::block_amax({format, src.data(), e.stride, e.rows, e.cols, e.block_cols, amax.data()});
    RC_ASSERT(got_amax == amax);
  }));
}

// Factors of all sizes, the extremes of f32 and those where an implementation changes its ways.
std::vector<float> factors() {
  std::vector<float> all = {
      0x1p-149f, 0x1p-127f,       0x1p-126f,       0x1p-61f,
      0x1p-60f,  0x1.fffffep-61f, 0x1.000002p-60f, 0.1f,
      1.0f,      0x1.fffffep0f,   1.0f / 3,        448.0f,
      0x1p60f,   0x1.000002p60f,  0x1p100f,        std::numeric_limits<float>::max()};
  std::mt19937 random(20261129);
  for (int i = 0; i < 24; ++i) all.push_back(any_positive(random));
  std::uniform_real_distribution<float> exponent(-20.0f, 20.0f);
  for (int i = 0; i < 40; ++i) all.push_back(std::exp2(exponent(random)));
  return all;
}

// All 65,536 inputs with one factor, as a matrix of 512 x 128 with one row of blocks: the hot path.
// Once mixed and once in order, because an implementation may treat neighbours of a size alike.
TEST_P(BlockQuantizeEquality, OnAll16BitInputs) {
  alignas(64) static std::uint16_t src[65536];
  alignas(64) static std::uint8_t got[65536], expected[65536];
  const auto check = [&](Format format, Format to, ScaleOp op, float factor) {
    BlockQuantizeArgs args = {format, src, 128,      512, 128,     128,  &factor,
                              op,     to,  expected, 128, nullptr, false};
    generic::block_quantize(args);
    args.codes = got;
    args.stream = true;
    args.prefetch = src;
    kernels_.block_quantize(args);
    for (std::size_t i = 0; i < 65536; ++i) {
      ASSERT_EQ(got[i], expected[i])
          << format_name(format) << " -> " << format_name(to) << ", 0x" << std::hex << src[i]
          << std::hexfloat << (op == ScaleOp::multiply ? " * " : " / ") << factor;
    }
  };
  for (const std::uint32_t step : {40503u, 1u}) {
    for (std::uint32_t i = 0; i < 65536; ++i) src[i] = static_cast<std::uint16_t>(i * step);
    for (const Format to : kCodes) {
      for (const Format format : {Format::bf16, Format::f16}) {
        for (const float factor : factors()) {
          check(format, to, ScaleOp::multiply, factor);
          check(format, to, ScaleOp::divide, factor);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

template <Format F>
void append_around_boundaries(float scale, std::vector<float>& src) {
  for (std::uint32_t code = 0; code < traits(F).largest_code; ++code) {
    const double middle = (double{decode<F>(static_cast<std::uint8_t>(code))} +
                           double{decode<F>(static_cast<std::uint8_t>(code + 1))}) /
                          2;
    float x = static_cast<float>(middle * scale);
    for (int i = 0; i < 3; ++i) x = std::nextafter(x, 0.0f);
    for (int i = 0; i < 7; ++i, x = std::nextafter(x, 1e38f)) src.push_back(i % 2 == 0 ? x : -x);
  }
}

// Quotients near the boundaries between codes, where a division that is off by one last place
// shows.
TEST_P(BlockQuantizeEquality, QuotientsAtRoundingBoundaries) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponent(-30.0f, 30.0f);
  for (const Format to : kCodes) {
    for (int k = 0; k < 400; ++k) {
      const float scale = std::exp2(exponent(random));
      std::vector<float> src;
      if (to == Format::e5m2) append_around_boundaries<Format::e5m2>(scale, src);
      if (to == Format::e4m3fn) append_around_boundaries<Format::e4m3fn>(scale, src);
      std::vector<std::uint8_t> got(src.size()), expected(src.size());
      BlockQuantizeArgs args = {
          Format::f32,     src.data(), src.size(),      1,          src.size(), src.size(), &scale,
          ScaleOp::divide, to,         expected.data(), src.size(), nullptr,    false};
      generic::block_quantize(args);
      args.codes = got.data();
      kernels_.block_quantize(args);
      ASSERT_EQ(got, expected) << format_name(to) << ", scale " << std::hexfloat << scale;
    }
  }
}

// NUM-01: above 448, infinity and NaN, with the quantizer at scale 1. The rule is one: saturate,
// keep NaN.
TEST_P(BlockQuantize, Num01OverflowSaturatesAndNanStays) {
  const float inf = std::numeric_limits<float>::infinity();
  const float src[9] = {
      0, 448, 464, 465, 480, 1000, inf, -inf, std::numeric_limits<float>::quiet_NaN()};
  const std::uint8_t expected[9] = {0x00, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F};
  for (const ScaleOp op : {ScaleOp::multiply, ScaleOp::divide}) {
    const float one = 1;
    std::uint8_t codes[9];
    kernels_.block_quantize(
        {Format::f32, src, 9, 1, 9, 9, &one, op, Format::e4m3fn, codes, 9, nullptr, false});
    for (int i = 0; i < 9; ++i) EXPECT_EQ(codes[i], expected[i]) << src[i];
  }
}

TEST_P(BlockQuantize, E5m2ByHand) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // 61440 is half way to 2^16; 1.125 and 1.375 are ties; 2^-17 is half of the smallest.
  const float src[12] = {0,    -0.0f,  57344,  61439,    61440,    -inf,
                         -nan, 1.125f, 1.375f, 0x1p-16f, 0x1p-17f, 0x1.8p-17f};
  const std::uint8_t expected[12] = {0x00, 0x80, 0x7B, 0x7B, 0x7B, 0xFB,
                                     0xFE, 0x3C, 0x3E, 0x01, 0x00, 0x01};
  for (const ScaleOp op : {ScaleOp::multiply, ScaleOp::divide}) {
    const float one = 1;
    std::uint8_t codes[12];
    std::uint32_t amax = 0;
    kernels_.block_quantize(
        {Format::f32, src, 6, 2, 6, 6, &one, op, Format::e5m2, codes, 6, nullptr, false, &amax});
    for (int i = 0; i < 12; ++i) EXPECT_EQ(codes[i], expected[i]) << src[i];
    EXPECT_GT(amax, 0x7F800000u) << "NaN is above infinity";
  }
}

TEST_P(BlockQuantize, ExtremeFactorsByHand) {
  const std::uint16_t src[6] = {0x0000, 0x8000, 0x0001,
                                0x3F80, 0xBF80, 0x7F7F};  // bf16 0 -0 2^-133 1 -1 max
  std::uint8_t codes[6];
  const float largest = std::numeric_limits<float>::max();
  kernels_.block_quantize({Format::bf16, src, 6, 1, 6, 6, &largest, ScaleOp::multiply,
                           Format::e4m3fn, codes, 6, nullptr, false});
  // 2^-133 * 2^128 = 1/32, just below before rounding: f32 keeps it, and e4m3fn has 2^-5 as 0x10.
  const std::uint8_t by_largest[6] = {0x00, 0x80, 0x10, 0x7E, 0xFE, 0x7E};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(codes[i], by_largest[i]) << i;
  const float tiny = 0x1p-149f;
  kernels_.block_quantize({Format::bf16, src, 6, 1, 6, 6, &tiny, ScaleOp::divide, Format::e4m3fn,
                           codes, 6, nullptr, false});
  const std::uint8_t by_tiny[6] = {0x00, 0x80, 0x7E, 0x7E, 0xFE, 0x7E};  // 2^-133 / 2^-149 = 2^16
  for (int i = 0; i < 6; ++i) EXPECT_EQ(codes[i], by_tiny[i]) << i;
}

TEST_P(BlockQuantize, SignOfNanIsKept) {
  const std::uint16_t src[4] = {0x7FC0, 0xFFC0, 0x7F81, 0xFFFF};
  for (const ScaleOp op : {ScaleOp::multiply, ScaleOp::divide}) {
    for (const float factor : {1.0f, 0x1p-140f, 0x1p127f}) {
      std::uint8_t codes[4];
      kernels_.block_quantize(
          {Format::bf16, src, 4, 1, 4, 4, &factor, op, Format::e4m3fn, codes, 4, nullptr, false});
      EXPECT_EQ(codes[0], 0x7F);
      EXPECT_EQ(codes[1], 0xFF);
      EXPECT_EQ(codes[2], 0x7F);
      EXPECT_EQ(codes[3], 0xFF);
    }
  }
}

}  // namespace
}  // namespace octavo::kernels::testing
