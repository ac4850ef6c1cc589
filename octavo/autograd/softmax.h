// Softmax and its logarithm along one axis, which may be any and counts from the end if negative.
// x: f32, bf16, f16 or f64, as the result; computed in f32 (f64 in f64) and rounded once, sums in
// the lanes of sum(). NaN in x makes the whole line NaN, as does a line of -infinity alone.
// ContractError: an axis that is not there.
#pragma once

#include "octavo/autograd/variable.h"

namespace octavo {

// exp(x - max) / sum(exp(x - max)): jax.nn.softmax.
Variable softmax(const Variable& x, int axis = -1);

// x - max - log(sum(exp(x - max))): jax.nn.log_softmax.
Variable log_softmax(const Variable& x, int axis = -1);

// Softmax along the last axis over those elements whose mask is not 0; 0 at all others, so that a
// line without any is 0 (jax.nn.softmax with `where`). mask: u8, broadcasts to x.
// ContractError: another type, shapes that do not broadcast to x's.
Variable masked_softmax(const Variable& x, const Tensor& mask);

}  // namespace octavo
