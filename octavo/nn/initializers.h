// Initial values of parameters, as jax.nn.initializers: f32, cast to the parameter's type.
#pragma once

#include <functional>

#include "octavo/autograd/random.h"

namespace octavo::nn {

// `fan_in`: how many inputs one output sums; `fan_out`: how many outputs one input reaches.
using Initializer = std::function<Tensor(const Rng& rng, const Shape& shape, DType dtype)>;

// The same everywhere; normal(0, deviation^2).
Initializer zeros();
Initializer ones();
Initializer constant(double value);
Initializer normal(double deviation = 0.01);

// Tables (n, features): normal of variance 1 / features. ContractError: rank 0.
Initializer embedding_normal();

// Kernels (..., in, out); axes before these two multiply both fans. (LeCun et al., 1998; He et al.,
// 2015; Glorot and Bengio, 2010.)
Initializer lecun_normal();    // truncated normal of variance 1 / fan_in
Initializer he_normal();       // 2 / fan_in
Initializer glorot_uniform();  // uniform, variance 2 / (fan_in + fan_out)

}  // namespace octavo::nn
