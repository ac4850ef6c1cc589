#include "octavo/nn/initializers.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"

namespace octavo::nn {
namespace {

struct Fans {
  double in, out;
};

// Of a kernel (..., in, out); a vector counts as (n, 1).
Fans fans_of(const Shape& shape) {
  if (shape.empty()) return {1, 1};
  if (shape.size() == 1) return {static_cast<double>(shape[0]), 1};
  double receptive = 1;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) receptive *= static_cast<double>(shape[i]);
  return {receptive * static_cast<double>(shape[shape.size() - 2]),
          receptive * static_cast<double>(shape.back())};
}

Tensor scaled(const Tensor& values, float factor, DType dtype) {
  Tensor result(DType::f32, values.shape());
  std::ranges::transform(values.values<float>(), result.mutable_values<float>().begin(),
                         [factor](float x) { return x * factor; });
  return result.astype(dtype);
}

Initializer truncated_by_fan_in(double variance) {
  return [variance](const Rng& rng, const Shape& shape, DType dtype) {
    // The deviation of normal(0, 1) limited to two deviations.
    constexpr double kLimited = 0.87962566103423978;
    const double deviation = std::sqrt(variance / std::max(fans_of(shape).in, 1.0)) / kLimited;
    return scaled(truncated_normal(rng, shape, -2, 2), static_cast<float>(deviation), dtype);
  };
}

}  // namespace

Initializer constant(double value) {
  return [value](const Rng&, const Shape& shape, DType dtype) {
    return Tensor::full(dtype, shape, value);
  };
}

Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

Initializer normal(double deviation) {
  return [deviation](const Rng& rng, const Shape& shape, DType dtype) {
    return scaled(octavo::normal(rng, shape), static_cast<float>(deviation), dtype);
  };
}

Initializer embedding_normal() {
  return [](const Rng& rng, const Shape& shape, DType dtype) {
    if (shape.empty()) {
      throw ContractError("embedding_normal: given shape [], expected (n, features)");
    }
    return normal(std::sqrt(1 / static_cast<double>(shape.back())))(rng, shape, dtype);
  };
}

Initializer lecun_normal() { return truncated_by_fan_in(1); }
Initializer he_normal() { return truncated_by_fan_in(2); }

Initializer glorot_uniform() {
  return [](const Rng& rng, const Shape& shape, DType dtype) {
    const Fans fans = fans_of(shape);
    const auto limit = static_cast<float>(std::sqrt(6 / (fans.in + fans.out)));
    return scaled(uniform(rng, shape, -1, 1), limit, dtype);
  };
}

}  // namespace octavo::nn
