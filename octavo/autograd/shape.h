// Operations that move elements.
#pragma once

#include "octavo/autograd/variable.h"
#include "octavo/ops/dot_general.h"

namespace octavo {

Variable reshape(const Variable& x, Shape shape);
Variable transpose(const Variable& x, const ops::Axes& order);  // axis i is axis order[i] of x
Variable broadcast_to(const Variable& x, const Shape& shape);   // numpy's rules

// Sums over the given axes, which disappear; over all. What lies together is summed in 16 lanes
// (element i in lane i % 16), such runs in their order.
Variable sum(const Variable& x, const ops::Axes& axes);
Variable sum(const Variable& x);
Variable mean(const Variable& x, const ops::Axes& axes);
Variable mean(const Variable& x);
// The largest; where several are, the gradient is shared equally, as in JAX.
Variable max(const Variable& x, const ops::Axes& axes);

}  // namespace octavo
