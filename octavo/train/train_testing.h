// Small runs of training for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/value_and_grad.h"
#include "octavo/nn/mlp.h"
#include "octavo/train/train_state.h"

namespace octavo::testing {

inline constexpr double kUnit = 0x1p-24;  // half a unit in the last place, relative

// What n roundings to f32 come to, relative: n u / (1 - n u)   (Higham, 2002)
inline double relative_rounding(std::size_t n) {
  const double units = static_cast<double>(n) * kUnit;
  return units / (1 - units);
}

// Two Dense layers with relu between them, both products in FP8.
inline nn::Mlp fp8_mlp(std::size_t amax_history_length = 16) {
  return {.hidden_features = 8,
          .out_features = 4,
          .activation = [](const Variable& x) { return relu(x); },
          .dot_general_cls = nn::Fp8DotGeneral{.amax_history_length = amax_history_length}};
}

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
