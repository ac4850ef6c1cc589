// Normalizations of the last axis: Flax's RMSNorm and LayerNorm.
#pragma once

#include <optional>

#include "octavo/nn/scope.h"

namespace octavo::nn {

// x / sqrt(mean(x^2) + epsilon) * scale. x: (..., n). Parameter: scale (n). (Zhang and Sennrich,
// 2019.) ContractError: x of rank 0 or without elements along the axis; as compute_type.
struct RMSNorm {
  double epsilon = 1e-6;
  bool use_scale = true;
  std::optional<DType> dtype = {};  // of the result; none: what x and the parameters promote to
  DType param_dtype = DType::f32;
  Initializer scale_init = ones();

  Variable operator()(const Scope& scope, const Variable& x) const;

  Variables init(const Rng& rng, const Variable& x) const { return nn::init(*this, rng, x); }
  Variable apply(const Variables& variables, const Variable& x) const {
    return nn::apply(*this, variables, x);
  }
};

// (x - mean) / sqrt(variance + epsilon) * scale + bias, likewise. Parameters: scale (n), bias (n).
// The variance is the mean of (x - mean)^2: Flax's, unless told otherwise, is mean(x^2) - mean^2,
// which cancels. (Ba et al., 2016.) ContractError: as RMSNorm.
struct LayerNorm {
  double epsilon = 1e-6;
  bool use_bias = true, use_scale = true;
  std::optional<DType> dtype = {};
  DType param_dtype = DType::f32;
  Initializer bias_init = zeros(), scale_init = ones();

  Variable operator()(const Scope& scope, const Variable& x) const;

  Variables init(const Rng& rng, const Variable& x) const { return nn::init(*this, rng, x); }
  Variable apply(const Variables& variables, const Variable& x) const {
    return nn::apply(*this, variables, x);
  }
};

}  // namespace octavo::nn
