// Quantization to packed operands against the two steps one after the other, bit for bit.
#include "octavo/quant/quantize_pack.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "octavo/base/aligned_bytes.h"
#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/quant/quant_testing.h"

namespace octavo {
namespace {

using kernels::Arithmetic;
using testing::Source;

class QuantizePack : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const std::string name = isa_name(GetParam());
    if (!kernels::is_built(GetParam())) GTEST_SKIP() << name << " is not in this build";
    if (!supports(cpu_features(), GetParam())) GTEST_SKIP() << name << " is not on this machine";
  }
};
INSTANTIATE_TEST_SUITE_P(Isas, QuantizePack,
                         ::testing::Values(Isa::generic, Isa::avx2, Isa::avx512bf16),
                         [](const auto& level) { return std::string(isa_name(level.param)); });

AlignedBytes filled(std::size_t size) {
  AlignedBytes bytes(size);
  std::memset(bytes.data(), 0xA5, size);
  return bytes;
}

bool equal(const AlignedBytes& a, const AlignedBytes& b) {
  return std::ranges::equal(std::span(a.data(), a.size()), std::span(b.data(), b.size()));
}

struct Operands {
  Operands(std::size_t rows, std::size_t cols, Arithmetic arithmetic)
      : weights(filled(kernels::packed_weight_bytes(Format::e4m3fn, rows, cols))),
        weights_transposed(filled(kernels::packed_weight_bytes(Format::e4m3fn, cols, rows))),
        activations(filled(kernels::packed_activation_bytes(arithmetic, rows, cols))),
        activations_transposed(filled(kernels::packed_activation_bytes(arithmetic, cols, rows))) {}
  bool operator==(const Operands& other) const {
    return equal(weights, other.weights) && equal(weights_transposed, other.weights_transposed) &&
           equal(activations, other.activations) &&
           equal(activations_transposed, other.activations_transposed);
  }
  AlignedBytes weights, weights_transposed, activations, activations_transposed;
};

// Of all codes at once, by the reference.
Operands packed_by_reference(Format format, const std::vector<std::uint8_t>& codes,
                             std::size_t rows, std::size_t cols, Arithmetic arithmetic) {
  const kernels::PackKernels& pack = kernels::pack_kernels(Isa::generic);
  Operands to(rows, cols, arithmetic);
  const std::size_t chunks = ceil_div(cols, 128), chunks_transposed = ceil_div(rows, 128);
  pack.pack_weights({format, codes.data(), cols, false, rows, cols, 0, ceil_div(rows, 32),
                     to.weights.data(), false});
  pack.pack_weights({format, codes.data(), cols, true, cols, rows, 0, ceil_div(cols, 32),
                     to.weights_transposed.data(), false});
  pack.pack_activations({format, codes.data(), cols, false, rows, cols, arithmetic, 0, 0, chunks, 0,
                         ceil_div(rows, kernels::panel_rows(rows)), to.activations.data()});
  pack.pack_activations({format, codes.data(), cols, true, cols, rows, arithmetic, 0, 0,
                         chunks_transposed, 0, ceil_div(cols, kernels::panel_rows(cols)),
                         to.activations_transposed.data()});
  return to;
}

struct Case {
  Source source;
  Arithmetic arithmetic;
  bool stream;
};

Case any_case() {
  const auto size =
      rc::gen::weightedOneOf<std::size_t>({{2, rc::gen::inRange<std::size_t>(1, 100)},
                                           {3, rc::gen::inRange<std::size_t>(100, 900)},
                                           {1, rc::gen::element<std::size_t>(128, 384, 385, 768)}});
  Source source(*rc::gen::element(Format::f32, Format::bf16), *size, *size,
                *rc::gen::element<std::size_t>(0, 3));
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  std::normal_distribution<float> normal(0.0f, std::exp2(static_cast<float>(random() % 20) - 10));
  for (std::size_t r = 0; r < source.rows; ++r) {
    for (std::size_t c = 0; c < source.cols; ++c) {
      const auto bits = std::bit_cast<std::uint32_t>(normal(random));
      source.set(r, c, source.format == Format::f32 ? bits : bits >> 16);
    }
  }
  return {source, *rc::gen::element(Arithmetic::fma, Arithmetic::dot), *rc::gen::arbitrary<bool>()};
}

PackedForms forms_of(Operands& to, const Case& c) {
  return {to.weights.data(),     to.weights_transposed.data(),
          to.activations.data(), to.activations_transposed.data(),
          c.arithmetic,          c.stream};
}

TEST_P(QuantizePack, BlocksAsInTwoSteps) {
  EXPECT_TRUE(rc::check([this] {
    const Case c = any_case();
    const Source& source = c.source;
    const BlockRecipe recipe = {
        *rc::gen::element(BlockSize{128, 128}, BlockSize{1, 128}, BlockSize{32, 64}),
        *rc::gen::element(ScaleRule::transformers, ScaleRule::deepseek, ScaleRule::deepgemm),
        *rc::gen::element(ScaleFormat::float32, ScaleFormat::ue8m0)};
    const std::size_t grid =
        ceil_div(source.rows, recipe.block.rows) * ceil_div(source.cols, recipe.block.cols);

    const kernels::CastKernels& reference = kernels::cast_kernels(Isa::generic);
    std::vector<std::uint8_t> codes(source.rows * source.cols);
    std::vector<float> expected_scales(grid), scales(grid);
    quantize_blocks(reference, source.view(), recipe, {codes.data(), source.cols}, expected_scales,
                    false);
    Operands expected =
        packed_by_reference(Format::e4m3fn, codes, source.rows, source.cols, c.arithmetic);

    Operands got(source.rows, source.cols, c.arithmetic);
    AlignedBytes scratch(kPackScratch);
    const std::size_t count = pack_tiles(source.rows, source.cols);
    for (std::size_t t = count; t-- > 0;) {  // in any order
      const auto bad = quantize_pack_blocks(
          kernels::cast_kernels(GetParam()), kernels::pack_kernels(GetParam()), source.view(),
          recipe, scales, forms_of(got, c), {t, t + 1}, {scratch.data(), kPackScratch});
      RC_ASSERT(!bad);
    }
    RC_ASSERT(scales == expected_scales);
    RC_ASSERT((got == expected));
  }));
}

TEST_P(QuantizePack, AKnownScaleAsInTwoSteps) {
  EXPECT_TRUE(rc::check([this] {
    const Case c = any_case();
    const Source& source = c.source;
    const Format format = *rc::gen::element(Format::e4m3fn, Format::e5m2);
    const float factor = std::exp2(static_cast<float>(*rc::gen::inRange(-20, 20))) * 1.1f;

    std::vector<std::uint8_t> codes(source.rows * source.cols);
    std::uint32_t expected_amax = 1, amax = 1;
    kernels::cast_kernels(Isa::generic)
        .block_quantize({source.format, source.bytes.data(), source.stride, source.rows,
                         source.cols, source.cols, &factor, kernels::ScaleOp::multiply, format,
                         codes.data(), source.cols, nullptr, false, &expected_amax});
    Operands expected = packed_by_reference(format, codes, source.rows, source.cols, c.arithmetic);

    Operands got(source.rows, source.cols, c.arithmetic);
    AlignedBytes scratch(kPackScratch);
    const std::size_t count = pack_tiles(source.rows, source.cols);
    const std::size_t half = count / 2;
    for (const TileRange tiles : {TileRange{half, count}, TileRange{0, half}}) {
      quantize_pack_scaled(kernels::cast_kernels(GetParam()), kernels::pack_kernels(GetParam()),
                           source.view(), format, factor, forms_of(got, c), tiles,
                           {scratch.data(), kPackScratch}, &amax);
    }
    RC_ASSERT(amax == expected_amax);
    RC_ASSERT((got == expected));
  }));
}

TEST_P(QuantizePack, NamesTheElementThatIsNotFinite) {
  Source source(Format::f32, 400, 500);
  for (std::size_t r = 0; r < 400; ++r) {
    for (std::size_t c = 0; c < 500; ++c) source.set(r, c, 0x3F800000);
  }
  source.set(390, 450, 0x7F800000);
  Operands to(400, 500, Arithmetic::fma);
  AlignedBytes scratch(kPackScratch);
  std::vector<float> scales(4 * 4);
  const auto bad =
      quantize_pack_blocks(kernels::cast_kernels(GetParam()), kernels::pack_kernels(GetParam()),
                           source.view(), {}, scales, {.weights = to.weights.data()},
                           {0, pack_tiles(400, 500)}, {scratch.data(), kPackScratch});
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->row, 390u);
  EXPECT_EQ(bad->col, 450u);
}

TEST(QuantizePackContract, RefusesBlocksThatATileCuts) {
  const Source source(Format::f32, 4, 4);
  std::vector<float> scales(1);
  std::vector<std::uint8_t> scratch(kPackScratch);
  const auto call = [&](BlockSize block, std::span<std::uint8_t> memory) {
    quantize_pack_blocks(kernels::cast_kernels(Isa::generic), kernels::pack_kernels(Isa::generic),
                         source.view(), {.block = block}, scales, {}, {0, 0}, memory);
  };
  EXPECT_NO_THROW(call({128, 128}, scratch));
  EXPECT_THROW(call({256, 128}, scratch), ContractError);
  EXPECT_THROW(call({128, 0}, scratch), ContractError);
  EXPECT_THROW(call({128, 128}, std::span(scratch).first(100)), ContractError);
  EXPECT_THROW(call({1, 128}, scratch), ContractError) << "4 scales, not 1";
}

}  // namespace
}  // namespace octavo
