// What tests of rules share.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "octavo/autograd/value_and_grad.h"
#include "octavo/base/error.h"
#include "octavo/tensor/tensor_testing.h"

namespace octavo::testing {

// Odd multiples of 2^-10 between -2 and 2: none is 0, steps of 2^-12 and 2^-13 from them are exact,
// and all of it in f32 too.
inline Tensor grid(std::mt19937& random, const Shape& shape, DType dtype = DType::f64) {
  std::vector<float> values(*element_count(shape));
  for (float& v : values) {
    v = static_cast<float>(2 * static_cast<int>(random() % 2048) - 2047) / 1024.0f;
  }
  return Tensor::from(values, shape, dtype);
}

// Small integers: sums of their products are exact in f32 in any order.
inline Tensor integers(std::mt19937& random, const Shape& shape, DType dtype = DType::f32) {
  std::vector<float> values(*element_count(shape));
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 9) - 4);
  return Tensor::from(values, shape, dtype);
}

// x with `step` added to one element.
inline Tensor moved(const Tensor& x, std::size_t element, double step) {
  Tensor result(DType::f64, x.shape());
  std::ranges::copy(x.values<double>(), result.mutable_values<double>().begin());
  result.mutable_values<double>()[element] += step;
  return result;
}

// sum(cotangent * f(inputs)), and the sum of |cotangent| * (1 + |f|).
struct Weighted {
  double value = 0, magnitude = 0;
};

inline Weighted weighted(const VariableFunction& f, std::span<const Tensor> inputs,
                         const Tensor& cotangent) {
  const std::vector<Variable> variables(inputs.begin(), inputs.end());
  const std::vector<double> values = doubles(f(variables).value()), weights = doubles(cotangent);
  Weighted result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    result.value += weights[i] * values[i];
    result.magnitude += std::fabs(weights[i]) * (1 + std::fabs(values[i]));
  }
  return result;
}

// Where the gradients of f by its f64 inputs are not its central differences; "" if they are.
//
// With D(h) = (f(x + h) - f(x - h)) / 2h the error of D(h) is h^2 f'''/6 + O(h^4), a third of what
// D(2h) differs from it; that difference is the bound, for the terms of higher order too. To it
// comes what was rounded: an output sums over an input at most, with fewer than 16 roundings before
// and after, each of an epsilon of values whose size is `magnitude`, and it is divided by 2h.
inline std::string gradient_difference(const VariableFunction& f, std::span<const Tensor> inputs,
                                       std::mt19937& random) {
  constexpr double kStep = 0x1p-13;
  const std::vector<Variable> constants(inputs.begin(), inputs.end());
  const Tensor value = f(constants).value();
  const Tensor cotangent = grid(random, value.shape(), value.dtype());
  const ValueAndVjp result = value_and_vjp(f, inputs, cotangent);
  std::size_t longest = 0;
  for (const Tensor& input : inputs) longest = std::max(longest, input.size());

  std::vector<Tensor> at(inputs.begin(), inputs.end());
  for (std::size_t input = 0; input < inputs.size(); ++input) {
    if (inputs[input].dtype() != DType::f64) continue;
    const std::vector<double> gradient = doubles(result.grads[input]);
    for (std::size_t i = 0; i < inputs[input].size(); ++i) {
      double magnitude = 0;
      const auto central = [&](double step) {
        at[input] = moved(inputs[input], i, step);
        const Weighted above = weighted(f, at, cotangent);
        at[input] = moved(inputs[input], i, -step);
        const Weighted below = weighted(f, at, cotangent);
        magnitude = std::max(above.magnitude, below.magnitude);
        return (above.value - below.value) / (2 * step);
      };
      const double wide = central(2 * kStep), difference = central(kStep);
      const double rounded = static_cast<double>(longest + 16) *
                             std::numeric_limits<double>::epsilon() * magnitude / kStep;
      const double bound = std::fabs(difference - wide) + rounded;
      if (std::fabs(gradient[i] - difference) <= bound) continue;
      return fmt::format("input {} element {}: gradient {}, central difference {}, bound {}", input,
                         i, gradient[i], difference, bound);
    }
    at[input] = inputs[input];
  }
  return "";
}

// Runs `call` and returns what the ContractError says, or "".
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const ContractError& error) {
    return error.what();
  }
  return "";
}

inline void expect_bits(const Tensor& got, const Tensor& expected) {
  EXPECT_TRUE(same_bits(got, expected)) << fmt::format(
      "{} of {}, expected {} of {}", fmt::join(doubles(got), ", "), to_string(got.shape()),
      fmt::join(doubles(expected), ", "), to_string(expected.shape()));
}

}  // namespace octavo::testing
