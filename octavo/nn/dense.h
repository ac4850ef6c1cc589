// y = x W + b, W (in, features): Flax's Dense.
#pragma once

#include <optional>

#include "octavo/nn/dot_general_cls.h"

namespace octavo::nn {

// x (..., in) to (..., features). Parameters: kernel (in, features), bias (features).
// ContractError: x of rank 0; as compute_type and Scope::param.
struct Dense {
  std::size_t features;
  bool use_bias = true;
  std::optional<DType> dtype = {};  // computed in; none: what x, kernel and bias promote to
  DType param_dtype = DType::f32;
  Initializer kernel_init = lecun_normal();
  Initializer bias_init = zeros();
  DotGeneralCls dot_general_cls = PlainDotGeneral{};

  Variable operator()(const Scope& scope, const Variable& x) const;

  Variables init(const Rng& rng, const Variable& x) const { return nn::init(*this, rng, x); }
  Variable apply(const Variables& variables, const Variable& x) const {
    return nn::apply(*this, variables, x);
  }
};

}  // namespace octavo::nn
