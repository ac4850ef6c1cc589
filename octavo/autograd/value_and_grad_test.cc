#include "octavo/autograd/value_and_grad.h"

#include "octavo/autograd/autograd_testing.h"
#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/shape.h"

namespace octavo::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Variables some_variables() {
  return {{"params/a", Tensor::from({1, 2, 3}, {3})},
          {"params/unused", Tensor::from({5}, {1})},
          {"batch_stats/ids", Tensor::from_ids(std::vector{1, 2}, {2})},
          {"_overwrite_with_gradient/scale", Tensor::from({0.5f}, {1})}};
}

Variable squares(const Variables& v) { return sum(v.at("params/a") * v.at("params/a")); }

TEST(ValueAndGrad, OfEachFloatingPointVariable) {
  const ValueAndGrad result = value_and_grad(squares)(some_variables());
  EXPECT_EQ(result.value.item(), 14);
  EXPECT_EQ(result.grads.size(), 2u);  // ids have none, nor does state that nothing used
  expect_bits(result.grads.value("params/a"), Tensor::from({2, 4, 6}, {3}));
  for (const auto& [path, gradient] : result.grads) EXPECT_FALSE(gradient.is_recorded());
}

TEST(ValueAndGrad, OfUnusedVariablesIsZeroAndUnusedStateIsLeftOut) {
  const ValueAndGrad result = value_and_grad(squares)(some_variables());
  expect_bits(result.grads.value("params/unused"), Tensor::zeros(DType::f32, {1}));
  EXPECT_FALSE(result.grads.contains("_overwrite_with_gradient/scale"));
}

TEST(ValueAndGrad, OfUnusedStateIsZeroOrMinusInfinityInFlax) {
  Variables variables = some_variables();
  variables.set("_overwrite_with_gradient/max",
                with_accumulation(Tensor::from({0.5f}, {1}), Accumulation::maximum));
  const ValueAndGrad result = value_and_grad(squares, Fp8Semantics::flax_exact)(variables);
  expect_bits(result.grads.value("_overwrite_with_gradient/scale"), Tensor::zeros(DType::f32, {1}));
  EXPECT_EQ(result.grads.value("_overwrite_with_gradient/max").item(), -kInfinity);
}

TEST(ValueAndGrad, RefusesWhatIsNoScalar) {
  const auto message = [](const LossFunction& f) {
    return refusal([&] { value_and_grad(f)(some_variables()); });
  };
  EXPECT_EQ(message([](const Variables& v) { return v.at("params/a"); }),
            "value_and_grad: given a function whose value is [3] of F32, expected a floating-point "
            "scalar");
  EXPECT_EQ(message([](const Variables&) { return Tensor::from_ids(std::vector{1}, {}); }),
            "value_and_grad: given a function whose value is [] of I32, expected a floating-point "
            "scalar");
}

TEST(ValueAndGrad, OfAConstantIsZero) {
  const auto result =
      value_and_grad([](const Variables&) { return Tensor::scalar(3); })(some_variables());
  EXPECT_EQ(result.value.item(), 3);
  expect_bits(result.grads.value("params/a"), Tensor::zeros(DType::f32, {3}));
}

TEST(ValueAndGrad, LeavesNoTapeBehindWhenTheFunctionThrows) {
  Variable leaked;
  const auto f = [&](const Variables& v) -> Variable {
    leaked = v.at("params/a") * v.at("params/a");
    throw std::runtime_error("f");
  };
  EXPECT_THROW(value_and_grad(f)(some_variables()), std::runtime_error);
  EXPECT_NE(refusal([&] { leaked + leaked; }), "");
}

TEST(ValueAndGrad, NestsInside) {
  // The inner one treats what the outer one differentiates as a value, unless it differentiates it
  // too: f(a) = sum(a * stop(2 a)).
  const auto result = value_and_grad([](const Variables& v) {
    const ValueAndGrad inner = value_and_grad(squares)(v);
    return sum(v.at("params/a") * inner.grads.at("params/a"));
  })(some_variables());
  EXPECT_EQ(result.value.item(), 28);
  expect_bits(result.grads.value("params/a"), Tensor::from({2, 4, 6}, {3}));
}

TEST(ValueAndGradWithAux, GivesBoth) {
  const auto of_values = value_and_grad_with_aux_at(
      [](const Variables& v) { return std::pair(squares(v), 7); }, some_variables());
  EXPECT_EQ(of_values.value.item(), 14);
  EXPECT_EQ(of_values.aux, 7);
  expect_bits(of_values.grads.value("params/a"), Tensor::from({2, 4, 6}, {3}));

  const auto of_variables = value_and_grad_with_aux_at(
      [](const Variables& v) {
        return std::pair(squares(v), Variables{{"batch_stats/a", scale(v.at("params/a"), 2)}});
      },
      some_variables());
  const Variable& aux = of_variables.aux.at("batch_stats/a");
  EXPECT_FALSE(aux.is_recorded());
  expect_bits(aux.value(), Tensor::from({2, 4, 6}, {3}));
}

TEST(ValueAndVjp, RefusesAnotherCotangent) {
  EXPECT_EQ(refusal([] {
              value_and_vjp([](std::span<const Variable> in) { return in[0]; },
                            std::vector{Tensor::ones(DType::f32, {2})},
                            Tensor::ones(DType::f32, {3}));
            }),
            "value_and_vjp: given a cotangent [3] of F32, expected [2] of F32");
}

}  // namespace
}  // namespace octavo::testing
