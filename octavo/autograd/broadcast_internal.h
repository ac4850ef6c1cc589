// Sums over what broadcasting repeated, and axes counted from either end.
#pragma once

#include "octavo/tensor/broadcast.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// The sum over axes that were repeated: runs in their order, each as lane_sum.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace octavo
