// Products: ops::dot_general with its gradients.
#pragma once

#include "octavo/autograd/variable.h"
#include "octavo/ops/dot_general.h"

namespace octavo {

using ops::DotDimensionNumbers;

Variable dot_general(const Variable& lhs, const Variable& rhs, const DotDimensionNumbers& dims,
                     std::optional<DType> preferred_element_type = {});

// (..., K) x (K, N)
Variable matmul(const Variable& lhs, const Variable& rhs);

// What multiplies inside an einsum or a layer.
using DotGeneral = std::function<Variable(const Variable& lhs, const Variable& rhs,
                                          const DotDimensionNumbers& dims)>;

}  // namespace octavo
