// Dense over any axes: Flax's DenseGeneral.
#pragma once

#include <optional>
#include <vector>

#include "octavo/nn/dot_general_cls.h"

namespace octavo::nn {

// Contracts the axes `axis` of x, in ascending order, with the kernel: x (batch..., free...), its
// contracted axes anywhere behind the batch, gives (batch..., free..., features...). Parameters:
// kernel (batch..., contracted..., features...), bias (batch..., features...). Initial values are
// those of a matrix (batch * contracted, features) and of a vector.
// ContractError: axes that x lacks, or twice; batch_dims other than 0, 1, ...; no features, or of
// more than 2^63 elements; as compute_type and Scope::param.
struct DenseGeneral {
  std::vector<std::size_t> features;
  std::vector<int> axis = {-1};
  std::vector<std::size_t> batch_dims = {};
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
