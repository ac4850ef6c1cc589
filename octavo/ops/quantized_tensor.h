// Tensors quantized for the products of training, Y = X W^T, dX = G W and dW = G^T X: a tile of
// codes is made in memory that a cache holds, and every form that a product reads is packed from it
// at once.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "octavo/ops/gemm.h"

namespace octavo::ops {

// Where scales come from.
enum class Scaling : std::uint8_t {
  delayed,  // one scale, known before: one pass, which also finds the largest magnitude
  current,  // one scale, from the largest magnitude: two passes
  blocks,   // a scale for each block, from its own largest magnitude
};

// Blocks are 1 x w or w x w, w = 32, 64 or 128. They lie along the contraction of the product: a
// tensor with blocks of 1 x w is quantized once as it is and once, for products that contract its
// rows, in blocks of w rows x 1 column, each from the source.
struct TensorRecipe {
  Format format = Format::e4m3fn;  // or e5m2, e4m3fnuz, e5m2fnuz
  Scaling scaling = Scaling::delayed;
  float scale = 1.0f;  // of delayed: real = code * scale, code = round(clamp(real / scale))
  BlockSize block = {1, 128};
  ScaleRule rule = ScaleRule::deepseek;  // of current and blocks
  ScaleFormat scale_fmt = ScaleFormat::float32;
};

// What to make of a tensor (rows, cols), one byte an element each.
struct TensorForms {
  bool codes = false;              // activations: operand()
  bool codes_transposed = false;   // activations (cols, rows): operand_transposed()
  bool weight = false;             // a weight of n = rows, k = cols
  bool weight_transposed = false;  // a weight of n = cols, k = rows
};

// Scales of all blocks, and how they lie.
struct TensorScales {
  std::vector<float> data;
  std::size_t stride = 0;
  BlockSize block;
};

// A tensor (rows, cols) in the forms that were asked for.
struct QuantizedTensor {
  Format format = Format::e4m3fn;
  std::size_t rows = 0, cols = 0;
  bool is_square = true;           // blocks are as high as wide: one set of codes serves both ways
  AlignedBytes codes;              // (rows, cols)
  AlignedBytes codes_by_column;    // (rows, cols) too, in blocks of w x 1; empty where is_square
  TensorScales scales;             // of codes
  TensorScales scales_transposed;  // of the matrix (cols, rows)
  std::optional<PackedWeight> weight, weight_transposed;
  float amax = 0;  // of delayed and current: the largest magnitude, NaN where there is a NaN

  // Views as activations. ContractError where the form was not asked for.
  Operand operand() const;             // (rows, cols)
  Operand operand_transposed() const;  // (cols, rows)
};

// source: (rows, cols) in f32 or bf16, not transposed; or codes with their scales, which are
// quantized anew (activations that were kept for the backward pass, by column) and are not `to`'s
// own. Memory of `to` is used again where it has the right size.
//
// Elements beyond the largest value become the largest value, infinities included, and NaN becomes
// NaN. With a scale from the largest magnitude, that of a block with an element that is not finite
// is NaN, and so is every result that reads it.
// ContractError: a source that gemm does not take, transposed or without rows, a scale that is not
// finite and positive, a recipe of other formats or blocks.
void quantize(const Operand& source, const TensorRecipe& recipe, const TensorForms& forms,
              QuantizedTensor& to, const Context& context = default_context());

}  // namespace octavo::ops
