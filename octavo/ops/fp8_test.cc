#include "octavo/ops/fp8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/formats/convert.h"

namespace octavo::fp8 {
namespace {

using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kFormats[] = {DType::f8_e4m3, DType::f8_e5m2, DType::f8_e4m3fnuz,
                              DType::f8_e5m2fnuz};

Tensor vector_of(std::initializer_list<float> values) {
  return Tensor::from(values, {values.size()});
}

const Tensor kOne = Tensor::ones(DType::f32, {1});

TEST(GetFp8Max, KnowsTheFourFormats) {
  EXPECT_EQ(get_fp8_max(DType::f8_e4m3), 448);
  EXPECT_EQ(get_fp8_max(DType::f8_e5m2), 57344);
  EXPECT_EQ(get_fp8_max(DType::f8_e4m3fnuz), 240);
  EXPECT_EQ(get_fp8_max(DType::f8_e5m2fnuz), 57344);
  for (const DType other : {DType::bf16, DType::f8_e8m0, DType::u8}) {
    EXPECT_THROW(get_fp8_max(other), ContractError);
  }
}

TEST(Quantize, LimitsAndRoundsOnce) {
  struct Row {
    float x, expected[4];
  };
  const Row rows[] = {
      {1.0625f, {1, 1, 1, 1}},
      {1.125f, {1.125f, 1, 1.125f, 1}},
      {1.1875f, {1.25f, 1.25f, 1.25f, 1.25f}},
      {-0.3f, {-0.3125f, -0.3125f, -0.3125f, -0.3125f}},
      {3.14159265f, {3.25f, 3, 3.25f, 3}},
      {17, {16, 16, 16, 16}},
      {18, {18, 16, 18, 16}},
      {19, {20, 20, 20, 20}},
      {100, {96, 96, 96, 96}},
      {0.001f, {0x1p-9f, 0x1p-10f, 0x1p-10f, 0x1p-10f}},
      {0x1p-10f, {0, 0x1p-10f, 0x1p-10f, 0x1p-10f}},
      {3 * 0x1p-10f, {0x1p-8f, 3 * 0x1p-10f, 3 * 0x1p-10f, 3 * 0x1p-10f}},
      {1e-6f, {0, 0, 0, 0}},
      {449, {448, 448, 240, 448}},
      {1e9f, {448, 57344, 240, 57344}},
      {-kInf, {-448, -57344, -240, -57344}},
  };
  for (const Row& row : rows) {
    for (std::size_t f = 0; f < 4; ++f) {
      const Tensor x = vector_of({row.x});
      EXPECT_EQ(qdq(x, kFormats[f], kOne).item(), row.expected[f]) << row.x << " " << f;
      // Without the kernels: a scale for each element.
      EXPECT_EQ(qdq(Tensor::from({row.x, row.x}, {2}), kFormats[f], Tensor::ones(DType::f32, {2}))
                    .to_floats()[1],
                row.expected[f])
          << row.x << " " << f;
      EXPECT_TRUE(std::isnan(qdq(vector_of({kNan}), kFormats[f], kOne).item()));
    }
  }
}

TEST(Quantize, DividesByTheScale) {
  const Tensor half = Tensor::full(DType::f32, {1}, 0.5);
  EXPECT_THAT(qdq(vector_of({0.3f, 100, 224, 230, -300}), DType::f8_e4m3, half).to_floats(),
              ElementsAre(0.3125f, 96, 224, 224, -224));
  const std::vector<float> by_zero =
      quantize(vector_of({0, 1, -2, kNan}), DType::f8_e4m3, Tensor::zeros(DType::f32, {1}))
          .to_floats();
  EXPECT_TRUE(std::isnan(by_zero[0]) && std::isnan(by_zero[3]));
  EXPECT_EQ(by_zero[1], 448);
  EXPECT_EQ(by_zero[2], -448);
  EXPECT_THAT(
      quantize(vector_of({1, -2}), DType::f8_e4m3, Tensor::full(DType::f32, {1}, kInf)).to_floats(),
      ElementsAre(0, 0));
  EXPECT_THAT(
      quantize(vector_of({1, -2}), DType::f8_e4m3, Tensor::full(DType::f32, {1}, -1)).to_floats(),
      ElementsAre(-1, 2));
}

TEST(Quantize, BroadcastsScales) {
  const Tensor x = Tensor::from({1, 2, 3, 4}, {2, 2});
  EXPECT_THAT(quantize(x, DType::f8_e5m2, Tensor::from({1, 2}, {2, 1})).to_floats(),
              ElementsAre(1, 2, 1.5f, 2));
  EXPECT_THAT(quantize(x, DType::f8_e5m2, Tensor::from({1, 2}, {2})).to_floats(),
              ElementsAre(1, 1, 3, 2));
  EXPECT_THROW(quantize(x, DType::f8_e5m2, Tensor::ones(DType::f32, {3})), ContractError);
  EXPECT_THROW(quantize(Tensor::scalar(1), DType::f8_e5m2, kOne), ContractError);
  EXPECT_EQ(quantize(Tensor::scalar(3), DType::f8_e5m2, Tensor::scalar(1)).item(), 3);
}

// One quotient of f32, or bf16's two roundings.
TEST(Quantize, ComputesInTheTypeItIsAskedFor) {
  const Tensor x = vector_of({1.0625f + 0x1p-10f}).astype(DType::f32);
  EXPECT_EQ(quantize(x, DType::f8_e4m3, kOne).item(), 1.125);
  const Tensor narrow = x.astype(DType::bf16);  // 1.0625, a tie
  EXPECT_EQ(quantize(narrow, DType::f8_e4m3, kOne, DType::bf16).item(), 1);
  // 1 / 3 in bf16 is 0.333984375; 100 / that is 299.4, in bf16 300, a tie between 288 and 320.
  const Tensor third = Tensor::full(DType::f32, {1}, 1.0 / 3);
  const Tensor hundred = vector_of({100}).astype(DType::bf16);
  EXPECT_EQ(quantize(hundred, DType::f8_e4m3, third, DType::bf16).item(), 288);
}

TEST(Dequantize, CastsFirst) {
  const Tensor acc = vector_of({1 + 0x1p-9f});
  EXPECT_EQ(dequantize(acc, DType::bf16, vector_of({3})).item(), 3);
  EXPECT_EQ(dequantize(acc, DType::f32, vector_of({3})).item(), 3 + 3 * 0x1p-9f);
}

TEST(ComputeScale, TakesOneAmaxOrOneForEachScale) {
  const Tensor scales = vector_of({1, 1});
  EXPECT_THAT(compute_scale(Tensor::scalar(7), scales, 448).to_floats(),
              ElementsAre(0.015625f, 0.015625f));
  EXPECT_THAT(compute_scale(vector_of({7, 448}), scales, 448).to_floats(),
              ElementsAre(0.015625f, 1));
  EXPECT_THROW(compute_scale(vector_of({1, 2, 3}), scales, 448), ContractError);
}

TEST(ComputeAmaxHistory, RotatesLeftAndWritesSlotZero) {
  const std::vector<std::vector<float>> expected = {{5, 0, 0, 0}, {3, 0, 0, 5}, {7, 0, 5, 3},
                                                    {1, 5, 3, 7}, {2, 3, 7, 1}, {6, 7, 1, 2}};
  Tensor history = Tensor::zeros(DType::f32, {4});
  const float maxima[] = {5, 3, 7, 1, 2, 6};
  for (std::size_t step = 0; step < 6; ++step) {
    history = compute_amax_history(vector_of({0.5f, -maxima[step]}), history);
    EXPECT_EQ(history.to_floats(), expected[step]) << step;
  }
  EXPECT_THAT(push_amax(vector_of({9}), 4).to_floats(), ElementsAre(4));
  EXPECT_THROW(push_amax(Tensor::zeros(DType::f32, {3, 2}), 1), ContractError);
  EXPECT_THROW(push_amax(Tensor::scalar(0), 1), ContractError);
  EXPECT_THROW(compute_amax_history(Tensor::zeros(DType::f32, {0}), history), ContractError);
  EXPECT_TRUE(std::isnan(compute_amax_history(vector_of({1, kNan}), history).to_floats()[0]));
  EXPECT_EQ(compute_amax_history(vector_of({1, -kInf}), history).to_floats()[0], kInf);
}

TEST(UpdateFp8Meta, ScaleComesFromTheHistoryBefore) {
  const float maxima[] = {5, 3, 7, 1, 2, 6, 0.5f, 0.25f};
  const float scales[] = {1,         5.0f / 448, 5.0f / 448, 0.015625f,
                          0.015625f, 0.015625f,  0.015625f,  0.013392857f};
  Fp8Meta meta{Tensor::ones(DType::f32, {1}), Tensor::zeros(DType::f32, {4})};
  for (std::size_t step = 0; step < 8; ++step) {
    meta =
        update_fp8_meta(vector_of({maxima[step]}), DType::f8_e4m3, meta.scale, meta.amax_history);
    EXPECT_EQ(meta.scale.item(), step == 1 || step == 2 ? 0x1.6db6dcp-7f : scales[step]) << step;
  }
  EXPECT_THAT(meta.amax_history.to_floats(), ElementsAre(0.25f, 2, 6, 0.5f));
}

// A NaN stays for as many scales as the history is long, then the scale goes on.
TEST(UpdateFp8Meta, NanFreezesTheScaleForTheWindow) {
  Fp8Meta meta{Tensor::ones(DType::f32, {1}), Tensor::zeros(DType::f32, {3})};
  const auto step = [&](float amax) {
    meta = update_fp8_meta(vector_of({amax}), DType::f8_e4m3, meta.scale, meta.amax_history);
    return meta.scale.item();
  };
  step(7);
  EXPECT_EQ(step(kNan), 0.015625);
  EXPECT_EQ(step(448), 0.015625);
  EXPECT_EQ(step(448), 0.015625);
  EXPECT_EQ(step(448), 0.015625);
  EXPECT_EQ(step(448), 1);
}

}  // namespace
}  // namespace octavo::fp8
