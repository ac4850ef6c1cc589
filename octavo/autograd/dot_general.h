// Products: ops::dot_general with its gradients.
#pragma once

#include "octavo/autograd/variable.h"
#include "octavo/ops/dot_general.h"

namespace octavo {

// Axes of the two operands, pairwise: those that are summed over, and those of the batch.
using ops::DotDimensionNumbers;

// jax.lax.dot_general: shapes, types and errors of ops::dot_general. Gradients have the operands'
// shapes and types; codes of FP8 have none.
Variable dot_general(const Variable& lhs, const Variable& rhs, const DotDimensionNumbers& dims,
                     std::optional<DType> preferred_element_type = {});

// (..., K) x (K, N) to (..., N), the type as of dot_general without a preferred one.
// ContractError: another K, lhs of rank 0.
Variable matmul(const Variable& lhs, const Variable& rhs);

// What multiplies inside an einsum or a layer.
using DotGeneral = std::function<Variable(const Variable& lhs, const Variable& rhs,
                                          const DotDimensionNumbers& dims)>;

}  // namespace octavo
