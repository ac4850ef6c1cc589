#include "octavo/autograd/einsum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "octavo/autograd/value_and_grad.h"
#include "octavo/base/error.h"
#include "octavo/tensor/tensor_testing.h"

namespace octavo {
namespace {

// An equation, and what it means: one letter per axis.
struct Case {
  const char* equation;
  Shape lhs, rhs;
  std::string of_lhs, of_rhs, of_result;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      // Of layers.
      {"mk,kn->mn", {2, 3}, {3, 4}, "mk", "kn", "mn"},
      {"mk,kn->nm", {2, 3}, {3, 4}, "mk", "kn", "nm"},
      {"...k,nk->...n", {2, 3, 4}, {5, 4}, "abk", "nk", "abn"},
      {"...k,kn->...n", {2, 3, 4}, {4, 5}, "abk", "kn", "abn"},
      {"egcd,edh->egch", {2, 3, 2, 4}, {2, 4, 3}, "egcd", "edh", "egch"},
      {"gecd,edh->gech", {3, 2, 2, 4}, {2, 4, 3}, "gecd", "edh", "gech"},
      {"...qhd,...khd->...hqk", {2, 3, 2, 4}, {2, 5, 2, 4}, "bqhd", "bkhd", "bhqk"},
      {"...hqk,...khd->...qhd", {2, 2, 3, 5}, {2, 5, 2, 4}, "bhqk", "bkhd", "bqhd"},
      // Implicit results.
      {"ij,jk", {2, 3}, {3, 4}, "ij", "jk", "ik"},
      {"kj,ji", {2, 3}, {3, 4}, "kj", "ji", "ik"},
      {"zB,BA", {2, 3}, {3, 4}, "zB", "BA", "Az"},
      {"...ij,...jk", {2, 3, 4}, {4, 5}, "aij", "jk", "aik"},
      {"ii,jk", {3, 3}, {2, 4}, "ii", "jk", "jk"},
      {"...,...", {2, 3}, {3}, "ab", "b", "ab"},
      // Ellipses that broadcast, stand last, or are summed over.
      {"...ij,...jk->...ik", {2, 1, 3, 4}, {5, 4, 2}, "abij", "bjk", "abik"},
      {"i...,j...->...ij", {2, 3}, {4, 3}, "ia", "ja", "aij"},
      {"...ij,jk->ik...", {2, 3, 4}, {4, 2}, "aij", "jk", "ika"},
      {"ab...,b...->a...", {2, 3, 4}, {3, 4}, "abx", "bx", "ax"},
      {"...i,i->", {2, 3}, {3}, "ai", "i", ""},
      {"ij,jk->...ik", {2, 3}, {3, 4}, "ij", "jk", "ik"},
      // Spaces; letters that repeat; letters that are summed over.
      {" i j , j k -> k i ", {2, 3}, {3, 4}, "ij", "jk", "ki"},
      {"ii,ij->j", {3, 3}, {3, 4}, "ii", "ij", "j"},
      {"iij,jk->ik", {2, 2, 3}, {3, 4}, "iij", "jk", "ik"},
      {"ijj,jk->jk", {2, 3, 3}, {3, 4}, "ijj", "jk", "jk"},
      {"iii,i->i", {3, 3, 3}, {3}, "iii", "i", "i"},
      {"jij,kk->ki", {2, 3, 2}, {4, 4}, "jij", "kk", "ki"},
      {"ij,kl->il", {2, 3}, {4, 5}, "ij", "kl", "il"},
      {"ij,kl->", {2, 3}, {4, 5}, "ij", "kl", ""},
      // Vectors and scalars.
      {"i,i->", {5}, {5}, "i", "i", ""},
      {"i,j->ji", {2}, {3}, "i", "j", "ji"},
      {",ij->ji", {}, {2, 3}, "", "ij", "ji"},
      {"ij,->ij", {2, 3}, {}, "ij", "", "ij"},
      // Common axes of the result, wherever they lie.
      {"bij,bjk->bik", {2, 3, 4}, {2, 4, 2}, "bij", "bjk", "bik"},
      {"ijb,jbk->kbi", {3, 4, 2}, {4, 2, 2}, "ijb", "jbk", "kbi"},
      {"bci,cbi->cb", {2, 3, 4}, {3, 2, 4}, "bci", "cbi", "cb"},
      {"ij,ij->ij", {2, 3}, {2, 3}, "ij", "ij", "ij"},
      {"abc,cba->b", {2, 3, 4}, {4, 3, 2}, "abc", "cba", "b"},
      // Sizes 1 and 0.
      {"ij,jk->ik", {2, 1}, {3, 4}, "ij", "jk", "ik"},
      {"ij,ij->j", {3, 4}, {1, 4}, "ij", "ij", "j"},
      {"ij,ij->ij", {3, 1}, {1, 4}, "ij", "ij", "ij"},
      {"ij,jk->ik", {2, 1}, {1, 4}, "ij", "jk", "ik"},
      {"ij,jk->ik", {2, 0}, {0, 4}, "ij", "jk", "ik"},
  };
  return all;
}

Tensor wide_integers(const Shape& shape, std::uint32_t seed) {
  return integers(shape, seed, DType::f64);
}

// The sum over all letters of products, from its definition.
Tensor by_definition(const Case& c, const std::vector<double>& lhs,
                     const std::vector<double>& rhs) {
  std::map<char, std::size_t> sizes;
  const auto note = [&](const std::string& letters, const Shape& shape) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      std::size_t& size = sizes.emplace(letters[i], 1).first->second;
      if (shape[i] != 1) size = shape[i];
    }
  };
  note(c.of_lhs, c.lhs);
  note(c.of_rhs, c.rhs);
  Shape shape;
  for (const char letter : c.of_result) shape.push_back(sizes.at(letter));
  Tensor result = Tensor::zeros(DType::f64, shape);
  const auto to = result.mutable_values<double>();
  std::map<char, std::size_t> index;
  for (const auto& [letter, size] : sizes) index[letter] = 0;
  const auto at = [&](const std::string& letters, const Shape& of) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      offset = offset * of[i] + (of[i] == 1 ? 0 : index[letters[i]]);
    }
    return offset;
  };
  std::size_t count = 1;
  for (const auto& [letter, size] : sizes) count *= size;
  for (std::size_t n = 0; n < count; ++n) {
    std::size_t rest = n;
    for (auto& [letter, i] : index) {
      i = rest % sizes[letter];
      rest /= sizes[letter];
    }
    to[at(c.of_result, shape)] += lhs[at(c.of_lhs, c.lhs)] * rhs[at(c.of_rhs, c.rhs)];
  }
  return result;
}

TEST(Einsum, IsTheSumOverAllLetters) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.equation);
    const Tensor lhs = wide_integers(c.lhs, 1), rhs = wide_integers(c.rhs, 2);
    const Tensor expected = by_definition(c, doubles(lhs), doubles(rhs));
    EXPECT_TRUE(same_bits(einsum(c.equation, lhs, rhs).value(), expected));
    const Tensor narrow =
        einsum(c.equation, lhs.astype(DType::f32), rhs.astype(DType::f32)).value();
    EXPECT_TRUE(same_bits(narrow, expected.astype(DType::f32)));
    EXPECT_EQ(einsum_shapes(c.equation, c.lhs, c.rhs).result, expected.shape());
  }
}

// Products of integers are linear in each operand: differences over a step of 1 are exact.
TEST(Einsum, GradientsAreCentralDifferences) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.equation);
    const Tensor lhs = wide_integers(c.lhs, 3), rhs = wide_integers(c.rhs, 4);
    const Tensor g = wide_integers(einsum_shapes(c.equation, c.lhs, c.rhs).result, 5);
    const auto loss = [&](const std::vector<double>& x, const std::vector<double>& y) {
      const std::vector<double> result = doubles(by_definition(c, x, y));
      return std::inner_product(result.begin(), result.end(), g.values<double>().begin(), 0.0);
    };
    const std::vector<Tensor> inputs = {lhs, rhs};
    const ValueAndVjp got = value_and_vjp(
        [&](std::span<const Variable> x) { return einsum(c.equation, x[0], x[1]); }, inputs, g);
    for (std::size_t operand = 0; operand < 2; ++operand) {
      std::vector<double> expected;
      for (std::size_t i = 0; i < inputs[operand].size(); ++i) {
        std::vector<std::vector<double>> up = {doubles(lhs), doubles(rhs)}, down = up;
        up[operand][i] += 1;
        down[operand][i] -= 1;
        expected.push_back((loss(up[0], up[1]) - loss(down[0], down[1])) / 2);
      }
      EXPECT_EQ(got.grads[operand].shape(), inputs[operand].shape());
      EXPECT_EQ(doubles(got.grads[operand]), expected) << "operand " << operand;
    }
  }
}

TEST(Einsum, TheInnerProductAlwaysHasLhsFirst) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.equation);
    int calls = 0;
    const auto inner = [&](const Variable& a, const Variable& b, const DotDimensionNumbers& dims) {
      ++calls;
      EXPECT_EQ(a.dtype(), DType::f32);
      EXPECT_EQ(b.dtype(), DType::bf16);
      return dot_general(a, b, dims);
    };
    einsum(c.equation, integers(c.lhs, 1, DType::f32), integers(c.rhs, 2, DType::bf16), inner);
    EXPECT_EQ(calls, 1);
  }
}

TEST(Einsum, WhatIsSummedOrRepeatedIsReducedBeforeTheProduct) {
  const auto inner = [](const Variable& a, const Variable& b, const DotDimensionNumbers& dims) {
    EXPECT_EQ(a.shape(), (Shape{2}));     // the diagonal of iij, summed over j
    EXPECT_EQ(b.shape(), (Shape{2, 4}));  // summed over l
    return dot_general(a, b, dims);
  };
  einsum("iij,ikl->ik", wide_integers({2, 2, 3}, 1), wide_integers({2, 4, 5}, 2), inner);
}

TEST(Einsum, ShapesOfABias) {
  const EinsumShapes shapes = einsum_shapes("abc,cde->...dabe", {2, 3, 4}, {4, 5, 6});
  EXPECT_EQ(shapes.result, (Shape{5, 2, 3, 6}));
  EXPECT_EQ(shapes.result_of_rhs, (Shape{5, 1, 1, 6}));
  EXPECT_EQ(shapes.rhs_in_result, (Shape{5, 6}));
}

TEST(Einsum, RefusalsSayWhatIsWrongWhere) {
  struct Refused {
    const char* equation;
    Shape lhs, rhs;
    const char* message;
  };
  const std::vector<Refused> refused = {
      {"ij", {2, 3}, {3}, "einsum: given \"ij\" of 1 operand, expected two"},
      {"i,j,k->", {2}, {3}, "einsum: given \"i,j,k->\" of 3 operands, expected two"},
      {"i1,j->j", {2, 2}, {3}, "with '1' at offset 1, expected letters"},
      {"i..j,j->i", {2, 2}, {2}, "with '.' at offset 1, expected \"...\" once in an operand"},
      {"...i...,i->", {2, 2}, {2}, "with '.' at offset 4, expected \"...\" once in an operand"},
      {"ij,jk-ik", {2, 3}, {3, 4}, "with '-' at offset 5"},
      {"ij,jk->ik->ki", {2, 3}, {3, 4}, "with '-' at offset 9"},
      {"ij,jk->i,k", {2, 3}, {3, 4}, "with ',' at offset 8"},
      {"ij,jk->ii", {2, 3}, {3, 4}, "with 'i' twice in the result, expected it once"},
      {"ij,jk->iz", {2, 3}, {3, 4}, "with 'z' in the result, expected letters of the operands"},
      {"ij,jk->ik", {2}, {3, 4}, "for lhs [2], expected 2 axes there"},
      {"ij,jk->ik", {2, 3, 4}, {4, 4}, "for lhs [2, 3, 4], expected 2 axes there"},
      {"i,...jk->ik", {2}, {3}, "for rhs [3], expected at least 2 axes there"},
      {"ij,jk->ik", {2, 3}, {4, 5}, "for lhs [2, 3] and rhs [4, 5], expected one size for 'j'"},
      {"ii,j->j", {2, 1}, {4}, "expected one size for 'i'"},
      {"...i,...i->...", {2, 3}, {4, 3}, "expected one size for axis -1 of \"...\""},
  };
  for (const Refused& c : refused) {
    SCOPED_TRACE(c.equation);
    try {
      einsum(c.equation, wide_integers(c.lhs, 1), wide_integers(c.rhs, 2));
      ADD_FAILURE() << "was not refused";
    } catch (const ContractError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(c.message));
    }
  }
}

TEST(Diagonal, Refusals) {
  EXPECT_THROW(diagonal(wide_integers({2, 3}, 1), 0, 1), ContractError);
  EXPECT_THROW(diagonal(wide_integers({2, 2}, 1), 1, 1), ContractError);
  EXPECT_THROW(diagonal(wide_integers({2, 2}, 1), 0, 2), ContractError);
}

}  // namespace
}  // namespace octavo
