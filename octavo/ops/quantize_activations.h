// Activations to e4m3fn with a scale per row and group of columns, as DeepSeek's act_quant and
// Transformers' dynamic scheme do: s = amax / 448, code = x / s.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/ops/gemm.h"

namespace octavo::ops {

// Strides in elements.
struct QuantizeActivationsArgs {
  const float* x;  // (rows, cols)
  std::size_t stride;
  std::size_t rows, cols;
  std::size_t group;    // columns that share a scale; cols or more: one scale per row
  std::uint8_t* codes;  // (rows, cols)
  float* scales;        // (rows, ceil(cols / group))
};

// The same bits for a row whatever the others. A group of zeros has scale 1 (the original: 0 / 0).
// What is not finite gives NaN codes: groups with it take their scale from the largest finite f32.
// ContractError: no columns, a group of 0, a stride below a row, memory that is not there.
Operand quantize_activations(const QuantizeActivationsArgs& args,
                             const Context& context = default_context());

// The scale is given (static activation scales): one for all, scales[0]; of no rows, none is
// written. ContractError also: a scale that is not finite and positive.
Operand quantize_activations_static(const QuantizeActivationsArgs& args, float scale,
                                    const Context& context = default_context());

// x (rows, cols) f32, rounded once to bf16, to nearest even; beyond the largest: infinity.
Operand round_activations(const float* x, std::size_t stride, std::size_t rows, std::size_t cols,
                          std::uint16_t* rounded, const Context& context = default_context());

}  // namespace octavo::ops
