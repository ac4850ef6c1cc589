#include "octavo/nn/linear.h"

#include <fmt/format.h>

#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/formats/traits.h"
#include "octavo/ops/quantize_activations.h"

namespace octavo::nn {
namespace {

bool is_fp8(const Linear& layer) { return bits_per_element(layer.weight.format) == 8; }

// Columns that share an activation scale: as many as share one of the weight.
std::size_t group(const Linear& layer) {
  return layer.weight.scale.width == 0 ? layer.weight.k : layer.weight.scale.width;
}

ops::Operand as_f32(const Value& x) {
  return {{Format::f32, x.data, x.rows, x.cols, x.cols}, {}, false};
}

ops::Operand as_bf16(const Step& step, const Value& x) {
  auto* rounded =
      reinterpret_cast<std::uint16_t*>(step.arena.bytes(x.rows * x.cols * sizeof(std::uint16_t)));
  return ops::round_activations(x.data, x.cols, x.rows, x.cols, rounded, step.context);
}

ops::Operand as_fp8(const Step& step, const Value& x, std::size_t group,
                    const std::optional<float>& scale) {
  const ops::QuantizeActivationsArgs args{x.data,
                                          x.cols,
                                          x.rows,
                                          x.cols,
                                          group,
                                          step.arena.bytes(x.rows * x.cols),
                                          step.arena.floats(x.rows * ceil_div(x.cols, group))};
  return scale ? ops::quantize_activations_static(args, *scale, step.context)
               : ops::quantize_activations(args, step.context);
}

}  // namespace

const ops::Operand& Inputs::form(const Linear& layer) {
  const Format format = operand_format(layer, step_.activations);
  if (format == Format::f32) {
    if (!f32_) f32_ = as_f32(x_);
    return *f32_;
  }
  if (format == Format::bf16) {
    if (!bf16_) bf16_ = as_bf16(step_, x_);
    return *bf16_;
  }
  if (!fp8_ || group_ != group(layer) || activation_scale_ != layer.activation_scale) {
    group_ = group(layer);
    activation_scale_ = layer.activation_scale;
    fp8_ = as_fp8(step_, x_, group_, activation_scale_);
  }
  return *fp8_;
}

Value linear(const Step& step, const Value& x, const Linear& layer) {
  Inputs inputs(step, x);
  return linear(step, inputs, layer);
}

Value linear(const Step& step, Inputs& inputs, const Linear& layer) {
  const Value& x = inputs.x();
  if (x.cols != layer.weight.k || (!layer.bias.empty() && layer.bias.size() != layer.weight.n)) {
    throw ContractError(
        fmt::format("linear: given x ({}, {}), weight ({}, {}), bias ({}), "
                    "expected (rows, in), (out, in), (out)",
                    x.rows, x.cols, layer.weight.n, layer.weight.k, layer.bias.size()));
  }
  const Value y = step.value(x.rows, layer.weight.n);
  ops::gemm(inputs.form(layer), layer.weight, {Format::f32, y.data, y.cols},
            {.bias = layer.bias, .context = &step.context});
  return y;
}

Format operand_format(const Linear& layer, ActivationType activations) {
  if (activations == ActivationType::f32) return Format::f32;
  return activations == ActivationType::fp8 && is_fp8(layer) ? Format::e4m3fn : Format::bf16;
}

std::string activation_format(const Linear& layer, ActivationType activations) {
  const Format format = operand_format(layer, activations);
  if (format != Format::e4m3fn) return std::string(format_name(format));
  if (layer.activation_scale) return "e4m3fn, static scale";
  return layer.weight.scale.width == 0 ? "e4m3fn, scale per token"
                                       : fmt::format("e4m3fn, 1x{}", group(layer));
}

}  // namespace octavo::nn
