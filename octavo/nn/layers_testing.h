// What the tests of layers share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/fp8.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/value_and_grad.h"
#include "octavo/nn/scope.h"
#include "octavo/tensor/tensor_testing.h"

namespace octavo::nn {

// Where the tests put what is no variable of a layer, to differentiate by it too.
inline constexpr const char* kX = "inputs/x";

inline Initializer integer_init(std::uint32_t seed) {
  return
      [seed](const Rng&, const Shape& shape, DType dtype) { return integers(shape, seed, dtype); };
}

// What a format holds of x, at scale 1.
inline Tensor representable(const Tensor& x, DType format) {
  return fp8::qdq(x, format, Tensor::ones(DType::f32, {1}));
}

inline Variable dot_with(const Variable& y, const Tensor& g) {
  return sum(y * Variable(g.astype(y.dtype())));
}

inline std::map<std::string, Shape> shapes_of(const Variables& variables) {
  std::map<std::string, Shape> shapes;
  for (const auto& [path, variable] : variables) shapes[path] = variable.shape();
  return shapes;
}

// The six variables of an FP8 product under a path of the collection.
inline std::map<std::string, Shape> fp8_shapes(const std::string& path, std::size_t length = 1024) {
  std::map<std::string, Shape> shapes;
  const std::string prefix = std::string(kOverwriteWithGradient) + "/" + path;
  for (const char* tensor : {"input", "kernel", "output_grad"}) {
    shapes[prefix + tensor + "_scale"] = {1};
    shapes[prefix + tensor + "_amax_history"] = {length};
  }
  return shapes;
}

// numpy's allclose, of all elements.
inline void expect_close(const Tensor& got, const Tensor& expected, double rtol, double atol) {
  ASSERT_EQ(got.shape(), expected.shape());
  const std::vector<double> a = doubles(got), b = doubles(expected);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_LE(std::fabs(a[i] - b[i]), atol + rtol * std::fabs(b[i])) << "element " << i;
  }
}

// How a test bounds central differences.
struct Differences {
  double step = 1;
  // Of f at f64: roundings on the way of a value, and the sum of the magnitudes that are added. 0:
  // f is linear in each variable, with integers: no error at all.
  double roundings = 0, magnitude = 0;
};

// Gradients of f against differences over `step` and half of it. What these two differ by bounds
// the truncation error of the second, which is a third of that where the term in step^2 leads.
inline void expect_gradients(const LossFunction& f, const Variables& at,
                             const Differences& differences = {}) {
  const Variables grads = value_and_grad_at(f, at).grads;
  for (const auto& [path, variable] : at) {
    if (variable.dtype() != DType::f64) continue;
    const std::vector<double> got = doubles(grads.value(path));
    const auto difference = [&](std::size_t i, double step) {
      double side[2];
      for (const int s : {0, 1}) {
        Tensor moved(DType::f64, variable.shape());
        const auto to = moved.mutable_values<double>();
        std::ranges::copy(variable.value().values<double>(), to.begin());
        to[i] += s == 0 ? step : -step;
        Variables elsewhere = at;
        elsewhere.set(path, moved);
        side[s] = f(elsewhere).value().item();
      }
      return (side[0] - side[1]) / (2 * step);
    };
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double wide = difference(i, differences.step),
                   narrow = difference(i, differences.step / 2);
      const double rounding = std::numeric_limits<double>::epsilon() * differences.roundings *
                              differences.magnitude / (differences.step / 2);
      EXPECT_LE(std::fabs(got[i] - narrow), std::fabs(wide - narrow) + rounding)
          << path << " element " << i << ", gradient " << got[i];
    }
  }
}

}  // namespace octavo::nn
