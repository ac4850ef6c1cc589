// How the elements of a scale tensor lie over a weight.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "octavo/base/error.h"
#include "octavo/quant/block.h"
#include "octavo/tensor/shape.h"

namespace octavo {

// Scale (slice, r / block.rows, c / block.cols) belongs to element (slice, r, c).
struct ScaleLayout {
  BlockSize block;       // at least 1, at most the matrix, whatever a config says
  std::uint64_t slices;  // 1: the same scales for every slice
  std::uint64_t grid_rows;
  std::uint64_t grid_cols;
};

// weight: its logical shape (elements, also where two share a byte), rank >= 2. `configured` is
// what the model's config says; without it 128x128 is assumed. Accepted, in this order: one scale
// for all; one per slice; the grid of the block, ceil-divided; one per row; one per row and 32
// columns where `exponents` (E8M0 or U8) are stored. The block is never derived from a ratio of
// shapes: 192 rows with 2 scale rows are 128 + 64. bad_model otherwise.
// ContractError: a weight of lower rank.
Result<ScaleLayout> match_scale(const Shape& weight, const Shape& scale,
                                std::optional<BlockSize> configured, bool exponents);

std::string to_string(const BlockSize& block);  // "128x128"

}  // namespace octavo
