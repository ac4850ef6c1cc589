// dot_general with operands in FP8, and its gradients from the codes that it keeps: the three
// products of training on the FP8 kernels, scales applied in f32, each result rounded once.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "octavo/ops/dot_general.h"
#include "octavo/ops/quantized_tensor.h"

namespace octavo::ops {

// How each tensor is quantized. Blocks lie along the contraction: 1 x w of lhs and gradient rows,
// w x w of rhs.
struct ScaledDotRecipes {
  TensorRecipe lhs, rhs;
  TensorRecipe grad = {.format = Format::e5m2};
};

// What the gradients need: one byte per element of lhs, and rhs packed for its product.
struct ScaledDotKept {
  DotOperand lhs, rhs;                // tensors empty: shapes and axes alone
  Shape lhs_shape, rhs_shape, shape;  // of the operands, of the value
  DType lhs_type, rhs_type;
  std::vector<QuantizedTensor> lhs_codes;  // (free, contracted) of each batch
  std::vector<QuantizedTensor> rhs_codes;  // packed, as stored
};

// A product, and what is known after it.
struct ScaledDot {
  Tensor value;
  float lhs_amax, rhs_amax;  // of delayed and current scaling: the largest magnitudes, or NaN
  std::shared_ptr<const ScaledDotKept> kept;  // null unless asked for
};

// lhs and rhs: f32 or bf16 (others are cast to f32), the result in `type`: f32, bf16 or f16.
// ContractError: as dot_general and quantize; an operand without elements.
ScaledDot scaled_dot(const Tensor& lhs, const Tensor& rhs, const DotDimensionNumbers& dims,
                     const ScaledDotRecipes& recipes, DType type, bool keep);

// Gradients, and the largest magnitude of what they came from.
struct ScaledDotGradients {
  std::optional<Tensor> lhs, rhs;  // of the operands' shapes and types; those that were wanted
  float grad_amax = 0;
};

// Which to compute: an operand that is a constant needs none.
struct WantedGradients {
  bool lhs = true, rhs = true;
};

// g: the cotangent of value, of its shape (else ContractError). With blocks, both operands of the
// product for rhs are quantized anew along the axes that it sums over, from their codes, as
// DeepSeek-V3 does.
ScaledDotGradients scaled_dot_gradients(const ScaledDotKept& kept, const Tensor& g,
                                        const ScaledDotRecipes& recipes,
                                        WantedGradients wanted = {});

}  // namespace octavo::ops
