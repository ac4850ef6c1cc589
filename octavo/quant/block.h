// Block quantization and dequantization of matrices in memory. Block index = row / block_rows,
// column / block_cols; edge blocks are ragged and their scale comes from their real elements only.
// Grids are ceil-divided and row-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "octavo/formats/format.h"
#include "octavo/kernels/select.h"
#include "octavo/quant/scale_rule.h"

namespace octavo {

// Of a block, in elements; both at least 1.
struct BlockSize {
  std::uint64_t rows = 128;
  std::uint64_t cols = 128;
  bool operator==(const BlockSize&) const = default;
};

// What becomes of a block with an element that is not finite.
enum class NonFiniteBlocks : std::uint8_t {
  end,        // quantization ends and names the element
  nan_scale,  // its scale is NaN, and so is everything that is computed with it; codes as of factor
              // 1
};

// How a matrix is quantized.
struct BlockRecipe {
  BlockSize block;
  ScaleRule rule = ScaleRule::transformers;
  ScaleFormat scale_fmt = ScaleFormat::float32;
  Format code_format = Format::e4m3fn;  // or e5m2, e4m3fnuz, e5m2fnuz
  NonFiniteBlocks non_finite = NonFiniteBlocks::end;
};

// A matrix in memory: element (r, c) at data + r * stride + c, in elements of `format` (f32, bf16,
// f16).
struct ConstMatrix {
  Format format;
  const void* data;
  std::size_t rows;
  std::size_t cols;
  std::size_t stride;
};

struct CodeMatrix {  // one byte per element
  std::uint8_t* data;
  std::size_t stride;
};

// The first element that is not finite.
struct NonFinite {
  std::uint64_t row;
  std::uint64_t col;
  float value;
};

// Raises amax[b] to the largest magnitude bits in block b of a block row, or of a piece of one (see
// BlockAmaxArgs). ContractError: another number of them than ceil(rows.cols / block_cols).
void block_row_amax(const kernels::CastKernels& kernels, const ConstMatrix& rows,
                    std::uint64_t block_cols, std::span<std::uint32_t> amax);

// Magnitude bits of `format` (f32, bf16, f16; sign cleared) as f32, and whether they are finite.
float magnitude(Format format, std::uint32_t bits);
bool is_finite_magnitude(Format format, std::uint32_t bits);

// Codes of a block row, or of a piece of one, for factors that are known, in any 8-bit
// floating-point format. `next`: see BlockQuantizeArgs::prefetch.
// ContractError: another number of factors than blocks.
void block_row_quantize(const kernels::CastKernels& kernels, const ConstMatrix& rows,
                        std::uint64_t block_cols, std::span<const float> factors,
                        kernels::ScaleOp op, CodeMatrix codes, const void* next, bool stream,
                        Format code_format = Format::e4m3fn);

// The first element of `rows` that is NaN or infinite, if any.
std::optional<NonFinite> find_non_finite(const ConstMatrix& rows);

// codes (rows, cols) and scales (ceil(rows / block.rows), ceil(cols / block.cols)) of a whole
// matrix, or of a band of whole block rows. `stream`: the codes are not read again soon. Returns
// the first element that is not finite, where there is one and NonFiniteBlocks::end is asked for;
// codes and scales from its block row on are then undefined.
// ContractError: another number of scales.
std::optional<NonFinite> quantize_blocks(const kernels::CastKernels& kernels,
                                         const ConstMatrix& matrix, const BlockRecipe& recipe,
                                         CodeMatrix codes, std::span<float> scales, bool stream);

// A window of a quantized matrix: its first element is (row0, col0) of the matrix, which decides
// the blocks that it cuts.
struct CodeWindow {
  Format format;  // e4m3fn, e5m2, e4m3fnuz, e5m2fnuz; e2m1fn packed (then col0, cols and block.cols
                  // are even)
  const std::uint8_t* data;
  std::size_t stride;  // bytes
  std::uint64_t row0;
  std::uint64_t col0;
  std::size_t rows;
  std::size_t cols;
};

// scales: those of the blocks that the window touches, row-major:
// (grid rows row0 / block.rows .. (row0 + rows - 1) / block.rows, the same of columns).
// Each value is code * scale in f32, rounded once, to nearest even, to the target's format.
// ContractError: another number of scales.
struct DequantizeTarget {
  Format format;  // f32, bf16, f16
  void* data;     // (rows, cols)
  std::size_t stride;
  bool saturate;
  bool stream;
  kernels::DequantizeCounts* counts;  // or null
};
void dequantize_blocks(const kernels::CastKernels& kernels, const CodeWindow& codes,
                       const BlockSize& block, std::span<const float> scales,
                       const DequantizeTarget& to);

}  // namespace octavo
