// Rotary positions, the halves of a head as pairs (Llama's layout).
#pragma once

#include <span>
#include <vector>

#include "octavo/autograd/variable.h"

namespace octavo {

// cos and sin of each position's angles: the shape of the positions, then half the rotated width.
struct RopeTables {
  Tensor cos, sin;
};

// theta^(-2 i / width) for i in [0, width / 2). ContractError: an odd width, or 0.
std::vector<float> rope_frequencies(double theta, std::size_t width);

// angle = position * frequency in f32; its cos and sin, rounded once, times `scaling` (that of
// YaRN). positions: any shape, i32; tables: f32. ContractError: another type.
RopeTables rope_tables(const Tensor& positions, std::span<const float> frequencies,
                       float scaling = 1);

// x: (..., length, heads, head_dim), f32, bf16, f16 or f64. Rotates the first 2 * half elements of
// each head, the others stay:
//     y[i]        = x[i] * cos[i] - x[i + half] * sin[i]         0 <= i < half
//     y[i + half] = x[i + half] * cos[i] + x[i] * sin[i]
// Positions are those of the tables, (length) or all axes before the heads. (Su et al., 2021, with
// Llama's pairs.)
// ContractError: tables of other shapes, 2 * half beyond head_dim.
Variable rope(const Variable& x, const RopeTables& tables);

}  // namespace octavo
