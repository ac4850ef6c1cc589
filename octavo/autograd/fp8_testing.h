// State of FP8 products for tests: as variables, as inputs of functions, and after a step.
#pragma once

#include "octavo/autograd/autograd_testing.h"
#include "octavo/autograd/fp8.h"

namespace octavo::testing {

// Scales (1) and histories (N), in the order lhs, rhs, gradient.
struct MetaState {
  std::array<Tensor, 3> scales, histories;

  explicit MetaState(std::size_t length = 4) {
    scales.fill(Tensor::ones(DType::f32, {1}));
    histories.fill(Tensor::zeros(DType::f32, {length}));
  }
};

struct DotStep {
  Tensor value, lhs, rhs;  // result and gradients
  MetaState state;         // after
};

// How a product is computed from operands and state.
using Fp8Dot =
    std::function<Variable(const Variable& lhs, const Variable& rhs, const fp8::Fp8DotMeta& meta)>;

// One product forward and back, with the cotangent g.
inline DotStep dot_step(const Fp8Dot& dot, const Tensor& lhs, const Tensor& rhs, const Tensor& g,
                        const MetaState& state) {
  const auto& [s, h] = state;
  const ValueAndVjp result = value_and_vjp(
      [&](std::span<const Variable> in) {
        return dot(in[0], in[1], {in[2], in[3], in[4], in[5], in[6], in[7]});
      },
      std::vector{lhs, rhs, s[0], s[1], s[2], h[0], h[1], h[2]}, g);
  DotStep step{result.value, result.grads[0], result.grads[1], state};
  for (std::size_t i = 0; i < 3; ++i) {
    step.state.scales[i] = result.grads[2 + i];
    step.state.histories[i] = result.grads[5 + i];
  }
  return step;
}

// On the kernels, all in one.
inline Fp8Dot fused(const DotDimensionNumbers& dims, fp8::Fp8Types types = fp8::kOcp) {
  return [=](const Variable& lhs, const Variable& rhs, const fp8::Fp8DotMeta& meta) {
    return fp8::fp8_scaled_dot_general(lhs, rhs, dims, meta, {.types = types});
  };
}

// in_q, quantized_dot, out_dq, as Flax computes it.
inline Fp8Dot composed(const DotDimensionNumbers& dims, fp8::Fp8Types types = fp8::kOcp,
                       Fp8Semantics semantics = Fp8Semantics::flax_exact) {
  return [=](const Variable& lhs, const Variable& rhs, const fp8::Fp8DotMeta& meta) {
    const auto l =
        fp8::in_q(DType::f32, types.e4m3, lhs, meta.lhs_scale, meta.lhs_amax_history, semantics);
    const auto r =
        fp8::in_q(DType::f32, types.e4m3, rhs, meta.rhs_scale, meta.rhs_amax_history, semantics);
    const Variable y = fp8::quantized_dot(
        {lhs, l.q, l.scale, rhs, r.q, r.scale, meta.grad_scale, meta.grad_amax_history}, dims,
        lhs.dtype(), types, semantics);
    return fp8::out_dq(lhs.dtype(), l.scale, r.scale, y);
  };
}

}  // namespace octavo::testing
