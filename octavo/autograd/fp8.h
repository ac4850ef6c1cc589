// The operations of FP8 training with their gradient rules: names, formulas and rules of Flax's
// fp8_ops. The "gradient" of a scale and of an amax history is its new value, by
// fp8::update_fp8_meta (octavo/ops/fp8.h). Scales and histories are f32, (1) and (length), or
// shaped as update_fp8_meta takes them. ContractError: those of the functions of octavo/ops/fp8.h;
// of a scale and its history only one accumulates by maximum (as_fp32_max_grad).
#pragma once

#include "octavo/autograd/dot_general.h"
#include "octavo/ops/fp8.h"
#include "octavo/ops/kernel_log.h"
#include "octavo/quant/scale_rule.h"

namespace octavo::fp8 {

// The formats of a recipe: of operands, and of the gradient of the result.
struct Fp8Types {
  DType e4m3 = DType::f8_e4m3;
  DType e5m2 = DType::f8_e5m2;
};
inline constexpr Fp8Types kOcp = {};
inline constexpr Fp8Types kNanoo = {DType::f8_e4m3fnuz, DType::f8_e5m2fnuz};

// inp quantized and dequantized with the new scale, in its own shape and type. Its gradient is
// unchanged, of clipped elements too.
[[deprecated("in_q -> quantized_dot -> out_dq, or fp8_scaled_dot_general")]] Variable in_qdq(
    DType compute_dtype, DType q_dtype, const Variable& inp, const Variable& scale,
    const Variable& amax_history, Fp8Semantics semantics = Fp8Semantics::guarded);

// out itself; its gradient is quantized and dequantized with the new scale.
[[deprecated("in_q -> quantized_dot -> out_dq, or fp8_scaled_dot_general")]] Variable out_qdq(
    DType compute_dtype, DType q_dtype, const Variable& out, const Variable& scale,
    const Variable& amax_history, Fp8Semantics semantics = Fp8Semantics::guarded);

// Codes of inp, of its shape, with the new scale, and that scale. No gradient flows to inp:
// quantized_dot has it.
struct Quantized {
  Variable q, scale;
};
Quantized in_q(DType compute_dtype, DType q_dtype, const Variable& inp, const Variable& scale,
               const Variable& amax_history, Fp8Semantics semantics = Fp8Semantics::guarded);

// out in dq_dtype times lhs_scale * rhs_scale, which broadcast to it. The gradient of out is
// unscaled: quantized_dot has the factors.
Variable out_dq(DType dq_dtype, const Variable& lhs_scale, const Variable& rhs_scale,
                const Variable& out);

// The product of two operands in FP8, not dequantized. Gradients flow to lhs and rhs, from the
// gradient of the *dequantized* result, which is quantized to types.e5m2 with its new scale, and
// from q_lhs and q_rhs with the scales used for them, in the types of lhs and rhs. Shapes are those
// of dot_general (Flax: quantized_dot_impl); of lhs and rhs only types are read.
struct QuantizedDot {
  Variable lhs, q_lhs, lhs_scale;
  Variable rhs, q_rhs, rhs_scale;
  Variable out_grad_scale, out_grad_amax_history;  // as of the step before
};
Variable quantized_dot(const QuantizedDot& operands, const DotDimensionNumbers& dims,
                       DType preferred_element_type = DType::f32, Fp8Types types = kOcp,
                       Fp8Semantics semantics = Fp8Semantics::guarded);

// Scales (1) and amax histories (length) of a product, f32.
struct Fp8DotMeta {
  Variable lhs_scale, rhs_scale, grad_scale;
  Variable lhs_amax_history, rhs_amax_history, grad_amax_history;
};

// Of fp8_scaled_dot_general.
struct Fp8DotOptions {
  std::optional<DType> preferred_element_type = {};  // of the result; lhs's type
  DType quantize_compute_type = DType::f32;
  Fp8Types types = kOcp;
  Fp8Semantics semantics = Fp8Semantics::guarded;
};

// lhs and rhs in FP8 with delayed scaling: in_q, quantized_dot, out_dq, in one: the kernels of
// scaled_dot apply scales in f32 and round each result once. With flax_exact, or another
// quantize_compute_type than f32, those three operations one after the other. lhs and rhs: f32,
// bf16 or f16, shaped as for dot_general; gradients have their types. ContractError also: axes that
// do not fit, an operand without elements, a scale of several values.
Variable fp8_scaled_dot_general(const Variable& lhs, const Variable& rhs,
                                const DotDimensionNumbers& dims, const Fp8DotMeta& meta,
                                const Fp8DotOptions& options = {});

// The same without state: scales from the tensors themselves, amax / fp8_max of each ("current
// scaling" of Flax's guide). The result has the type of lhs.
// ContractError also: axes that do not fit, an operand without elements.
Variable current_scaled_dot_general(const Variable& lhs, const Variable& rhs,
                                    const DotDimensionNumbers& dims, Fp8Types types = kOcp);

// 1x128 of lhs and of the gradient, 128x128 of rhs, all in e4m3fn as DeepSeek-V3 trains unless said
// otherwise; the gradient of rhs is computed from codes quantized anew in groups of 128 along the
// axes that it sums over. The result has the type of lhs.
// ContractError also: axes that do not fit, an operand without elements.
struct BlockScaling {
  DType type = DType::f8_e4m3;
  DType grad_type = DType::f8_e4m3;
  ScaleFormat scale_fmt = ScaleFormat::float32;
};
Variable block_scaled_dot_general(const Variable& lhs, const Variable& rhs,
                                  const DotDimensionNumbers& dims,
                                  const BlockScaling& scaling = {});

}  // namespace octavo::fp8
