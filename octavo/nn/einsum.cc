#include "octavo/nn/einsum.h"

#include <fmt/format.h>

#include "octavo/autograd/shape.h"
#include "octavo/base/error.h"
#include "octavo/nn/compute_type.h"

namespace octavo::nn {

Variable Fp8Einsum::run(const Scope& scope, std::string_view equation, const Variable& lhs,
                        const Variable& rhs) const {
  const fp8::Fp8DotMeta meta = fp8_meta(scope, amax_history_length);
  const bool is_exact = semantics == Fp8Semantics::flax_exact;
  const fp8::Fp8DotOptions options{
      .preferred_element_type = preferred_element_type.value_or(rhs.dtype()),
      .quantize_compute_type = is_exact ? rhs.dtype() : DType::f32,
      .types = types,
      .semantics = semantics};
  return einsum(equation, cast(lhs, rhs.dtype()), rhs,
                [&](const Variable& a, const Variable& b, const DotDimensionNumbers& dims) {
                  return fp8::fp8_scaled_dot_general(a, b, dims, meta, options);
                });
}

Variables Fp8Einsum::init(const Rng& rng, std::string_view equation, const Variable& lhs,
                          const Variable& rhs) const {
  const Scope scope = Scope::init(rng);
  run(scope, equation, lhs, rhs);
  return scope.made();
}

Variable Einsum::operator()(const Scope& scope, const Variable& x) const {
  if (equation.find("->") == std::string::npos) {
    throw ContractError(
        fmt::format("Einsum: given \"{}\", expected an equation with \"->\"", equation));
  }
  const EinsumShapes shapes = einsum_shapes(equation, x.shape(), shape);
  const Variable kernel = scope.param("kernel", kernel_init, shape, param_dtype);
  std::optional<Variable> bias;
  if (use_bias) bias = scope.param("bias", bias_init, shapes.rhs_in_result, param_dtype);
  const DType type = compute_type("Einsum", dtype, {x.dtype(), kernel.dtype()});
  const Variable y = einsum_cls(scope, equation, cast(x, type), cast(kernel, type));
  return bias ? y + reshape(cast(*bias, type), shapes.result_of_rhs) : y;
}

}  // namespace octavo::nn
