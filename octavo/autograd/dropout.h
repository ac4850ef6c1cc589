#pragma once

#include "octavo/autograd/random.h"
#include "octavo/autograd/variable.h"
#include "octavo/ops/dot_general.h"

namespace octavo {

// x / (1 - rate) where bernoulli(rng, 1 - rate) says so, 0 elsewhere: what Flax's Dropout does for
// the same key, to the bit. A rate of 0 is x itself, a rate of 1 all 0. x: f32, bf16, f16 or f64.
// Along `broadcast_axes` all elements share one draw. The result has x's shape and type.
// ContractError: a rate outside [0, 1], an axis that is not there, another type.
Variable dropout(const Variable& x, double rate, const Rng& rng,
                 const ops::Axes& broadcast_axes = {});

}  // namespace octavo
