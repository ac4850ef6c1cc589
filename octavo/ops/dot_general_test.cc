#include "octavo/ops/dot_general.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "octavo/base/error.h"
#include "octavo/tensor/tensor_testing.h"

namespace octavo::ops {
namespace {

std::size_t offset(const Shape& shape, const Shape& index) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) at = at * shape[i] + index[i];
  return at;
}

// By the definition: every index of the result, every index of the contraction.
std::vector<float> definition(const Tensor& lhs, const Tensor& rhs,
                              const DotDimensionNumbers& dims) {
  const Axes lhs_free = free_axes(lhs.rank(), dims.lhs_contracting, dims.lhs_batch);
  const Axes rhs_free = free_axes(rhs.rank(), dims.rhs_contracting, dims.rhs_batch);
  Shape shape, sums;
  for (const std::size_t axis : dims.lhs_batch) shape.push_back(lhs.shape()[axis]);
  for (const std::size_t axis : lhs_free) shape.push_back(lhs.shape()[axis]);
  for (const std::size_t axis : rhs_free) shape.push_back(rhs.shape()[axis]);
  for (const std::size_t axis : dims.lhs_contracting) sums.push_back(lhs.shape()[axis]);
  std::vector<float> result(*element_count(shape));
  const std::vector<float> a = lhs.to_floats(), b = rhs.to_floats();
  for (std::size_t r = 0; r < result.size(); ++r) {
    const Shape out = unravel(r, shape);
    Shape of_lhs(lhs.rank()), of_rhs(rhs.rank());
    std::size_t axis = 0;
    for (std::size_t i = 0; i < dims.lhs_batch.size(); ++i, ++axis) {
      of_lhs[dims.lhs_batch[i]] = of_rhs[dims.rhs_batch[i]] = out[axis];
    }
    for (const std::size_t free : lhs_free) of_lhs[free] = out[axis++];
    for (const std::size_t free : rhs_free) of_rhs[free] = out[axis++];
    for (std::size_t s = 0; s < *element_count(sums); ++s) {
      const Shape sum = unravel(s, sums);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        of_lhs[dims.lhs_contracting[i]] = of_rhs[dims.rhs_contracting[i]] = sum[i];
      }
      result[r] += a[offset(lhs.shape(), of_lhs)] * b[offset(rhs.shape(), of_rhs)];
    }
  }
  return result;
}

struct Case {
  Shape lhs, rhs;
  DotDimensionNumbers dims;
};

const Case kCases[] = {
    {{3, 5}, {5, 4}, {{1}, {0}}},
    {{3, 5}, {4, 5}, {{1}, {1}}},
    {{5, 3}, {5, 4}, {{0}, {0}}},
    {{5, 3}, {4, 5}, {{0}, {1}}},
    {{2, 3, 5}, {5, 4}, {{2}, {0}}},
    {{20, 5}, {5, 33}, {{1}, {0}}},  // rows enough to pack the weight first
    {{2, 3, 5}, {2, 5, 4}, {{2}, {1}, {0}, {0}}},
    {{3, 2, 5}, {5, 4, 2}, {{2}, {0}, {1}, {2}}},
    {{2, 3, 4, 5}, {4, 5, 6}, {{2, 3}, {0, 1}}},
    {{2, 3, 4, 5}, {5, 6, 4}, {{3, 2}, {0, 2}}},
    {{2, 3, 4, 5}, {5, 3, 6, 4}, {{2, 3}, {3, 0}, {1}, {1}}},
    {{4, 2, 3, 5}, {2, 5, 4, 7}, {{3}, {1}, {0, 1}, {2, 0}}},
    {{2, 3}, {4, 5}, {{}, {}}},
    {{6}, {6}, {{0}, {0}}},
    {{2, 3}, {2, 3}, {{}, {}, {0, 1}, {0, 1}}},
    {{3, 0}, {0, 4}, {{1}, {0}}},
    {{0, 3}, {3, 4}, {{1}, {0}}},
};

TEST(DotGeneral, IsItsDefinitionInEveryType) {
  for (const Case& c : kCases) {
    for (const DType type : {DType::f32, DType::bf16, DType::f64, DType::f8_e4m3, DType::f8_e5m2}) {
      const Tensor lhs = integers(c.lhs, 1, type), rhs = integers(c.rhs, 2, type);
      const Tensor result = dot_general(lhs, rhs, c.dims, DType::f32);
      EXPECT_EQ(result.to_floats(), definition(lhs, rhs, c.dims))
          << octavo::to_string(c.lhs) << octavo::to_string(c.rhs) << dtype_name(type);
    }
  }
}

TEST(DotGeneral, TransposesAreItsGradients) {
  for (const Case& c : kCases) {
    if (*element_count(c.lhs) == 0 || *element_count(c.rhs) == 0) continue;
    const Tensor lhs = integers(c.lhs, 1), rhs = integers(c.rhs, 2);
    const Tensor g = integers(dot_general(lhs, rhs, c.dims).shape(), 3);
    const Tensor of_lhs = dot_general_transpose_lhs(g, c.lhs, rhs, c.dims);
    const Tensor of_rhs = dot_general_transpose_rhs(g, lhs, c.rhs, c.dims);
    EXPECT_EQ(of_lhs.shape(), c.lhs);
    EXPECT_EQ(of_rhs.shape(), c.rhs);
    // <g, dot(e_i, rhs)> for each unit e_i, and likewise on the right: linear in each operand.
    const auto inner = [&](const Tensor& y) {
      const auto a = g.values<float>(), b = y.values<float>();
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0f);
    };
    for (std::size_t i = 0; i < of_lhs.size(); ++i) {
      std::vector<float> unit(of_lhs.size());
      unit[i] = 1;
      EXPECT_EQ(of_lhs.values<float>()[i],
                inner(dot_general(Tensor::from(unit, c.lhs), rhs, c.dims)));
    }
    for (std::size_t i = 0; i < of_rhs.size(); ++i) {
      std::vector<float> unit(of_rhs.size());
      unit[i] = 1;
      EXPECT_EQ(of_rhs.values<float>()[i],
                inner(dot_general(lhs, Tensor::from(unit, c.rhs), c.dims)));
    }
  }
}

TEST(DotGeneral, MixesFormats) {
  const Tensor g = integers({3, 4}, 1, DType::f8_e5m2), w = integers({5, 4}, 2, DType::f8_e4m3);
  const DotDimensionNumbers dims{{1}, {1}};
  EXPECT_EQ(dot_general(g, w, dims).dtype(), DType::f32);
  EXPECT_EQ(dot_general(g, w, dims, DType::bf16).dtype(), DType::bf16);
  EXPECT_EQ(dot_general(g, w, dims).to_floats(), definition(g, w, dims));
  EXPECT_THROW(dot_general(g, integers({5, 4}, 2, DType::f64), dims), ContractError);
}

TEST(DotGeneral, RefusesAxesThatDoNotFit) {
  const Tensor a = integers({2, 3}, 1), b = integers({3, 4}, 2);
  EXPECT_THROW(dot_general(a, b, {{0}, {0}}), ContractError);
  EXPECT_THROW(dot_general(a, b, {{2}, {0}}), ContractError);
  EXPECT_THROW(dot_general(a, b, {{1, 1}, {0, 0}}), ContractError);
  EXPECT_THROW(dot_general(a, b, {{1}, {}}), ContractError);
  EXPECT_THROW(dot_general(a, b, {{1}, {0}, {1}, {0}}), ContractError);
}

TEST(DotGeneral, GradientsRefuseAxesAndCotangentsThatDoNotFit) {
  const Shape lhs = {2, 3}, rhs = {3, 4};
  const auto refused = [&](const Shape& of_g, const DotDimensionNumbers& dims) {
    const Tensor g = integers(of_g, 3);
    EXPECT_THROW(dot_general_transpose_lhs(g, lhs, integers(rhs, 2), dims), ContractError);
    EXPECT_THROW(dot_general_transpose_rhs(g, integers(lhs, 1), rhs, dims), ContractError);
  };
  refused({2, 3, 4}, {{5}, {0}});     // beyond the rank
  refused({2, 3, 4}, {{1}, {7}});     // likewise
  refused({2, 4}, {{1, 1}, {0, 0}});  // twice
  refused({2, 3, 4}, {{1}, {}});      // lists of two lengths
  refused({2, 4}, {{}, {0}});         // likewise
  refused({3, 4}, {{0}, {0}});        // sizes 2 and 3
  refused({4}, {{1}, {0}, {0}, {}});  // a batch axis of one alone
  refused({4, 2}, {{1}, {0}});        // a cotangent of the same count
  refused({8}, {{1}, {0}});           // of another rank
  refused({2, 5}, {{1}, {0}});        // of another size
  EXPECT_EQ(
      dot_general_transpose_lhs(integers({2, 4}, 3), lhs, integers(rhs, 2), {{1}, {0}}).shape(),
      lhs);
}

TEST(Transpose, InOrderOfRefusesWhatIsNoPermutation) {
  const Tensor x = integers({2, 3, 4}, 1);
  EXPECT_EQ(in_order_of(x, {2, 0, 1}).shape(), (Shape{3, 4, 2}));
  EXPECT_THROW(in_order_of(x, {0, 1, 5}), ContractError);
  EXPECT_THROW(in_order_of(x, {0, 1, 1}), ContractError);
  EXPECT_THROW(in_order_of(x, {0, 1}), ContractError);
}

TEST(Transpose, MovesElementsOfEverySize) {
  for (const DType type : {DType::f8_e4m3, DType::bf16, DType::f32, DType::f64}) {
    const Tensor x = integers({2, 3, 4}, 1, type), y = transpose(x, {2, 0, 1});
    EXPECT_EQ(y.shape(), (Shape{4, 2, 3}));
    const std::vector<float> from = x.to_floats(), to = y.to_floats();
    for (std::size_t i = 0; i < to.size(); ++i) {
      const Shape at = unravel(i, y.shape());
      EXPECT_EQ(to[i], from[offset(x.shape(), {at[1], at[2], at[0]})]);
    }
  }
  const Tensor x = integers({2, 3}, 1);
  EXPECT_EQ(transpose(x, {0, 1}).data(), x.data());
  EXPECT_THROW(transpose(x, {0, 0}), ContractError);
  EXPECT_THROW(transpose(x, {0}), ContractError);
}

}  // namespace
}  // namespace octavo::ops
