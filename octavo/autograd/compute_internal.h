// Rules are written once, over float and double: f64 is computed in double (to check gradients by
// central differences), f32 and bf16 in float, bf16 rounded once when it is stored.
#pragma once

#include <span>
#include <vector>

#include "octavo/base/error.h"
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

// A tensor of that type and shape, filled by body<T>(std::span<T>).
// ContractError: other than f32, bf16 and f64.
template <class Body>
Tensor compute(DType dtype, const Shape& shape, const Body& body) {
  switch (dtype) {
    case DType::f64: {
      Tensor to(DType::f64, shape);
      body(to.mutable_values<double>());
      return to;
    }
    case DType::f32:
    case DType::bf16:
    case DType::f16: {
      Tensor to(DType::f32, shape);
      body(to.mutable_values<float>());
      return to.astype(dtype);
    }
    default:
      throw ContractError(std::string("compute: given elements of ") +
                          std::string(dtype_name(dtype)) + ", expected F32, BF16, F16 or F64");
  }
}

}  // namespace octavo
