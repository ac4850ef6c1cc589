// The arithmetic of FP8 training on tensors, names and formulas of Flax's fp8_ops: real = q *
// scale.
#pragma once

#include <utility>

#include "octavo/quant/delayed_scaling.h"
#include "octavo/tensor/tensor.h"

namespace octavo::fp8 {

// The largest finite value, exact in f32, bf16 and f16. ContractError: none of the four formats of
// 8 bits that are trained in.
float get_fp8_max(DType fp8_dtype);

// Codes of x / scale, limited to the largest value (infinities too; NaN stays NaN) and rounded once
// to nearest even. The scale is cast to compute_dtype and broadcast to x; the quotient has the
// wider type of both, so that bf16 with compute_dtype bf16 rounds twice, as in Flax. x: f32, bf16,
// f16 or f64. scale: f32. The result has x's shape.
// ContractError: q_dtype as of get_fp8_max, a scale that does not broadcast to x.
Tensor quantize(const Tensor& x, DType q_dtype, const Tensor& scale,
                DType compute_dtype = DType::f32);

// x cast to dq_dtype, times the scale cast to it: f32, bf16, f16 or f64. x: codes, or any of these.
// ContractError: a scale that does not broadcast to x.
Tensor dequantize(const Tensor& x, DType dq_dtype, const Tensor& scale);

// quantize, then dequantize to x's own type; errors of both.
Tensor qdq(const Tensor& x, DType q_dtype, const Tensor& scale, DType compute_dtype = DType::f32);

// delayed_scale for each scale; amax is one value or has the scale's shape, which the result has.
// All f32. ContractError: another shape or type.
Tensor compute_scale(const Tensor& amax, const Tensor& scale, float fp8_max, int margin = 0,
                     Fp8Semantics semantics = Fp8Semantics::guarded);

// The largest magnitude of all elements, as f32, NaN if one is NaN. x: floating point or i32.
// ContractError: no elements, another type.
float amax(const Tensor& x);

// (N) f32: rotated left, the largest magnitude of x, or that given, written over slot 0.
// ContractError: a history of another rank or type or of length 0, x as of amax.
Tensor compute_amax_history(const Tensor& x, const Tensor& amax_history);
Tensor push_amax(const Tensor& amax_history, float amax);

// The scale for x, from the history before it, and the history with it, shaped as those given. f32.
// ContractError: as compute_scale, get_fp8_max and compute_amax_history.
struct Fp8Meta {
  Tensor scale, amax_history;
};
Tensor next_scale(DType q_dtype, const Tensor& scale, const Tensor& amax_history,
                  Fp8Semantics semantics = Fp8Semantics::guarded);
Fp8Meta update_fp8_meta(const Tensor& x, DType q_dtype, const Tensor& scale,
                        const Tensor& amax_history, Fp8Semantics semantics = Fp8Semantics::guarded);

// update_fp8_meta, then qdq of x with the new scale; errors of both.
struct QdqUpdate {
  Tensor qdq;
  Fp8Meta meta;
};
QdqUpdate quantize_dequantize_update(const Tensor& x, DType q_dtype, const Tensor& scale,
                                     const Tensor& amax_history, DType compute_dtype = DType::f32,
                                     Fp8Semantics semantics = Fp8Semantics::guarded);

}  // namespace octavo::fp8
