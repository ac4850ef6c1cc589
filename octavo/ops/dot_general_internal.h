// What the products of tensors, plain and in FP8, have in common.
#pragma once

#include <utility>

#include "octavo/ops/gemm.h"
#include "octavo/tensor/tensor.h"

namespace octavo::ops {

// What kernels write for results of that type.
inline DType stored_type(DType type) { return type == DType::bf16 ? DType::bf16 : DType::f32; }

// Results of products of one size, matrix after matrix.
class DotResults {
 public:
  DotResults(DType type, Shape shape, std::size_t rows, std::size_t cols)
      : tensor_(type, std::move(shape)), rows_(rows), cols_(cols) {}

  Output matrix(std::size_t batch) {
    const std::size_t element = static_cast<std::size_t>(dtype_bits(tensor_.dtype())) / 8;
    auto* data = static_cast<std::byte*>(tensor_.mutable_data());
    return {*dtype_info(tensor_.dtype()).format, data + batch * rows_ * cols_ * element, cols_};
  }
  Tensor tensor() const { return tensor_; }

 private:
  Tensor tensor_;
  std::size_t rows_, cols_;
};

}  // namespace octavo::ops
