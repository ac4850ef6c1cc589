#include "octavo/ops/scaled_dot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "octavo/base/error.h"
#include "octavo/ops/fp8.h"
#include "octavo/ops/kernel_log.h"

namespace octavo::ops {
namespace {

Tensor normals(const Shape& shape, unsigned seed, DType dtype = DType::f32) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(*element_count(shape));
  for (float& x : values) x = normal(random);
  return Tensor::from(values, shape, dtype);
}

struct Case {
  Shape lhs, rhs;
  DotDimensionNumbers dims;
};

const Case kCases[] = {
    {{9, 150}, {150, 40}, {{1}, {0}}},
    {{9, 150}, {40, 150}, {{1}, {1}}},
    {{150, 9}, {150, 40}, {{0}, {0}}},
    {{2, 3, 20}, {20, 33}, {{2}, {0}}},
    {{2, 5, 20}, {2, 20, 7}, {{2}, {1}, {0}, {0}}},
    {{5, 2, 4, 6}, {6, 7, 4, 2}, {{3, 2}, {0, 2}, {1}, {3}}},
};

// By the parts: codes, products of codes, scales.
Tensor by_parts(const Tensor& lhs, const Tensor& rhs, const DotDimensionNumbers& dims,
                float lhs_scale, float rhs_scale) {
  const auto scalar = [](float s) { return Tensor::full(DType::f32, {1}, s); };
  const Tensor product =
      dot_general(fp8::quantize(lhs, DType::f8_e4m3, scalar(lhs_scale)),
                  fp8::quantize(rhs, DType::f8_e4m3, scalar(rhs_scale)), dims, DType::f32);
  return fp8::dequantize(product, DType::f32, scalar(lhs_scale * rhs_scale));
}

// Scales that are powers of two commute with every rounding.
TEST(ScaledDot, DelayedIsTheProductOfCodesTimesScales) {
  const ScaledDotRecipes recipes{
      {.scale = 0x1p-6f}, {.scale = 0x1p-7f}, {.format = Format::e5m2, .scale = 0x1p-12f}};
  for (const Case& c : kCases) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const Tensor lhs = normals(c.lhs, 1, type), rhs = normals(c.rhs, 2, type);
      const ScaledDot dot = scaled_dot(lhs, rhs, c.dims, recipes, DType::f32, true);
      EXPECT_TRUE(same_bits(dot.value, by_parts(lhs, rhs, c.dims, 0x1p-6f, 0x1p-7f)));
      EXPECT_EQ(dot.lhs_amax, fp8::amax(lhs));
      EXPECT_EQ(dot.rhs_amax, fp8::amax(rhs));
      EXPECT_TRUE(
          same_bits(scaled_dot(lhs, rhs, c.dims, recipes, DType::f32, false).value, dot.value));

      const Tensor g = normals(dot.value.shape(), 3);
      const ScaledDotGradients gradients = scaled_dot_gradients(*dot.kept, g, recipes);
      const auto scalar = [](double s) { return Tensor::full(DType::f32, {1}, s); };
      const Tensor q_g = fp8::quantize(g, DType::f8_e5m2, scalar(0x1p-12));
      const Tensor q_lhs = fp8::quantize(lhs, DType::f8_e4m3, scalar(0x1p-6));
      const Tensor q_rhs = fp8::quantize(rhs, DType::f8_e4m3, scalar(0x1p-7));
      EXPECT_TRUE(same_bits(*gradients.lhs,
                            fp8::dequantize(dot_general_transpose_lhs(q_g, c.lhs, q_rhs, c.dims),
                                            DType::f32, scalar(0x1p-19))
                                .astype(type)));
      EXPECT_TRUE(same_bits(*gradients.rhs,
                            fp8::dequantize(dot_general_transpose_rhs(q_g, q_lhs, c.rhs, c.dims),
                                            DType::f32, scalar(0x1p-18))
                                .astype(type)));
      EXPECT_EQ(gradients.grad_amax, fp8::amax(g));
    }
  }
}

TEST(ScaledDot, KeepsOneBytePerElementOfLhs) {
  const Tensor lhs = normals({8, 256}, 1), rhs = normals({256, 64}, 2);
  const ScaledDot dot = scaled_dot(lhs, rhs, matmul_dims(2), {}, DType::f32, true);
  EXPECT_EQ(dot.kept->lhs_codes[0].codes.size(), 8u * 256);
  EXPECT_FALSE(dot.kept->lhs_codes[0].weight || dot.kept->lhs_codes[0].weight_transposed);
  EXPECT_EQ(dot.kept->rhs_codes[0].codes.size(), 0u);
  EXPECT_TRUE(dot.kept->rhs_codes[0].weight);
  EXPECT_FALSE(dot.kept->rhs_codes[0].weight_transposed);
}

// Current scaling: amax / 448 of the whole operand, over all its matrices.
TEST(ScaledDot, CurrentTakesTheScaleOfTheWholeOperand) {
  const ScaledDotRecipes recipes{{.scaling = Scaling::current},
                                 {.scaling = Scaling::current},
                                 {.format = Format::e5m2, .scaling = Scaling::current}};
  for (const Case& c : kCases) {
    const Tensor lhs = normals(c.lhs, 4), rhs = normals(c.rhs, 5);
    const ScaledDot dot = scaled_dot(lhs, rhs, c.dims, recipes, DType::f32, true);
    const Tensor expected = by_parts(lhs, rhs, c.dims, fp8::amax(lhs) / 448, fp8::amax(rhs) / 448);
    const auto a = dot.value.values<float>(), b = expected.values<float>();
    const double terms = static_cast<double>(lhs.size()) * 448;  // more than are summed
    for (std::size_t i = 0; i < a.size(); ++i) {
      // Both are sums of the same products; each of fewer than `terms` additions rounds once.
      const double magnitude = terms * fp8::amax(lhs) * fp8::amax(rhs);
      ASSERT_LE(std::fabs(a[i] - b[i]), magnitude * 0x1p-24 * 2);
    }
    EXPECT_EQ(dot.lhs_amax, fp8::amax(lhs));
  }
}

TEST(ScaledDot, NanReachesTheAmaxAndTheResult) {
  std::vector<float> values(2 * 40, 1.0f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  const ScaledDot dot = scaled_dot(Tensor::from(values, {2, 40}), Tensor::ones(DType::f32, {40, 3}),
                                   matmul_dims(2), {}, DType::f32, true);
  EXPECT_TRUE(std::isnan(dot.lhs_amax));
  EXPECT_EQ(dot.rhs_amax, 1);
  EXPECT_TRUE(std::isnan(dot.value.values<float>()[0]));
  EXPECT_EQ(dot.value.values<float>()[3], 40);
}

// In one matrix of two: that one is NaN, forward and backward.
TEST(ScaledDot, NanWithCurrentScalingReachesItsMatrix) {
  const ScaledDotRecipes recipes{{.scaling = Scaling::current},
                                 {.scaling = Scaling::current},
                                 {.format = Format::e5m2, .scaling = Scaling::current}};
  std::vector<float> values(2 * 3 * 40, 448.0f);  // the scale is 1
  values[3] = std::numeric_limits<float>::infinity();
  const Tensor lhs = Tensor::from(values, {2, 3, 40}),
               rhs = Tensor::full(DType::f32, {2, 40, 5}, 448);
  const DotDimensionNumbers dims{{2}, {1}, {0}, {0}};
  const ScaledDot dot = scaled_dot(lhs, rhs, dims, recipes, DType::f32, true);
  EXPECT_TRUE(std::isnan(dot.value.values<float>()[0]));
  EXPECT_EQ(dot.value.values<float>()[15], 448.0f * 448 * 40);
  const Tensor g = Tensor::full(DType::f32, {2, 3, 5}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(scaled_dot_gradients(*dot.kept, g, recipes).rhs->values<float>()[0]));
}

TEST(ScaledDot, RunsFp8ProductsForwardAndBackward) {
  KernelLog log;
  const Tensor lhs = normals({4, 32}, 1), rhs = normals({32, 16}, 2);
  const ScaledDot dot = scaled_dot(lhs, rhs, matmul_dims(2), {}, DType::f32, true);
  EXPECT_EQ(log.count(Format::e4m3fn, Format::e4m3fn), 1u);
  scaled_dot_gradients(*dot.kept, normals({4, 16}, 3), {});
  EXPECT_EQ(log.count(Format::e5m2, Format::e4m3fn), 1u);
  EXPECT_EQ(log.count(Format::e4m3fn, Format::e5m2), 1u);
  EXPECT_EQ(log.runs().size(), 3u);
  const ScaledDotGradients of_rhs =
      scaled_dot_gradients(*dot.kept, normals({4, 16}, 3), {}, {.lhs = false});
  EXPECT_EQ(log.runs().size(), 4u);
  EXPECT_FALSE(of_rhs.lhs);
  EXPECT_TRUE(of_rhs.rhs);
  EXPECT_NE(to_string(log.runs()[1]).find("e5m2 x e4m3fn -> f32, 4 x 32 x 16"), std::string::npos);
}

// Of as many elements, too.
TEST(ScaledDot, RefusesACotangentOfAnotherShape) {
  const ScaledDot dot =
      scaled_dot(normals({2, 3, 8}, 1), normals({8, 4}, 2), {{2}, {0}}, {}, DType::f32, true);
  EXPECT_EQ(scaled_dot_gradients(*dot.kept, normals({2, 3, 4}, 3), {}).lhs->shape(),
            (Shape{2, 3, 8}));
  for (const Shape& shape : {Shape{3, 2, 4}, Shape{6, 4}, Shape{24}, Shape{2, 3, 5}}) {
    EXPECT_THROW(scaled_dot_gradients(*dot.kept, normals(shape, 3), {}), ContractError);
  }
}

TEST(ScaledDot, RefusesWhatIsEmpty) {
  EXPECT_THROW(scaled_dot(Tensor::zeros(DType::f32, {0, 4}), Tensor::zeros(DType::f32, {4, 3}),
                          matmul_dims(2), {}, DType::f32, false),
               ContractError);
}

}  // namespace
}  // namespace octavo::ops
