// Packs a weight that comes in pieces, so that its rows never stand in memory twice as a whole.
#pragma once

#include <cstddef>

#include "octavo/ops/gemm.h"

namespace octavo::ops {

// Rows of a piece, the last one apart, are a multiple of this.
inline constexpr std::size_t kPackRows = 128;

// A weight (n, k): add each piece once, in any order, then finish.
class WeightPacker {
 public:
  // ContractError: formats and sizes that pack_weight does not take.
  WeightPacker(Format format, std::size_t n, std::size_t k);

  // Rows row .. row + rows.rows of the weight, in its format. ContractError: pieces that do not
  // begin at a multiple of kPackRows or are no whole rows of it.
  void add(std::size_t row, const ConstMatrix& rows, const Context& context = default_context());

  // `scale` as an Operand has it, of the whole weight. ContractError: rows did not come, scales
  // that pack_weight does not take.
  PackedWeight finish(const ScaleGrid& scale);

 private:
  PackedWeight weight_;
  std::size_t rows_ = 0;  // that came
};

// Rows `ids` of a packed weight as f32, scales multiplied in: row i to dst + i * dst_stride. The
// rows of an embedding. Same bits as the codes that were packed have (bf16 below 2^-40: +0).
// ContractError: a row beyond n, a weight not as pack_weight makes it.
void gather_rows(const PackedWeight& w, const std::int32_t* ids, std::size_t count, float* dst,
                 std::size_t dst_stride);

}  // namespace octavo::ops
