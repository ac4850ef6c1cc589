// Sums over what broadcasting repeated, and axes counted from either end.
#pragma once

#include "octavo/tensor/broadcast.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// The sum over axes that were repeated: runs in their order, each as lane_sum.
Tensor sum_to(const Tensor& x, const Shape& shape);

// An axis of x; a negative one counts from the end. ContractError: one that is not there.
std::size_t axis_at(const char* operation, const Shape& shape, int axis);

}  // namespace octavo
