// What tests of tensors, and of all that computes with them, share.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/tensor/tensor.h"

namespace octavo {

// Row-major, of any type that astype takes.
inline std::vector<double> doubles(const Tensor& x) {
  const Tensor wide = x.astype(DType::f64);
  return {wide.values<double>().begin(), wide.values<double>().end()};
}

// From -3 to 4: sums of their products are exact in f32 in any order.
inline Tensor integers(const Shape& shape, std::uint32_t seed, DType dtype = DType::f32) {
  std::vector<float> values(*element_count(shape));
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 16 & 7u) - 3.0f;
  }
  return Tensor::from(values, shape, dtype);
}

}  // namespace octavo
