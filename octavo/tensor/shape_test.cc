#include "octavo/tensor/shape.h"
#include "octavo/base/ceil_div.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"

namespace octavo {
namespace {

constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;
constexpr std::uint64_t kMost = ~std::uint64_t{0};

TEST(Shape, ElementCount) {
  EXPECT_EQ(element_count({}), 1u);
  EXPECT_EQ(element_count({0}), 0u);
  EXPECT_EQ(element_count({576, 7168}), 576u * 7168u);
  EXPECT_EQ(element_count({kHuge}), kHuge);
}

TEST(Shape, ElementCountThatOverflows) {
  EXPECT_EQ(element_count({kHuge + 1}), std::nullopt);
  EXPECT_EQ(element_count({kMost}), std::nullopt);
  EXPECT_EQ(element_count({std::uint64_t{1} << 32, std::uint64_t{1} << 32}), std::nullopt);
  // The product modulo 2^64 is 4.
  EXPECT_EQ(element_count({kHuge + 2, 2}), std::nullopt);
}

TEST(Shape, AnEmptyTensorIsEmptyWhateverItsOtherExtents) {
  EXPECT_EQ(element_count({kMost, kMost, 0}), 0u);
  EXPECT_EQ(element_count({0, kMost, kMost}), 0u);
  EXPECT_EQ(byte_count(DType::f32, {0, kMost, kMost}), 0u);
}

TEST(Shape, ByteCount) {
  EXPECT_EQ(byte_count(DType::f32, {}), 4u);
  EXPECT_EQ(byte_count(DType::bf16, {3, 5}), 30u);
  EXPECT_EQ(byte_count(DType::c64, {2}), 16u);
  EXPECT_EQ(byte_count(DType::f64, {kHuge}), std::nullopt);
}

TEST(Shape, RowsOfFourBitElementsFillWholeBytes) {
  EXPECT_EQ(byte_count(DType::f4, {3, 4}), 6u);
  EXPECT_EQ(byte_count(DType::f4, {4, 3}), std::nullopt);
  EXPECT_EQ(byte_count(DType::f4, {3}), std::nullopt);
  EXPECT_EQ(byte_count(DType::f4, {}), std::nullopt);
  EXPECT_EQ(byte_count(DType::f4, {0, 4}), 0u);
}

TEST(Shape, AsText) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{576, 7168}), "[576, 7168]");
}

TEST(Shape, LeadingDimensionsAreSlices) {
  const Matrices two = as_matrices({576, 7168});
  EXPECT_EQ(two.slices, 1u);
  EXPECT_EQ(two.rows, 576u);
  EXPECT_EQ(two.cols, 7168u);
  const Matrices four = as_matrices({2, 3, 5, 7});
  EXPECT_EQ(four.slices, 6u);
  EXPECT_EQ(four.rows, 5u);
  EXPECT_EQ(four.cols, 7u);
  EXPECT_THROW(as_matrices({7}), ContractError);
  EXPECT_THROW(as_matrices({}), ContractError);
}

TEST(Shape, CeilDiv) {
  EXPECT_EQ(ceil_div(576, 128), 5u);
  EXPECT_EQ(ceil_div(512, 128), 4u);
  EXPECT_EQ(ceil_div(0, 128), 0u);
  EXPECT_EQ(ceil_div(1, kMost), 1u);
  EXPECT_EQ(ceil_div(kMost, 2), kHuge);  // where (a + b - 1) / b overflows
}

TEST(Shape, Unravel) {
  EXPECT_EQ(unravel(0, {}), Shape{});
  EXPECT_EQ(unravel(6, {7}), Shape{6});
  EXPECT_EQ(unravel(29, {2, 3, 5}), (Shape{1, 2, 4}));
  EXPECT_EQ(unravel(5, {2, 3, 5}), (Shape{0, 1, 0}));
}

}  // namespace
}  // namespace octavo
