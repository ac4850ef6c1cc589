#include "octavo/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/formats/convert.h"

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Tensor, HoldsValuesRowMajor) {
  const Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(x.rank(), 2u);
  EXPECT_EQ(x.size(), 6u);
  EXPECT_EQ(x.bytes(), 24u);
  EXPECT_EQ(x.values<float>()[4], 5);
  EXPECT_EQ(Tensor::scalar(2.5).item(), 2.5);
  EXPECT_EQ(Tensor().size(), 0u);
  EXPECT_THAT(Tensor::ones(DType::bf16, {2}).to_floats(), ::testing::ElementsAre(1, 1));
}

TEST(Tensor, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros(DType::f32, {2, 3});
  EXPECT_THROW(Tensor::from({1, 2}, {3}), ContractError);
  EXPECT_THROW(x.reshape({7}), ContractError);
  EXPECT_THROW(x.values<double>(), ContractError);
  EXPECT_THROW(x.item(), ContractError);
  EXPECT_THROW(Tensor(DType::f4, {3}), ContractError);
  EXPECT_THROW(Tensor(DType::f32, {1ull << 62, 1ull << 62}), ContractError);
}

TEST(Tensor, SharedStorageDoesNotChange) {
  Tensor x = Tensor::zeros(DType::f32, {2});
  x.mutable_values<float>()[0] = 1;
  const Tensor y = x.reshape({2, 1});
  EXPECT_THROW(x.mutable_values<float>(), ContractError);
  EXPECT_EQ(y.data(), x.data());
}

// Against the conversions of formats, which are tested against ml_dtypes.
TEST(Tensor, CastsRoundOnce) {
  std::vector<float> values = {
      0,       -0.0f, 1,     1 + 0x1p-8f, 1 + 0x1.8p-8f, -3.14159f,      1e-40f,
      3.4e38f, kInf,  -kInf, 464.0f,      464.00003f,    0x1p-9f * 0.5f, 0x1.8p-10f};
  for (int exponent = -140; exponent < 128; ++exponent) {
    values.push_back(std::ldexp(1.23456789f, exponent));
  }
  const Tensor x = Tensor::from(values, {values.size()});
  const Tensor bf16 = x.astype(DType::bf16), e4m3 = x.astype(DType::f8_e4m3);
  const Tensor f64 = x.astype(DType::f64), back = bf16.astype(DType::f32);
  for (std::size_t i = 0; i < values.size(); ++i) {
    constexpr auto kEven = Rounding::nearest_even;
    const auto code = encode<Format::bf16>(values[i], kEven, Overflow::special);
    EXPECT_EQ(bf16.values<std::uint16_t>()[i], code) << values[i];
    EXPECT_EQ(back.values<float>()[i], decode<Format::bf16>(code)) << values[i];
    EXPECT_EQ(e4m3.values<std::uint8_t>()[i],
              encode<Format::e4m3fn>(values[i], kEven, Overflow::special));
    EXPECT_EQ(f64.values<double>()[i], values[i]);
  }
  EXPECT_THAT(Tensor::from({1.9f, -1.9f, 3e9f, -kInf, std::nanf("")}, {5})
                  .astype(DType::i32)
                  .values<std::int32_t>(),
              ::testing::ElementsAre(1, -1, 2147483647, -2147483648, 0));
  const Tensor nan = Tensor::from({std::nanf("")}, {1}).astype(DType::bf16);
  EXPECT_TRUE(std::isnan(nan.item()));
  EXPECT_TRUE(std::isnan(nan.astype(DType::f32).item()));
}

TEST(Tensor, SameBitsTellsTypesAndZerosApart) {
  const Tensor x = Tensor::from({0, 1}, {2});
  EXPECT_TRUE(same_bits(x, Tensor::from({0, 1}, {2})));
  EXPECT_FALSE(same_bits(x, Tensor::from({-0.0f, 1}, {2})));
  EXPECT_FALSE(same_bits(x, x.reshape({1, 2})));
  EXPECT_FALSE(same_bits(x, x.astype(DType::f64)));
}

}  // namespace
}  // namespace octavo
