// Fp8Einsum against Flax's for 33 equations, tests/golden/flax/make_rules.py: integers, so that all
// sums are exact and everything is equal.
#include <gtest/gtest.h>

#include "octavo/autograd/value_and_grad.h"
#include "octavo/base/error.h"
#include "octavo/nn/einsum.h"
#include "octavo/train/flax_golden_testing.h"

namespace octavo {
namespace {

using testing::FlaxGolden;

const char* const kState[] = {"input_scale",         "kernel_scale",
                              "output_grad_scale",   "input_amax_history",
                              "kernel_amax_history", "output_grad_amax_history"};

// Flax's name of a variable. Where it exchanges the operands, input_* is the state of rhs.
std::string flax_name(const std::string& name, bool is_exchanged) {
  if (is_exchanged && name.starts_with("input")) return "kernel" + name.substr(5);
  if (is_exchanged && name.starts_with("kernel")) return "input" + name.substr(6);
  return name;
}

// To the bit but for the sign of zero: sums begin at +0 here, and where nothing is summed over Flax
// has the product alone, which may be -0.
void expect_equal(const Tensor& got, const Tensor& expected, const std::string& what) {
  EXPECT_EQ(got.shape(), expected.shape()) << what;
  EXPECT_EQ(got.dtype(), expected.dtype()) << what;
  EXPECT_EQ(got.to_floats(), expected.to_floats()) << what;
}

void expect_case(const FlaxGolden& golden, const Json& c, Fp8Semantics semantics) {
  const std::string name = c.at("name"), equation = c.at("equation");
  SCOPED_TRACE(name + " " + equation);
  const nn::Fp8Einsum layer{.amax_history_length = 4, .semantics = semantics};
  // Not said of those that are reduced first: none of these is.
  const bool is_exchanged = c.at("roles_swapped").is_boolean() && c.at("roles_swapped").get<bool>();
  std::vector<Tensor> inputs = {golden.at(name + ".lhs"), golden.at(name + ".rhs")};
  EXPECT_EQ(is_exchanged_by_jax(equation, inputs[0].shape(), inputs[1].shape()), is_exchanged);
  for (const std::string state : kState) {
    inputs.push_back(golden.at(name + ".variables." + flax_name(state, is_exchanged)));
  }
  const ValueAndVjp got = value_and_vjp(
      [&](std::span<const Variable> in) {
        Variables v;
        for (std::size_t i = 0; i < std::size(kState); ++i) {
          v.set(std::string(kOverwriteWithGradient) + "/" + kState[i], in[2 + i]);
        }
        return layer.apply(v, equation, in[0], in[1]);
      },
      inputs, golden.at(name + ".g"));
  expect_equal(got.value, golden.at(name + ".out"), "out");
  expect_equal(got.grads[0], golden.at(name + ".grads.1"), "lhs");
  expect_equal(got.grads[1], golden.at(name + ".grads.2"), "rhs");
  for (std::size_t i = 0; i < std::size(kState); ++i) {
    expect_equal(got.grads[2 + i],
                 golden.at(name + ".grads.0." + flax_name(kState[i], is_exchanged)), kState[i]);
  }
}

TEST(EinsumGolden, Fp8EinsumIsFlaxsForEveryEquation) {
  const FlaxGolden golden("rules");
  int seen = 0;
  for (const Json& c : golden.cases()) {
    if (c.value("op", "") != "Fp8Einsum" || c.contains("error")) continue;
    ++seen;
    expect_case(golden, c, Fp8Semantics::flax_exact);
    // In f32 the guarded product rounds as Flax does.
    if (c.at("compute") == "f32") expect_case(golden, c, Fp8Semantics::guarded);
  }
  EXPECT_EQ(seen, 80);
}

// Of the three that Flax refuses, scalars work here; sizes that do not fit are refused.
TEST(EinsumGolden, WhatFlaxRefuses) {
  const FlaxGolden golden("rules");
  int refused = 0, scalars = 0;
  for (const Json& c : golden.cases()) {
    if (c.value("op", "") != "Fp8Einsum" || !c.contains("error")) continue;
    const std::string name = c.at("name"), equation = c.at("equation");
    const Tensor &lhs = golden.at(name + ".lhs"), &rhs = golden.at(name + ".rhs");
    try {
      const Variables variables = nn::Fp8Einsum{}.init(Rng(0), equation, lhs, rhs);
      const Tensor got = nn::Fp8Einsum{}.apply(variables, equation, lhs, rhs).value();
      EXPECT_EQ(got.rank(), 0u) << equation;
      expect_equal(got, einsum(equation, lhs, rhs).value(), equation);
      ++scalars;
    } catch (const ContractError&) {
      EXPECT_EQ(equation, "...k,...kn");
      ++refused;
    }
  }
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(scalars, 2);
}

}  // namespace
}  // namespace octavo
