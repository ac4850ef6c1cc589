// Elements set to 0 at random: Flax's Dropout.
#pragma once

#include "octavo/autograd/dropout.h"
#include "octavo/nn/scope.h"

namespace octavo::nn {

// Each element is 0 with probability `rate`, else x / (1 - rate); x itself where deterministic, or
// at a rate of 0. The random numbers are the scope's (apply with an Rng).
// ContractError: a rate outside [0, 1]; random numbers without an Rng.
struct Dropout {
  double rate;
  ops::Axes broadcast_dims = {};  // along these, elements share one draw

  Variable operator()(const Scope& scope, const Variable& x, bool deterministic = false) const {
    if (deterministic || rate == 0) return x;
    return dropout(x, rate, scope.make_rng(), broadcast_dims);
  }

  Variables init(const Rng& rng, const Variable& x) const { return nn::init(*this, rng, x); }
  Variable apply(const Variables& variables, const Rng& rng, const Variable& x,
                 bool deterministic = false) const {
    return nn::apply(*this, variables, rng, x, deterministic);
  }
};

}  // namespace octavo::nn
