// Small runs of training for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/value_and_grad.h"
#include "octavo/nn/mlp.h"
#include "octavo/train/train_state.h"

namespace octavo::testing {

inline constexpr double kUnit = 0x1p-24;  // of f32: half a unit in the last place, relative

// What n roundings come to, relative: n u / (1 - n u)   (Higham, 2002)
constexpr double relative_rounding(std::size_t n, double unit = kUnit) {
  const double units = static_cast<double>(n) * unit;
  return units / (1 - units);
}

// Of an f32 power b^count: that of b, which the power takes `count` times, and those of count - 1
// products, or of a function that errs by a unit in the last place, two of ours.
inline std::size_t power_roundings(std::size_t count) {
  return count + std::max<std::size_t>(count - 1, 2);
}

// Without signs; integers as they are.
inline Tensor magnitudes(const Tensor& x) {
  if (x.dtype() == DType::i32) return x;
  std::vector<float> values = x.to_floats();
  for (float& value : values) value = std::fabs(value);
  return Tensor::from(values, x.shape(), x.dtype());
}
inline Variables magnitudes(const Variables& variables) {
  return map_variables(variables, [](const std::string&, const Variable& variable) {
    return Variable(magnitudes(variable.value()));
  });
}

// |got - expected| <= factor * bound, element by element; NaN where NaN is expected.
inline void expect_within(const Tensor& got, const Tensor& expected, const Tensor& bound,
                          double factor, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  ASSERT_EQ(bound.shape(), expected.shape()) << what;
  EXPECT_EQ(got.dtype(), expected.dtype()) << what;
  const Tensor wide[] = {got.astype(DType::f64), expected.astype(DType::f64),
                         bound.astype(DType::f64)};
  const auto a = wide[0].values<double>(), b = wide[1].values<double>(),
             limit = wide[2].values<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    EXPECT_LE(std::fabs(a[i] - b[i]), factor * limit[i]) << what << ", element " << i;
  }
}

// With a directory of its own.
class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "octavo_train_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path file(const std::string& name) const { return directory_ / name; }

  std::filesystem::path directory_;
};

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
