// The three products of a layer Y = X W^T in training, quantization and packing included. Each step
// can be taken alone: quantize (quantized_tensor.h), then gemm on two forms.
#pragma once

#include "octavo/ops/quantized_tensor.h"

namespace octavo::ops {

// X (M, K), W (N, K), G = dY (M, N), in f32 or bf16.
struct TrainingInputs {
  Operand x, w, g;
};

// How each of them is quantized.
struct TrainingRecipes {
  TensorRecipe x, w;
  TensorRecipe g = {.format = Format::e5m2};
};

// The quantized tensors, whose memory the next call uses again.
struct TrainingTensors {
  QuantizedTensor x, w, g;
};

// The results, f32 or bf16 each.
struct TrainingOutputs {
  Output y;   // (M, N) = X W^T
  Output dx;  // (M, K) = G W
  Output dw;  // (N, K) = G^T X
};

// ContractError: as quantize and gemm; shapes that do not fit, recipes whose blocks no product can
// read together.
void training_products(const TrainingInputs& from, const TrainingRecipes& recipes,
                       TrainingTensors& tensors, const TrainingOutputs& to,
                       const Context& context = default_context());

}  // namespace octavo::ops
