// Operations that move elements, and sums over axes: jax.numpy's. Types are kept: f32, bf16, f16 or
// f64, for reshape and transpose any. ContractError: another type, or as each says.
#pragma once

#include "octavo/autograd/variable.h"
#include "octavo/ops/dot_general.h"

namespace octavo {

// The same elements, row-major, in another shape; axes in another order; repeated along axes.
// ContractError: another count; no permutation; shapes that do not broadcast.
Variable reshape(const Variable& x, Shape shape);
Variable transpose(const Variable& x, const ops::Axes& order);  // axis i is axis order[i] of x
Variable broadcast_to(const Variable& x, const Shape& shape);   // numpy's rules

// Sums over the given axes, which disappear; over all. What lies together is summed in 16 lanes
// (element i in lane i % 16), such runs in their order. mean: the sum, divided by the count.
// ContractError: an axis that is not there, or twice.
Variable sum(const Variable& x, const ops::Axes& axes);
Variable sum(const Variable& x);
Variable mean(const Variable& x, const ops::Axes& axes);
Variable mean(const Variable& x);
// The largest over the given axes, NaN if one is NaN; where several are, the gradient is shared
// equally, as in JAX. ContractError: an axis that is not there, or twice.
Variable max(const Variable& x, const ops::Axes& axes);

}  // namespace octavo
