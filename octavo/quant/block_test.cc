#include "octavo/quant/block.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <set>

#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/formats/convert.h"
#include "octavo/quant/quant_testing.h"
#include "octavo/tensor/shape.h"

namespace octavo {
namespace {

using namespace testing;  // NOLINT: the oracle of quant_testing.h

constexpr Isa kIsas[] = {Isa::generic, Isa::avx2, Isa::avx512bf16};

// Those that can run here; the rest is said once.
std::vector<Isa> isas_here() {
  std::vector<Isa> here;
  for (const Isa isa : kIsas) {
    if (kernels::is_built(isa) && supports(cpu_features(), isa)) {
      here.push_back(isa);
    } else {
      ::testing::Test::RecordProperty(std::string("not_run_") + isa_name(isa),
                                      "not on this machine or not built");
    }
  }
  return here;
}

std::size_t grid_size(const Source& source, const BlockSize& block) {
  return ceil_div(source.rows, block.rows) * ceil_div(source.cols, block.cols);
}

// With codes inside rows that are longer, whose rest must stay as it is.
Quantized quantize(const Source& source, const BlockRecipe& recipe, Isa isa,
                   std::size_t padding = 0, bool stream = false) {
  constexpr std::uint8_t kUntouched = 0xA5;
  const std::size_t stride = source.cols + padding;
  std::vector<std::uint8_t> codes(source.rows * stride, kUntouched);
  Quantized result;
  result.scales.assign(grid_size(source, recipe.block), std::numeric_limits<float>::quiet_NaN());
  const auto bad = quantize_blocks(kernels::cast_kernels(isa), source.view(), recipe,
                                   {codes.data(), stride}, result.scales, stream);
  EXPECT_FALSE(bad);
  for (std::size_t r = 0; r < source.rows; ++r) {
    for (std::size_t c = 0; c < stride; ++c) {
      if (c < source.cols) {
        result.codes.push_back(codes[r * stride + c]);
      } else {
        EXPECT_EQ(codes[r * stride + c], kUntouched) << "written beyond row " << r;
      }
    }
  }
  return result;
}

bool same(const Quantized& a, const Quantized& b) {
  return a.codes == b.codes && a.scales.size() == b.scales.size() &&
         std::memcmp(a.scales.data(), b.scales.data(), a.scales.size() * sizeof(float)) == 0;
}

// The first difference, in words; empty where there is none.
std::string difference(const Quantized& got, const Quantized& expected) {
  for (std::size_t i = 0; i < expected.scales.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(got.scales.at(i)) !=
        std::bit_cast<std::uint32_t>(expected.scales[i])) {
      return "scale " + std::to_string(i) + ": " + std::to_string(got.scales[i]) + ", expected " +
             std::to_string(expected.scales[i]);
    }
  }
  for (std::size_t i = 0; i < expected.codes.size(); ++i) {
    if (got.codes.at(i) != expected.codes[i]) {
      return "code " + std::to_string(i) + ": " + std::to_string(got.codes[i]) + ", expected " +
             std::to_string(expected.codes[i]);
    }
  }
  return got.scales.size() == expected.scales.size() && got.codes.size() == expected.codes.size()
             ? ""
             : "sizes differ";
}

TEST(QuantizeBlocks, EqualsTheFormulasOnEveryKindOfInput) {
  std::mt19937 random(2);
  for (const ScaleRule rule : kRules) {
    for (const ScaleFormat scale_fmt : kScaleFormats) {
      for (const Format format : kSourceFormats) {
        for (const Kind kind : kKinds) {
          for (const BlockSize block : {BlockSize{128, 128}, BlockSize{16, 8}, BlockSize{1, 32}}) {
            Source source(format, 150, 141, 3);
            fill(source, kind, random);
            const BlockRecipe recipe{block, rule, scale_fmt};
            const Quantized expected = expected_blocks(source, recipe);
            for (const Isa isa : isas_here()) {
              ASSERT_EQ(difference(quantize(source, recipe, isa, 5), expected), "")
                  << describe(recipe, format) << " kind " << static_cast<int>(kind) << " "
                  << isa_name(isa);
            }
          }
        }
      }
    }
  }
}

BlockRecipe any_recipe(const BlockSize& block) {
  return {block,
          *rc::gen::element(ScaleRule::transformers, ScaleRule::deepseek, ScaleRule::deepgemm),
          *rc::gen::element(ScaleFormat::float32, ScaleFormat::ue8m0)};
}

Source any_source() {
  const auto rows = *rc::gen::inRange<std::size_t>(1, 40);
  const auto cols = *rc::gen::weightedOneOf<std::size_t>(
      {{3, rc::gen::inRange<std::size_t>(1, 80)}, {1, rc::gen::inRange<std::size_t>(500, 1200)}});
  Source source(*rc::gen::element(Format::f32, Format::bf16, Format::f16), rows, cols,
                *rc::gen::element<std::size_t>(0, 1, 7));
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  fill(source, kKinds[*rc::gen::inRange<std::size_t>(0, std::size(kKinds))], random);
  return source;
}

BlockSize any_block(const Source& source) {
  return *rc::gen::element(BlockSize{1, 1}, BlockSize{1, 32}, BlockSize{16, 16},
                           BlockSize{128, 128}, BlockSize{3, 5}, BlockSize{576, 7},
                           BlockSize{2, 700}, BlockSize{source.rows, source.cols},
                           BlockSize{1, source.cols}, BlockSize{source.rows, 1});
}

TEST(QuantizeBlocks, EqualsTheFormulasOnAnyShapeAndBlock) {
  const std::vector<Isa> isas = isas_here();
  EXPECT_TRUE(rc::check([&] {
    const Source source = any_source();
    const BlockRecipe recipe = any_recipe(any_block(source));
    const Quantized expected = expected_blocks(source, recipe);
    const auto padding = *rc::gen::element<std::size_t>(0, 1, 64);
    for (const Isa isa : isas)
      RC_ASSERT(same(quantize(source, recipe, isa, padding, isa != Isa::generic), expected));
  }));
}

TEST(QuantizeBlocks, DeepSeekShape) {
  std::mt19937 random(3);
  Source source(Format::bf16, 576, 300);
  fill(source, Kind::gaussian, random);
  const BlockRecipe recipe;
  const Quantized got = quantize(source, recipe, kernels::selected_isa().value());
  EXPECT_EQ(got.scales.size(), 5u * 3u);
  EXPECT_EQ(difference(got, expected_blocks(source, recipe)), "");
}

TEST(QuantizeBlocks, NoNaNCodeFromFiniteInput) {
  EXPECT_TRUE(rc::check([] {
    const Format format = *rc::gen::element(Format::f32, Format::bf16, Format::f16);
    Source source(format, 1, 64);
    const std::uint32_t infinity = format == Format::f32    ? 0x7F80'0000u
                                   : format == Format::bf16 ? 0x7F80u
                                                            : 0x7C00u;
    const std::uint32_t sign = format == Format::f32 ? 0x8000'0000u : 0x8000u;
    for (std::size_t c = 0; c < 64; ++c) {
      const std::uint32_t magnitude = *rc::gen::weightedOneOf<std::uint32_t>(
          {{3, rc::gen::inRange<std::uint32_t>(0, infinity)},
           {1, rc::gen::element<std::uint32_t>(0, 1, 2, infinity - 1, infinity - 2)}});
      source.set(0, c, magnitude | (*rc::gen::arbitrary<bool>() ? sign : 0u));
    }
    const BlockRecipe recipe = any_recipe({1, *rc::gen::element<std::uint64_t>(1, 3, 64)});
    const Quantized got = quantize(source, recipe, kernels::selected_isa().value());
    for (std::size_t c = 0; c < 64; ++c) {
      RC_ASSERT((got.codes[c] & 0x7F) != 0x7F);
      // Zeros stay zeros, with their sign, whatever else is in the block.
      if (source.value(0, c) == 0)
        RC_ASSERT(got.codes[c] == (std::signbit(source.value(0, c)) ? 0x80 : 0));
    }
  }));
}

TEST(QuantizeBlocks, TheLargestMagnitudeOfABlockUsesTheWholeRange) {
  EXPECT_TRUE(rc::check([] {
    Source source(Format::bf16, 8, 8);
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    fill(source, Kind::gaussian, random);
    const ScaleRule rule =
        *rc::gen::element(ScaleRule::transformers, ScaleRule::deepseek, ScaleRule::deepgemm);
    const auto largest = [&](ScaleFormat scale_fmt) {
      int code = 0;
      for (const std::uint8_t c : quantize(source, {{8, 8}, rule, scale_fmt}, Isa::generic).codes)
        code = std::max(code, c & 0x7F);
      return code;
    };
    RC_ASSERT(largest(ScaleFormat::float32) == 0x7E);
    // Rounding the scale up costs at most a factor of two: amax is above 224 scales.
    RC_ASSERT(largest(ScaleFormat::ue8m0) >= 0x76 && largest(ScaleFormat::ue8m0) <= 0x7E);
  }));
}

TEST(QuantizeBlocks, NegatedInputGivesNegatedCodes) {
  EXPECT_TRUE(rc::check([] {
    const Source source = any_source();
    Source negated = source;
    for (std::size_t r = 0; r < source.rows; ++r) {
      for (std::size_t c = 0; c < source.cols; ++c) {
        negated.set(r, c,
                    source.get(r, c) ^ (source.format == Format::f32 ? 0x8000'0000u : 0x8000u));
      }
    }
    const BlockRecipe recipe = any_recipe(any_block(source));
    Quantized expected = quantize(source, recipe, Isa::generic);
    for (std::uint8_t& code : expected.codes) code ^= 0x80;
    RC_ASSERT(same(quantize(negated, recipe, kernels::selected_isa().value()), expected));
  }));
}

TEST(QuantizeBlocks, APowerOfTwoGoesIntoTheScale) {
  EXPECT_TRUE(rc::check([] {
    Source source(Format::f32, 6, 10);
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    fill(source, Kind::gaussian, random);
    const int power = *rc::gen::inRange(-40, 60);
    Source scaled = source;
    for (std::size_t r = 0; r < source.rows; ++r) {
      for (std::size_t c = 0; c < source.cols; ++c) {
        scaled.set(r, c,
                   std::bit_cast<std::uint32_t>(
                       static_cast<float>(std::ldexp(source.value(r, c), power))));
      }
    }
    // Not `deepgemm`: its floor is a magnitude.
    const BlockRecipe recipe{{4, 4},
                             *rc::gen::element(ScaleRule::transformers, ScaleRule::deepseek),
                             *rc::gen::element(ScaleFormat::float32, ScaleFormat::ue8m0)};
    Quantized expected = quantize(source, recipe, Isa::generic);
    for (float& scale : expected.scales) scale = std::ldexp(scale, power);
    RC_ASSERT(same(quantize(scaled, recipe, kernels::selected_isa().value()), expected));
  }));
}

TEST(QuantizeBlocks, ABlockDependsOnItsOwnElementsAlone) {
  EXPECT_TRUE(rc::check([] {
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    Source source(Format::bf16, 12, 600);
    fill(source, Kind::heavy_tailed, random);
    const BlockRecipe recipe = any_recipe({4, 32});
    const Quantized before = quantize(source, recipe, kernels::selected_isa().value());
    const auto row = *rc::gen::inRange<std::size_t>(0, 12);
    const auto col = *rc::gen::inRange<std::size_t>(0, 600);
    source.set(row, col, 0x7F7F);
    const Quantized after = quantize(source, recipe, kernels::selected_isa().value());
    for (std::size_t r = 0; r < 12; ++r) {
      for (std::size_t c = 0; c < 600; ++c) {
        if (r / 4 == row / 4 && c / 32 == col / 32) continue;
        RC_ASSERT(after.codes[r * 600 + c] == before.codes[r * 600 + c]);
      }
    }
    for (std::size_t i = 0; i < before.scales.size(); ++i) {
      RC_ASSERT((after.scales[i] == before.scales[i]) == (i != row / 4 * 19 + col / 32));
    }
  }));
}

TEST(QuantizeBlocks, CodesAreComputedForTheStoredScale) {
  std::mt19937 random(4);
  Source source(Format::bf16, 64, 64);
  fill(source, Kind::gaussian, random);
  for (const ScaleRule rule : kRules) {
    const Quantized got =
        quantize(source, {{16, 16}, rule, ScaleFormat::ue8m0}, kernels::selected_isa().value());
    for (std::size_t r = 0; r < 64; ++r) {
      for (std::size_t c = 0; c < 64; ++c) {
        const double scale = got.scales[r / 16 * 4 + c / 16];
        ASSERT_TRUE(ue8m0_exact(static_cast<float>(scale)));
        ASSERT_EQ(got.codes[r * 64 + c], e4m3_code(rounded(source.value(r, c) / scale)));
      }
    }
  }
}

TEST(QuantizeBlocks, EmptyMatrices) {
  for (const auto& [rows, cols] : {std::pair<std::size_t, std::size_t>{0, 5}, {5, 0}, {0, 0}}) {
    const Source source(Format::bf16, rows, cols);
    EXPECT_TRUE(quantize(source, {}, kernels::selected_isa().value()).codes.empty());
  }
}

TEST(QuantizeBlocks, AWrongNumberOfScalesIsABrokenContract) {
  Source source(Format::bf16, 130, 130);
  std::vector<std::uint8_t> codes(130 * 130);
  std::vector<float> scales(3);
  EXPECT_THROW((void)quantize_blocks(kernels::cast_kernels(), source.view(), {},
                                     {codes.data(), 130}, scales, false),
               ContractError);
}

// NaN and infinities.

TEST(NonFiniteElements, TheFirstIsFound) {
  for (const Format format : kSourceFormats) {
    const std::uint32_t infinity = format == Format::f32    ? 0x7F80'0000u
                                   : format == Format::bf16 ? 0x7F80u
                                                            : 0x7C00u;
    const std::uint32_t sign = format == Format::f32 ? 0x8000'0000u : 0x8000u;
    std::mt19937 random(5);
    Source source(format, 9, 700, 2);  // its padding is NaN
    fill(source, Kind::any_finite, random);
    EXPECT_FALSE(find_non_finite(source.view())) << format_name(format);
    source.set(7, 1, infinity | 1);
    source.set(6, 650, infinity | sign);
    source.set(6, 699, infinity);
    const auto found = find_non_finite(source.view());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->row, 6u);
    EXPECT_EQ(found->col, 650u);
    EXPECT_EQ(found->value, -HUGE_VALF);

    // In a row of blocks that is not the first, and beyond the columns that are taken at once.
    for (const Isa isa : isas_here()) {
      std::vector<std::uint8_t> codes(9 * 700);
      const BlockRecipe recipe{{4, 128}};
      std::vector<float> scales(3 * 6);
      const auto bad = quantize_blocks(kernels::cast_kernels(isa), source.view(), recipe,
                                       {codes.data(), 700}, scales, false);
      ASSERT_TRUE(bad) << isa_name(isa);
      EXPECT_EQ(bad->row, 6u);
      EXPECT_EQ(bad->col, 650u);
    }
    source.set(0, 3, infinity | 1 | sign);
    const auto nan = find_non_finite(source.view());
    ASSERT_TRUE(nan);
    EXPECT_EQ(nan->row, 0u);
    EXPECT_EQ(nan->col, 3u);
    EXPECT_TRUE(std::isnan(nan->value));
  }
}

TEST(NonFiniteElements, EachBitPatternOfTheNarrowFormats) {
  for (const Format format : {Format::bf16, Format::f16}) {
    Source source(format, 1, 1);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      source.set(0, 0, bits);
      const double value = source_value(format, bits);
      ASSERT_EQ(find_non_finite(source.view()).has_value(), !std::isfinite(value)) << bits;
      const std::uint32_t positive = bits & 0x7FFF;
      ASSERT_EQ(is_finite_magnitude(format, positive), std::isfinite(value)) << bits;
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(magnitude(format, positive), std::abs(value)) << bits;
    }
  }
}

// Dequantization.

constexpr Format kCodeFormats[] = {Format::e4m3fn, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz,
                                   Format::e2m1fn};

struct CodeSource {
  Format format;
  std::uint64_t rows, cols, stride;  // stride in bytes
  std::vector<std::uint8_t> bytes;

  CodeSource(Format f, std::uint64_t r, std::uint64_t c, std::mt19937& random)
      : format(f),
        rows(r),
        cols(c),
        stride((f == Format::e2m1fn ? c / 2 : c) + 3),
        bytes(r * stride) {
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  }
  std::uint32_t code(std::uint64_t r, std::uint64_t c) const {
    if (format != Format::e2m1fn) return bytes[r * stride + c];
    return bytes[r * stride + c / 2] >> (c % 2 * 4) & 0xF;  // low nibble first
  }
  float value(std::uint64_t r, std::uint64_t c) const {
    const std::uint32_t bits = code(r, c);
    const auto byte = static_cast<std::uint8_t>(bits);
    switch (format) {
      case Format::e4m3fn:
        return decode<Format::e4m3fn>(byte);
      case Format::e5m2:
        return decode<Format::e5m2>(byte);
      case Format::e4m3fnuz:
        return decode<Format::e4m3fnuz>(byte);
      case Format::e5m2fnuz:
        return decode<Format::e5m2fnuz>(byte);
      default: {
        constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
        return bits >= 8 ? -kValues[bits - 8] : kValues[bits];
      }
    }
  }
};

// f32 product, then one rounding, as bits of the destination; counted.
std::uint32_t expected_bits(float code, float scale, Format to, bool saturate,
                            kernels::DequantizeCounts& counts) {
  const float product = static_cast<float>(static_cast<double>(code) * static_cast<double>(scale));
  const Overflow overflow = saturate && std::isfinite(code) && std::isfinite(scale)
                                ? Overflow::saturate
                                : Overflow::special;
  std::uint32_t bits = 0;
  float special = 0;
  switch (to) {
    case Format::f32:
      bits = encode<Format::f32>(product, Rounding::nearest_even, overflow);
      special = product;
      break;
    case Format::bf16:
      bits = encode<Format::bf16>(product, Rounding::nearest_even, overflow);
      special = decode<Format::bf16>(
          encode<Format::bf16>(product, Rounding::nearest_even, Overflow::special));
      break;
    default:
      bits = encode<Format::f16>(product, Rounding::nearest_even, overflow);
      special = decode<Format::f16>(
          encode<Format::f16>(product, Rounding::nearest_even, Overflow::special));
      break;
  }
  if (std::isnan(product))
    bits = traits(to).nan_code |
           (std::signbit(code) != std::signbit(scale) ? traits(to).sign_bit() : 0);
  if (std::isnan(code)) ++counts.nan;
  if (std::isfinite(code) && std::isfinite(scale) && std::isinf(special)) ++counts.overflow;
  if (code != 0 && !std::isnan(code) && special == 0) ++counts.underflow;
  return bits;
}

struct Window {
  std::uint64_t row0, col0, rows, cols;
};

struct Dequantized {
  std::vector<std::uint32_t> bits;  // (rows, cols) of the window
  kernels::DequantizeCounts counts{};
};

Dequantized dequantize(const CodeSource& source, const BlockSize& block,
                       const std::vector<float>& scales, const Window& w, Format to, bool saturate,
                       Isa isa) {
  const std::uint64_t grid_cols = ceil_div(source.cols, block.cols);
  std::vector<float> touched;
  for (std::uint64_t g = w.row0 / block.rows; g <= (w.row0 + w.rows - 1) / block.rows; ++g) {
    for (std::uint64_t h = w.col0 / block.cols; h <= (w.col0 + w.cols - 1) / block.cols; ++h) {
      touched.push_back(scales[g * grid_cols + h]);
    }
  }
  const std::uint64_t first = source.format == Format::e2m1fn ? w.col0 / 2 : w.col0;
  const std::size_t width = to == Format::f32 ? 4 : 2;
  const std::size_t stride = w.cols + 5;
  std::vector<std::byte> bytes(w.rows * stride * width, std::byte{0xA5});
  Dequantized result;
  dequantize_blocks(kernels::cast_kernels(isa),
                    {source.format, source.bytes.data() + w.row0 * source.stride + first,
                     source.stride, w.row0, w.col0, w.rows, w.cols},
                    block, touched, {to, bytes.data(), stride, saturate, false, &result.counts});
  for (std::uint64_t r = 0; r < w.rows; ++r) {
    for (std::uint64_t c = 0; c < stride; ++c) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, bytes.data() + (r * stride + c) * width, width);
      if (c < w.cols) {
        result.bits.push_back(bits);
      } else {
        EXPECT_EQ(bits, width == 4 ? 0xA5A5'A5A5u : 0xA5A5u) << "written beyond row " << r;
      }
    }
  }
  return result;
}

TEST(DequantizeBlocks, AWindowEqualsThatPartOfTheWhole) {
  const std::vector<Isa> isas = isas_here();
  EXPECT_TRUE(rc::check([&] {
    const Format format = kCodeFormats[*rc::gen::inRange<std::size_t>(0, std::size(kCodeFormats))];
    const Format to = *rc::gen::element(Format::f32, Format::bf16, Format::f16);
    const bool saturate = *rc::gen::arbitrary<bool>();
    const std::uint64_t step = format == Format::e2m1fn ? 2 : 1;
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    CodeSource source(format, *rc::gen::inRange<std::uint64_t>(1, 30),
                      step * *rc::gen::inRange<std::uint64_t>(1, 150), random);
    const BlockSize block{*rc::gen::element<std::uint64_t>(1, 3, 8, 128),
                          step * *rc::gen::element<std::uint64_t>(1, 5, 16, 32, 128)};
    std::vector<float> scales(ceil_div(source.rows, block.rows) *
                              ceil_div(source.cols, block.cols));
    const bool wild = *rc::gen::arbitrary<bool>();
    for (float& scale : scales) {
      scale = wild ? std::bit_cast<float>(static_cast<std::uint32_t>(random()))
                   : std::ldexp(1.0f + static_cast<float>(random() % 64) / 64,
                                static_cast<int>(random() % 40) - 20);
    }

    Window w{};
    w.row0 = *rc::gen::inRange<std::uint64_t>(0, source.rows);
    w.rows = *rc::gen::inRange<std::uint64_t>(1, source.rows - w.row0 + 1);
    w.col0 = step * *rc::gen::inRange<std::uint64_t>(0, source.cols / step);
    w.cols = step * *rc::gen::inRange<std::uint64_t>(1, (source.cols - w.col0) / step + 1);

    Dequantized expected;
    for (std::uint64_t r = w.row0; r < w.row0 + w.rows; ++r) {
      for (std::uint64_t c = w.col0; c < w.col0 + w.cols; ++c) {
        const float scale =
            scales[r / block.rows * ceil_div(source.cols, block.cols) + c / block.cols];
        expected.bits.push_back(
            expected_bits(source.value(r, c), scale, to, saturate, expected.counts));
      }
    }
    for (const Isa isa : isas) {
      const Dequantized got = dequantize(source, block, scales, w, to, saturate, isa);
      RC_ASSERT(got.bits == expected.bits);
      RC_ASSERT(got.counts.nan == expected.counts.nan);
      RC_ASSERT(got.counts.overflow == expected.counts.overflow);
      RC_ASSERT(got.counts.underflow == expected.counts.underflow);
    }
  }));
}

TEST(DequantizeBlocks, EveryCodeFormatAndDestinationByHand) {
  struct Known {
    Format format;
    std::uint8_t byte;
    float values[2];  // of the byte's codes
  };
  const Known known[] = {{Format::e4m3fn, 0x7E, {448}},
                         {Format::e5m2, 0x7B, {57344}},
                         {Format::e4m3fnuz, 0xFF, {-240}},
                         {Format::e5m2fnuz, 0x01, {0x1p-17f}},
                         {Format::e2m1fn, 0xF2, {1, -6}}};
  for (const Known& k : known) {
    const std::size_t cols = k.format == Format::e2m1fn ? 2 : 1;
    for (const Format to : {Format::f32, Format::bf16, Format::f16}) {
      float wide[2] = {};
      std::uint16_t narrow[2] = {};
      void* data = to == Format::f32 ? static_cast<void*>(wide) : narrow;
      const float scale = 0.5f;
      dequantize_blocks(kernels::cast_kernels(), {k.format, &k.byte, 1, 0, 0, 1, cols}, {128, 128},
                        {&scale, 1}, {to, data, 2, false, false, nullptr});
      for (std::size_t c = 0; c < cols; ++c) {
        const double got = to == Format::f32 ? wide[c] : source_value(to, narrow[c]);
        EXPECT_EQ(got, k.values[c] * 0.5) << format_name(k.format) << " to " << format_name(to);
      }
    }
  }
}

TEST(DequantizeBlocks, CountsAddUp) {
  // 0x7E is 448, 0x01 is 2^-9, 0x7F and 0xFF are NaN.
  const std::uint8_t codes[] = {0x7E, 0xFE, 0x01, 0x00, 0x7F, 0xFF, 0x81, 0x80};
  std::uint16_t out[8] = {};
  kernels::DequantizeCounts counts{10, 20, 30};
  const auto run = [&](float scale, bool saturate) {
    dequantize_blocks(kernels::cast_kernels(), {Format::e4m3fn, codes, 8, 0, 0, 1, 8}, {128, 128},
                      {&scale, 1}, {Format::f16, out, 8, saturate, false, &counts});
  };
  run(1024.0f, false);  // 458752 is above 65504
  EXPECT_EQ(counts.overflow, 12u);
  EXPECT_EQ(counts.underflow, 20u);
  EXPECT_EQ(counts.nan, 32u);
  EXPECT_EQ(out[0], 0x7C00);
  EXPECT_EQ(out[1], 0xFC00);
  run(1024.0f, true);
  EXPECT_EQ(counts.overflow, 14u) << "clamped is counted as well";
  EXPECT_EQ(out[0], 0x7BFF);
  EXPECT_EQ(out[1], 0xFBFF);
  run(0x1p-20f, false);  // 2^-29 is below 2^-25
  EXPECT_EQ(counts.underflow, 22u);
  EXPECT_EQ(out[6], 0x8000);
}

TEST(DequantizeBlocks, ContractsAndEmptyWindows) {
  std::uint8_t code = 0;
  float out = 7;
  const std::vector<float> scales(2, 1.0f);
  const DequantizeTarget to{Format::f32, &out, 1, false, false, nullptr};
  EXPECT_THROW(dequantize_blocks(kernels::cast_kernels(), {Format::e4m3fn, &code, 1, 0, 0, 1, 1},
                                 {128, 128}, scales, to),
               ContractError);
  dequantize_blocks(kernels::cast_kernels(), {Format::e4m3fn, &code, 1, 0, 0, 0, 5}, {128, 128}, {},
                    to);
  dequantize_blocks(kernels::cast_kernels(), {Format::e4m3fn, &code, 1, 0, 0, 5, 0}, {128, 128}, {},
                    to);
  EXPECT_EQ(out, 7);
}

}  // namespace
}  // namespace octavo
