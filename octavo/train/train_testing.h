// Small runs of training for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/value_and_grad.h"
#include "octavo/nn/dense.h"
#include "octavo/train/train_state.h"

namespace octavo::testing {

// Two Dense layers with relu between them, both products in FP8 unless said otherwise.
struct Mlp {
  std::size_t hidden = 8, out = 4;
  nn::DotGeneralCls dot_general_cls = nn::Fp8DotGeneral{.amax_history_length = 16};

  Variable operator()(const nn::Scope& scope, const Variable& x) const {
    const nn::Dense first{.features = hidden, .dot_general_cls = dot_general_cls};
    const nn::Dense second{.features = out, .dot_general_cls = dot_general_cls};
    return second(scope.child("Dense"), relu(first(scope.child("Dense"), x)));
  }
  Variables init(const Rng& rng, const Variable& x) const { return nn::init(*this, rng, x); }
  Variable apply(const Variables& variables, const Variable& x) const {
    return nn::apply(*this, variables, x);
  }
};

inline Tensor batch_of(std::uint64_t seed, std::size_t rows = 6, std::size_t cols = 8) {
  return normal(Rng(seed), {rows, cols});
}

// The mean of squares of the model's result.
template <class Model>
ValueAndGrad gradients(const Model& model, const Variables& variables, const Variable& x) {
  return value_and_grad([&](const Variables& v) {
    const Variable y = model.apply(v, x);
    return mean(y * y);
  })(variables);
}

inline std::string fp8_path(const std::string& layer, const std::string& name) {
  return "_overwrite_with_gradient/" + layer + "/Fp8DirectDotGeneralOp_0/" + name;
}

inline void expect_same_bits(const Variables& a, const Variables& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [path, value] : a) {
    ASSERT_TRUE(b.contains(path)) << path;
    EXPECT_TRUE(same_bits(value.value(), b.value(path))) << path;
  }
}

}  // namespace octavo::testing
