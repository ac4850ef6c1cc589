#include "octavo/nn/norms.h"

#include "octavo/autograd/norm.h"
#include "octavo/base/error.h"
#include "octavo/nn/compute_type.h"

namespace octavo::nn {
namespace {

std::optional<Variable> parameter(const Scope& scope, const char* name, bool is_used,
                                  const Initializer& initializer, const Variable& x, DType dtype) {
  if (!is_used || x.rank() == 0) return {};  // the function refuses rank 0
  return scope.param(name, initializer, {x.shape().back()}, dtype);
}

// Integers count as f32.
Variable floating(const Variable& x) { return cast(x, compute_type("", {}, {x.dtype()})); }

}  // namespace

Variable RMSNorm::operator()(const Scope& scope, const Variable& x) const {
  const auto scale = parameter(scope, "scale", use_scale, scale_init, x, param_dtype);
  const DType type = compute_type("RMSNorm", dtype, {x.dtype(), scale ? param_dtype : x.dtype()});
  return octavo::rms_norm(floating(x), scale, {.epsilon = epsilon, .dtype = type});
}

Variable LayerNorm::operator()(const Scope& scope, const Variable& x) const {
  const auto scale = parameter(scope, "scale", use_scale, scale_init, x, param_dtype);
  const auto bias = parameter(scope, "bias", use_bias, bias_init, x, param_dtype);
  const DType type =
      compute_type("LayerNorm", dtype, {x.dtype(), scale || bias ? param_dtype : x.dtype()});
  return octavo::layer_norm(floating(x), scale, bias, {.epsilon = epsilon, .dtype = type});
}

}  // namespace octavo::nn
