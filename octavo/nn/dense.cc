#include "octavo/nn/dense.h"

#include "octavo/base/error.h"
#include "octavo/nn/compute_type.h"

namespace octavo::nn {

Variable Dense::operator()(const Scope& scope, const Variable& x) const {
  if (x.rank() == 0) throw ContractError("Dense: given x of rank 0, expected (..., in)");
  const Variable kernel =
      scope.param("kernel", kernel_init, {x.shape().back(), features}, param_dtype);
  std::optional<Variable> bias;
  if (use_bias) bias = scope.param("bias", bias_init, {features}, param_dtype);
  const DType type = compute_type("Dense", dtype, {x.dtype(), kernel.dtype()});
  const Variable y =
      dot_general_cls(scope, cast(x, type), cast(kernel, type), ops::matmul_dims(x.rank()));
  return bias ? y + cast(*bias, type) : y;
}

}  // namespace octavo::nn
