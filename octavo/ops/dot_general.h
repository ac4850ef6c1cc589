// Products of tensors over any axes, on the kernels of gemm, and the transposition that they need.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "octavo/ops/gemm.h"
#include "octavo/tensor/tensor.h"

namespace octavo::ops {

// Axes of a tensor by number, from 0.
using Axes = std::vector<std::size_t>;

// Which axes are summed over and which are common, pairwise (jax.lax.dot_general).
struct DotDimensionNumbers {
  Axes lhs_contracting, rhs_contracting;
  Axes lhs_batch = {}, rhs_batch = {};
  bool operator==(const DotDimensionNumbers&) const = default;
};

// (..., K) x (K, N): the last axis with the first.
DotDimensionNumbers matmul_dims(std::size_t lhs_rank);

// Axes of x in ascending order that are in neither list.
Axes free_axes(std::size_t rank, const Axes& contracting, const Axes& batch);

// Axis i of the result is axis order[i] of x. ContractError: no permutation, packed elements.
Tensor transpose(const Tensor& x, const Axes& order);

// An operand as `batch` matrices, its storage where the axes already lie so.
struct DotOperand {
  Tensor tensor;
  Axes axes;  // axis i of tensor, before its axes became three, is axes[i] of the operand
  std::size_t batch, free, contracted;
  bool free_first;  // (batch, free, contracted), else (batch, contracted, free)
};

// What dot_general multiplies, matrix by matrix.
struct DotOperands {
  DotOperand lhs, rhs;
  Shape shape;  // of the result: batch, free axes of lhs, free axes of rhs
};

// x, whose axis i is axis axes[i] of an operand, in the operand's order. ContractError: as
// transpose.
Tensor in_order_of(const Tensor& x, const Axes& axes);

// lhs free_first in any case where asked for. ContractError: axes that are not there, twice, or of
// different sizes.
DotOperands dot_operands(const Tensor& lhs, const Tensor& rhs, const DotDimensionNumbers& dims,
                         bool lhs_free_first = false);

// Matrix `batch` of an operand, free axes as rows, for gemm; no scales. ContractError: elements
// that no kernel reads.
Operand dot_matrix(const DotOperand& operand, std::size_t batch);

// jax.lax.dot_general. The result has the batch axes, then the free axes of lhs, then those of rhs.
// Operands are f32, bf16, f16, f64 or codes of 8-bit formats, which count as they are: no scale is
// applied; of two types too, save f64. Sums of f32 in order C (octavo/kernels/gemm/gemm.h), each
// result rounded once to `preferred_element_type`: f32, bf16 or f16; without it, the wider of the
// two, f32 for codes. f64 in ascending order of k. An empty sum is 0. ContractError: axes as of
// dot_operands, other types, f64 with another.
Tensor dot_general(const Tensor& lhs, const Tensor& rhs, const DotDimensionNumbers& dims,
                   std::optional<DType> preferred_element_type = {});

// Gradients of dot_general by its operands, shaped as those (Flax: dot_general_transpose_lhs,
// _rhs): `g` is the cotangent of the result. Only shapes are read of the operand itself. Types and
// errors are those of dot_general. ContractError also: a cotangent of another shape.
Tensor dot_general_transpose_lhs(const Tensor& g, const Shape& lhs, const Tensor& rhs,
                                 const DotDimensionNumbers& dims,
                                 std::optional<DType> preferred_element_type = {});
Tensor dot_general_transpose_rhs(const Tensor& g, const Tensor& lhs, const Shape& rhs,
                                 const DotDimensionNumbers& dims,
                                 std::optional<DType> preferred_element_type = {});

}  // namespace octavo::ops
