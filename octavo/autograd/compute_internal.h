// Rules are written once, over float and double: f64 is computed in double (to check gradients by
// central differences), f32 and bf16 in float, bf16 rounded once when it is stored.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/for_rows.h"
#include "octavo/base/larger.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// The elements of a tensor as T: its own, or converted.
template <class T>
class Values {
 public:
  explicit Values(const Tensor& tensor) {
    constexpr DType kOwn = std::is_same_v<T, float> ? DType::f32 : DType::f64;
    tensor_ = tensor.dtype() == kOwn ? tensor : tensor.astype(kOwn);
    values_ = tensor_.values<T>();
  }
  const T& operator[](std::size_t i) const { return values_[i]; }
  std::size_t size() const { return values_.size(); }
  std::span<const T> span() const { return values_; }
  const T* data() const { return values_.data(); }

 private:
  Tensor tensor_;
  std::span<const T> values_;
};

// The types that rules are written for: f32, bf16, f16 and f64.
inline bool is_differentiable(DType dtype) { return is_wide_float(dtype) || dtype == DType::f64; }

// ContractError: another type.
inline void check_differentiable(const char* operation, DType dtype) {
  if (is_differentiable(dtype)) return;
  throw ContractError(std::string(operation) + ": given elements of " +
                      std::string(dtype_name(dtype)) + ", expected F32, BF16, F16 or F64");
}

// A tensor of that type and shape, filled by body<T>(std::span<T>).
// ContractError: as check_differentiable.
template <class Body>
Tensor compute(DType dtype, const Shape& shape, const Body& body) {
  check_differentiable("compute", dtype);
  if (dtype == DType::f64) {
    Tensor to(DType::f64, shape);
    body(to.mutable_values<double>());
    return to;
  }
  Tensor to(DType::f32, shape);
  body(to.mutable_values<float>());
  return to.astype(dtype);
}

// The type that elements of `dtype` are computed in.
inline DType computed_in(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// The sum of f(i) over [0, n): element i in lane i % 16, each lane in ascending order from 0, then
// lane l joins lane l + 8, l + 4, l + 2, l + 1 (as octavo/kernels/transformer).
template <class T, class F>
T lane_sum(std::size_t n, const F& f) {
  std::array<T, 16> lanes = {};
  std::size_t i = 0;
  for (; i + lanes.size() <= n; i += lanes.size()) {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] += f(i + lane);
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += f(i);
  for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// for_rows on default_context(): body(begin, end), where `cost` elements are touched for each.
template <class Body>
void for_pieces(std::size_t count, std::size_t cost, const Body& body) {
  for_rows(default_context(), count, count * cost,
           [&](const Range& range) { body(range.begin, range.end); });
}

}  // namespace octavo
