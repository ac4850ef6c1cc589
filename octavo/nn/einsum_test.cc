#include "octavo/nn/einsum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/nn/layers_testing.h"

namespace octavo::nn {
namespace {

using Shapes = std::map<std::string, Shape>;

TEST(EinsumLayer, ShapesAndValues) {
  const Einsum layer{.shape = {4, 5, 6},
                     .equation = "abc,cde->...dabe",
                     .kernel_init = integer_init(1),
                     .bias_init = integer_init(2)};
  const Tensor x = integers({2, 3, 4}, 3);
  const Variables variables = layer.init(Rng(0), x);
  EXPECT_EQ(shapes_of(variables), (Shapes{{"params/kernel", {4, 5, 6}}, {"params/bias", {5, 6}}}));
  const Tensor y = layer.apply(variables, x).value();
  ASSERT_EQ(y.shape(), (Shape{5, 2, 3, 6}));
  const auto in = doubles(x), kernel = doubles(variables.value("params/kernel")),
             bias = doubles(variables.value("params/bias")), got = doubles(y);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const Shape at = unravel(i, y.shape());  // d, a, b, e
    double expected = bias[at[0] * 6 + at[3]];
    for (std::size_t c = 0; c < 4; ++c) {
      expected += in[(at[1] * 3 + at[2]) * 4 + c] * kernel[(c * 5 + at[0]) * 6 + at[3]];
    }
    EXPECT_EQ(got[i], expected);
  }
}

TEST(EinsumLayer, GradientsAreCentralDifferences) {
  const Einsum layer{.shape = {4, 2, 3},
                     .equation = "abc,cde->dabe",
                     .param_dtype = DType::f64,
                     .kernel_init = integer_init(1),
                     .bias_init = integer_init(2)};
  Variables variables = layer.init(Rng(0), integers({2, 3, 4}, 3, DType::f64));
  variables.set(kX, integers({2, 3, 4}, 3, DType::f64));
  const Tensor g = integers({2, 2, 3, 3}, 4, DType::f64);
  expect_gradients([&](const Variables& v) { return dot_with(layer.apply(v, v.at(kX)), g); },
                   variables);
}

TEST(EinsumLayer, WithoutBiasAndWithFp8) {
  const Einsum layer{
      .shape = {4, 5}, .equation = "...k,kn->...n", .use_bias = false, .einsum_cls = Fp8Einsum{}};
  Shapes expected = fp8_shapes("Fp8Einsum_0/");
  expected["params/kernel"] = {4, 5};
  EXPECT_EQ(shapes_of(layer.init(Rng(0), Tensor::ones(DType::f32, {2, 4}))), expected);
}

TEST(EinsumLayer, ComputesInItsTypeAndKeepsParametersInTheirs) {
  const Einsum layer{.shape = {4, 5}, .equation = "ik,kn->in", .dtype = DType::bf16};
  const Tensor x = Tensor::ones(DType::f32, {2, 4});
  const Variables variables = layer.init(Rng(0), x);
  EXPECT_EQ(variables.at("params/kernel").dtype(), DType::f32);
  EXPECT_EQ(variables.at("params/bias").dtype(), DType::f32);
  EXPECT_EQ(layer.apply(variables, x).dtype(), DType::bf16);
  EXPECT_THROW(
      (Einsum{.shape = {4, 5}, .equation = "ik,kn->in", .dtype = DType::i32}.init(Rng(0), x)),
      ContractError);
}

TEST(EinsumLayer, RefusesAnImplicitResult) {
  EXPECT_THROW(
      (Einsum{.shape = {3, 4}, .equation = "ij,jk"}.init(Rng(0), Tensor::ones(DType::f32, {2, 3}))),
      ContractError);
}

TEST(Fp8Einsum, InitialState) {
  const Variables variables = Fp8Einsum{}.init(
      Rng(0), "mk,kn->mn", Tensor::ones(DType::f32, {2, 3}), Tensor::ones(DType::f32, {3, 4}));
  EXPECT_EQ(shapes_of(variables), fp8_shapes(""));
  for (const auto& [path, variable] : variables) {
    EXPECT_EQ(variable.dtype(), DType::f32);
    for (const double value : doubles(variable.value())) {
      EXPECT_EQ(value, path.ends_with("scale") ? 1 : 0) << path;
    }
  }
}

// With scale 1 and values that the formats hold, quantization is the identity: what remains is the
// order of sums (Flax's own test, at the tolerances that accumulation in f32 must meet).
TEST(Fp8Einsum, FirstStepIsThePlainOne) {
  struct Case {
    const char* equation;
    Shape x, y, g;
  };
  const std::vector<Case> cases = {{"mk,kn->mn", {16, 32}, {32, 64}, {16, 64}},
                                   {"...k,nk->...n", {2, 3, 32}, {64, 32}, {2, 3, 64}},
                                   {"...k,kn->...n", {2, 3, 64}, {64, 32}, {2, 3, 32}},
                                   {"mk,kn->nm", {16, 32}, {32, 64}, {64, 16}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.equation);
    const std::vector<Rng> keys = Rng(42).split(4);
    const Tensor x = representable(normal(keys[1], c.x), DType::f8_e4m3),
                 y = representable(normal(keys[2], c.y), DType::f8_e4m3),
                 g = representable(normal(keys[3], c.g), DType::f8_e5m2);
    Variables variables = Fp8Einsum{}.init(Rng(0), c.equation, x, y);
    variables.set("inputs/x", x);
    variables.set("inputs/y", y);
    const auto loss = [&](const EinsumCls& product) {
      return [&, product](const Variables& v) {
        return dot_with(product(Scope::apply(v), c.equation, v.at("inputs/x"), v.at("inputs/y")),
                        g);
      };
    };
    const EinsumCls in_scope = [](const Scope& scope, std::string_view equation, const Variable& a,
                                  const Variable& b) {
      return Fp8Einsum{}.run(scope, equation, a, b);
    };
    const ValueAndGrad got = value_and_grad_at(loss(in_scope), variables);
    const ValueAndGrad expected = value_and_grad_at(loss(PlainEinsum{}), variables);
    double terms = 0;
    for (const double term : doubles((einsum(c.equation, x, y) * Variable(g)).value())) {
      terms += std::fabs(term);
    }
    EXPECT_LE(std::fabs(got.value.item() - expected.value.item()), 1e-5 * terms);
    for (const char* input : {"inputs/x", "inputs/y"}) {
      expect_close(got.grads.value(input), expected.grads.value(input), 1e-5, 1e-4);
    }
  }
}

// Also where JAX would call the product as (rhs, lhs).
TEST(Fp8Einsum, StateBelongsToItsOperand) {
  for (const char* equation : {"mk,kn->mn", "mk,kn->nm"}) {
    const Fp8Einsum layer{.amax_history_length = 3};
    const Tensor x = Tensor::full(DType::f32, {2, 3}, 5), y = Tensor::full(DType::f32, {3, 4}, -7);
    const Variables variables = layer.init(Rng(0), equation, x, y);
    const Variables state =
        value_and_grad_at(
            [&](const Variables& v) { return scale(sum(layer.apply(v, equation, x, y)), 2); },
            variables)
            .grads;
    const auto newest = [&](const std::string& tensor) {
      return doubles(state.value("_overwrite_with_gradient/" + tensor + "_amax_history"))[0];
    };
    EXPECT_EQ(newest("input"), 5) << equation;
    EXPECT_EQ(newest("kernel"), 7) << equation;
    EXPECT_EQ(newest("output_grad"), 2) << equation;
  }
}

TEST(Fp8Einsum, AmaxIsThatOfTheReducedOperand) {
  const Fp8Einsum layer{.amax_history_length = 2};
  const Tensor x = Tensor::full(DType::f32, {2, 3}, 5), y = Tensor::ones(DType::f32, {4});
  const Variables variables = layer.init(Rng(0), "ij,k->ik", x, y);
  const auto loss = [&](const Variables& v) { return sum(layer.apply(v, "ij,k->ik", x, y)); };
  const Variables state = value_and_grad_at(loss, variables).grads;
  EXPECT_EQ(doubles(state.value("_overwrite_with_gradient/input_amax_history"))[0], 15);
}

TEST(Fp8Einsum, TheResultHasTheKernelsType) {
  const Tensor x = Tensor::ones(DType::f32, {2, 3}), y = Tensor::ones(DType::bf16, {3, 4});
  Fp8Einsum layer;
  const Variables variables = layer.init(Rng(0), "mk,kn->mn", x, y);
  EXPECT_EQ(layer.apply(variables, "mk,kn->mn", x, y).dtype(), DType::bf16);
  // lhs is rounded to it first: 1.0625 and a little is a tie then, which goes to 1, not to 1.125.
  const Tensor near_tie = Tensor::full(DType::f32, {2, 3}, 1.0625 + 0x1p-12);
  EXPECT_EQ(doubles(layer.apply(variables, "mk,kn->mn", near_tie, y).value())[0], 3);
  layer.preferred_element_type = DType::f32;
  EXPECT_EQ(layer.apply(variables, "mk,kn->mn", x, y).dtype(), DType::f32);
}

// Flax cannot: its scales (1) do not broadcast to a scalar.
TEST(Fp8Einsum, AScalarResult) {
  const Tensor x = integers({6}, 1), y = integers({6}, 2);
  const Variables variables = Fp8Einsum{}.init(Rng(0), "i,i->", x, y);
  EXPECT_EQ(Fp8Einsum{}.apply(variables, "i,i->", x, y).value().item(),
            einsum("i,i->", x, y).value().item());
}

}  // namespace
}  // namespace octavo::nn
