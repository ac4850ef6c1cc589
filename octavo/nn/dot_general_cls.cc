#include "octavo/nn/dot_general_cls.h"

#include "octavo/autograd/elementwise.h"

namespace octavo::nn {

fp8::Fp8DotMeta fp8_meta(const Scope& scope, std::size_t amax_history_length) {
  const auto history = [&](const char* name) {
    return scope.variable(kOverwriteWithGradient, name,
                          Tensor::zeros(DType::f32, {amax_history_length}));
  };
  const auto scale = [&](const char* name) {
    return scope.variable(kOverwriteWithGradient, name, Tensor::ones(DType::f32, {1}));
  };
  return {.lhs_scale = scale("input_scale"),
          .rhs_scale = scale("kernel_scale"),
          .grad_scale = scale("output_grad_scale"),
          .lhs_amax_history = history("input_amax_history"),
          .rhs_amax_history = history("kernel_amax_history"),
          .grad_amax_history = history("output_grad_amax_history")};
}

Variable Fp8DirectDotGeneralOp::operator()(const Scope& scope, const Variable& x,
                                           const Variable& kernel,
                                           const DotDimensionNumbers& dims) const {
  const fp8::Fp8DotMeta meta = fp8_meta(scope.child("Fp8DirectDotGeneralOp"), amax_history_length);
  const bool is_exact = semantics == Fp8Semantics::flax_exact;
  return fp8::fp8_scaled_dot_general(
      cast(x, kernel.dtype()), kernel, dims, meta,
      {.quantize_compute_type = is_exact ? kernel.dtype() : DType::f32,
       .types = types,
       .semantics = semantics});
}

Variable QdqDotGeneral::run(const Scope& scope, const Variable& x, const Variable& kernel,
                            const DotDimensionNumbers& dims) const {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const fp8::Fp8DotMeta meta = fp8_meta(scope, amax_history_length);
  const DType type = kernel.dtype();
  const Variable lhs = fp8::in_qdq(type, e4m3_dtype, cast(x, type), meta.lhs_scale,
                                   meta.lhs_amax_history, semantics);
  const Variable rhs =
      fp8::in_qdq(type, e4m3_dtype, kernel, meta.rhs_scale, meta.rhs_amax_history, semantics);
  return fp8::out_qdq(type, e5m2_dtype, dot_general(lhs, rhs, dims), meta.grad_scale,
                      meta.grad_amax_history, semantics);
#pragma GCC diagnostic pop
}

}  // namespace octavo::nn
