// y = x W^T + b, the weight in 8-bit or wide floating point: its format alone decides the product.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "octavo/nn/value.h"
#include "octavo/ops/gemm.h"

namespace octavo::nn {

// A weight with what belongs to it.
struct Linear {
  ops::PackedWeight weight;               // (out, in)
  std::vector<float> bias;                // (out), or empty
  std::optional<float> activation_scale;  // static: given by the checkpoint
};

// The forms in which layers take one input, each made when it is first needed.
class Inputs {
 public:
  // Of x, in memory of the step.
  Inputs(const Step& step, const Value& x) : step_(step), x_(x) {}

  // As given; and as operand_format has it for a layer.
  const Value& x() const { return x_; }
  const ops::Operand& form(const Linear& layer);

 private:
  const Step& step_;
  const Value x_;
  std::optional<ops::Operand> f32_, bf16_, fp8_;
  std::size_t group_ = 0;                  // of fp8_
  std::optional<float> activation_scale_;  // of fp8_
};

// (rows, in) to (rows, out). ContractError: sizes that do not fit.
Value linear(const Step& step, const Value& x, const Linear& layer);
Value linear(const Step& step, Inputs& inputs, const Linear& layer);

// The same input for several layers (q, k, v; gate, up): it is quantized once.
template <class... Layers>
std::array<Value, sizeof...(Layers)> linears(const Step& step, const Value& x,
                                             const Layers&... layers) {
  Inputs inputs(step, x);
  return {linear(step, inputs, layers)...};
}

// What activations become for this layer: f32, bf16 or e4m3fn; and in words, "e4m3fn, 1x128".
Format operand_format(const Linear& layer, ActivationType activations);
std::string activation_format(const Linear& layer, ActivationType activations);

}  // namespace octavo::nn
