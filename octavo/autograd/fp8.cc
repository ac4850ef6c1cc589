#include "octavo/autograd/fp8.h"

#include <fmt/format.h>

#include <array>

#include "octavo/autograd/tape.h"
#include "octavo/base/error.h"
#include "octavo/ops/scaled_dot.h"

namespace octavo::fp8 {
namespace {

// Either both accumulate by maximum or neither.
void check_meta(const char* operation, const Variable& scale, const Variable& amax_history) {
  if (scale.accumulation() == amax_history.accumulation()) return;
  throw ContractError(fmt::format(
      "{}: given a scale and an amax history of which one is fp32_max_grad, expected both or none",
      operation));
}

// ContractError: as get_fp8_max.
Format format_of(DType type) {
  get_fp8_max(type);
  return *dtype_info(type).format;
}

// The product of two scales, in f32.
Tensor scale_product(const Tensor& a, const Tensor& b) { return dequantize(a, DType::f32, b); }

ops::TensorRecipe with_scale(DType type, const Tensor& scale) {
  if (scale.size() != 1) {
    throw ContractError(fmt::format("fp8_scaled_dot_general: given a scale {}, expected one value",
                                    to_string(scale.shape())));
  }
  return {.format = format_of(type), .scale = static_cast<float>(scale.item())};
}

Variable delayed_scaled_dot(const Variable& lhs, const Variable& rhs,
                            const DotDimensionNumbers& dims, const Fp8DotMeta& meta, DType type,
                            const Fp8DotOptions& options) {
  const std::array<Variable, 8> inputs = {lhs,
                                          rhs,
                                          meta.lhs_scale,
                                          meta.rhs_scale,
                                          meta.grad_scale,
                                          meta.lhs_amax_history,
                                          meta.rhs_amax_history,
                                          meta.grad_amax_history};
  const auto next = [&](DType q_dtype, const Variable& scale, const Variable& history) {
    return next_scale(q_dtype, scale.value(), history.value(), options.semantics);
  };
  const Tensor lhs_scale = next(options.types.e4m3, meta.lhs_scale, meta.lhs_amax_history);
  const Tensor rhs_scale = next(options.types.e4m3, meta.rhs_scale, meta.rhs_amax_history);
  ops::ScaledDotRecipes recipes{with_scale(options.types.e4m3, lhs_scale),
                                with_scale(options.types.e4m3, rhs_scale)};
  const bool is_recorded = Tape::of("fp8_scaled_dot_general", inputs) != nullptr;
  ops::ScaledDot dot = ops::scaled_dot(lhs.value(), rhs.value(), dims, recipes, type, is_recorded);
  if (!is_recorded) return dot.value;

  const Tensor lhs_history = push_amax(meta.lhs_amax_history.value(), dot.lhs_amax);
  const Tensor rhs_history = push_amax(meta.rhs_amax_history.value(), dot.rhs_amax);
  const ops::WantedGradients wanted{lhs.is_recorded(), rhs.is_recorded()};
  const auto rule = [=, kept = dot.kept, types = options.types, semantics = options.semantics,
                     grad_scale = meta.grad_scale.value(),
                     history = meta.grad_amax_history.value()](
                        const Tensor& g) mutable -> std::vector<Cotangent> {
    const Tensor scale = next_scale(types.e5m2, grad_scale, history, semantics);
    recipes.grad = with_scale(types.e5m2, scale);
    const ops::ScaledDotGradients gradients = ops::scaled_dot_gradients(*kept, g, recipes, wanted);
    return {gradients.lhs, gradients.rhs, lhs_scale,   rhs_scale,
            scale,         lhs_history,   rhs_history, push_amax(history, gradients.grad_amax)};
  };
  return record("fp8_scaled_dot_general", std::move(dot.value), inputs, rule);
}

// Without state: the recipes say all.
Variable stateless_scaled_dot(const char* operation, const Variable& lhs, const Variable& rhs,
                              const DotDimensionNumbers& dims,
                              const ops::ScaledDotRecipes& recipes) {
  const std::array<Variable, 2> inputs = {lhs, rhs};
  const bool is_recorded = Tape::of(operation, inputs) != nullptr;
  ops::ScaledDot dot =
      ops::scaled_dot(lhs.value(), rhs.value(), dims, recipes, lhs.dtype(), is_recorded);
  return record(operation, std::move(dot.value), inputs,
                [kept = dot.kept, recipes,
                 wanted = ops::WantedGradients{lhs.is_recorded(), rhs.is_recorded()}](
                    const Tensor& g) -> std::vector<Cotangent> {
                  ops::ScaledDotGradients gradients =
                      ops::scaled_dot_gradients(*kept, g, recipes, wanted);
                  return {std::move(gradients.lhs), std::move(gradients.rhs)};
                });
}

}  // namespace

Variable in_qdq(DType compute_dtype, DType q_dtype, const Variable& inp, const Variable& scale,
                const Variable& amax_history, Fp8Semantics semantics) {
  check_meta("in_qdq", scale, amax_history);
  QdqUpdate update = quantize_dequantize_update(inp.value(), q_dtype, scale.value(),
                                                amax_history.value(), compute_dtype, semantics);
  const std::array<Variable, 3> inputs = {inp, scale, amax_history};
  return record(
      "in_qdq", {std::move(update.qdq)}, inputs,
      [meta = update.meta](std::span<const Cotangent> g) -> std::vector<Cotangent> {
        return {g[0], meta.scale, meta.amax_history};
      },
      RunRule::when_on_path)[0];
}

Variable out_qdq(DType compute_dtype, DType q_dtype, const Variable& out, const Variable& scale,
                 const Variable& amax_history, Fp8Semantics semantics) {
  check_meta("out_qdq", scale, amax_history);
  const std::array<Variable, 3> inputs = {out, scale, amax_history};
  return record(
      "out_qdq", out.value(), inputs,
      [=, s = scale.value(), h = amax_history.value()](const Tensor& g) -> std::vector<Cotangent> {
        const auto [qdq_g, meta] =
            quantize_dequantize_update(g, q_dtype, s, h, compute_dtype, semantics);
        return {qdq_g, meta.scale, meta.amax_history};
      });
}

Quantized in_q(DType compute_dtype, DType q_dtype, const Variable& inp, const Variable& scale,
               const Variable& amax_history, Fp8Semantics semantics) {
  check_meta("in_q", scale, amax_history);
  const Fp8Meta meta =
      update_fp8_meta(inp.value(), q_dtype, scale.value(), amax_history.value(), semantics);
  const std::array<Variable, 3> inputs = {inp, scale, amax_history};
  const std::vector<Variable> outputs = record(
      "in_q", {quantize(inp.value(), q_dtype, meta.scale, compute_dtype), meta.scale}, inputs,
      [meta](std::span<const Cotangent>) -> std::vector<Cotangent> {
        return {std::nullopt, meta.scale, meta.amax_history};
      },
      RunRule::when_on_path);
  return {outputs[0], outputs[1]};
}

Variable out_dq(DType dq_dtype, const Variable& lhs_scale, const Variable& rhs_scale,
                const Variable& out) {
  const std::array<Variable, 3> inputs = {lhs_scale, rhs_scale, out};
  const Tensor scale = scale_product(lhs_scale.value(), rhs_scale.value());
  return record("out_dq", dequantize(out.value(), dq_dtype, scale), inputs,
                [type = out.dtype()](const Tensor& g) -> std::vector<Cotangent> {
                  return {std::nullopt, std::nullopt, g.astype(type)};
                });
}

Variable quantized_dot(const QuantizedDot& x, const DotDimensionNumbers& dims,
                       DType preferred_element_type, Fp8Types types, Fp8Semantics semantics) {
  check_meta("quantized_dot", x.out_grad_scale, x.out_grad_amax_history);
  const std::array<Variable, 8> inputs = {
      x.lhs,   x.rhs,   x.out_grad_scale, x.out_grad_amax_history,
      x.q_lhs, x.q_rhs, x.lhs_scale,      x.rhs_scale};
  const bool is_lhs_wanted = x.lhs.is_recorded(), is_rhs_wanted = x.rhs.is_recorded();
  const auto rule =
      [=, lhs = x.q_lhs.value(), lhs_scale = x.lhs_scale.value(), rhs = x.q_rhs.value(),
       rhs_scale = x.rhs_scale.value(), lhs_type = x.lhs.dtype(), rhs_type = x.rhs.dtype(),
       scale = x.out_grad_scale.value(),
       history = x.out_grad_amax_history.value()](const Tensor& g) -> std::vector<Cotangent> {
    const DType type = preferred_element_type;
    const Fp8Meta meta = update_fp8_meta(g, types.e5m2, scale, history, semantics);
    const Tensor q_g = quantize(g, types.e5m2, meta.scale, type);
    Cotangent of_lhs, of_rhs;
    if (is_lhs_wanted) {
      of_lhs = dequantize(ops::dot_general_transpose_lhs(q_g, lhs.shape(), rhs, dims, type), type,
                          scale_product(rhs_scale, meta.scale))
                   .astype(lhs_type);
    }
    if (is_rhs_wanted) {
      of_rhs = dequantize(ops::dot_general_transpose_rhs(q_g, lhs, rhs.shape(), dims, type), type,
                          scale_product(lhs_scale, meta.scale))
                   .astype(rhs_type);
    }
    return {of_lhs,       of_rhs,       meta.scale,   meta.amax_history,
            std::nullopt, std::nullopt, std::nullopt, std::nullopt};
  };
  return record("quantized_dot",
                ops::dot_general(x.q_lhs.value(), x.q_rhs.value(), dims, preferred_element_type),
                inputs, rule);
}

Variable fp8_scaled_dot_general(const Variable& lhs, const Variable& rhs,
                                const DotDimensionNumbers& dims, const Fp8DotMeta& meta,
                                const Fp8DotOptions& options) {
  const DType type = options.preferred_element_type.value_or(lhs.dtype());
  if (options.semantics == Fp8Semantics::guarded && options.quantize_compute_type == DType::f32) {
    check_meta("fp8_scaled_dot_general", meta.lhs_scale, meta.lhs_amax_history);
    check_meta("fp8_scaled_dot_general", meta.rhs_scale, meta.rhs_amax_history);
    check_meta("fp8_scaled_dot_general", meta.grad_scale, meta.grad_amax_history);
    return delayed_scaled_dot(lhs, rhs, dims, meta, type, options);
  }
  const auto [compute_dtype, e4m3] = std::pair(options.quantize_compute_type, options.types.e4m3);
  const Quantized l =
      in_q(compute_dtype, e4m3, lhs, meta.lhs_scale, meta.lhs_amax_history, options.semantics);
  const Quantized r =
      in_q(compute_dtype, e4m3, rhs, meta.rhs_scale, meta.rhs_amax_history, options.semantics);
  const Variable y =
      quantized_dot({lhs, l.q, l.scale, rhs, r.q, r.scale, meta.grad_scale, meta.grad_amax_history},
                    dims, type, options.types, options.semantics);
  return out_dq(type, l.scale, r.scale, y);
}

Variable current_scaled_dot_general(const Variable& lhs, const Variable& rhs,
                                    const DotDimensionNumbers& dims, Fp8Types types) {
  const auto recipe = [](DType type) {
    return ops::TensorRecipe{.format = format_of(type), .scaling = ops::Scaling::current};
  };
  return stateless_scaled_dot("current_scaled_dot_general", lhs, rhs, dims,
                              {recipe(types.e4m3), recipe(types.e4m3), recipe(types.e5m2)});
}

Variable block_scaled_dot_general(const Variable& lhs, const Variable& rhs,
                                  const DotDimensionNumbers& dims, const BlockScaling& scaling) {
  const auto recipe = [&](DType type, BlockSize block) {
    return ops::TensorRecipe{.format = format_of(type),
                             .scaling = ops::Scaling::blocks,
                             .block = block,
                             .scale_fmt = scaling.scale_fmt};
  };
  return stateless_scaled_dot("block_scaled_dot_general", lhs, rhs, dims,
                              {recipe(scaling.type, {1, 128}), recipe(scaling.type, {128, 128}),
                               recipe(scaling.grad_type, {1, 128})});
}

}  // namespace octavo::fp8
