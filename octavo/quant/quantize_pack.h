// Quantization straight to packed operands (octavo/kernels/gemm/gemm.h): a tile of codes is made in
// memory that a cache holds, and every form that is wanted is packed from it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "octavo/kernels/gemm/pack.h"
#include "octavo/quant/block.h"

namespace octavo {

// Rows and columns of a tile: whole strips, panels, chunks and blocks.
inline constexpr std::size_t kPackTile = 384;
inline constexpr std::size_t kPackScratch = kPackTile * kPackTile;  // bytes

// Tiles of a matrix, counted row by row. Different tiles may be worked on at the same time.
std::size_t pack_tiles(std::size_t rows, std::size_t cols);
struct TileRange {
  std::size_t begin, end;
};

// What to make of a quantized (rows, cols) matrix: whole packed operands, aligned to 64 bytes, or
// null. A weight W is used as it is and, by the product with the gradient, transposed; activations
// X and gradients G are activations of one product and, transposed, an operand of another.
struct PackedForms {
  void* weights = nullptr;                                    // n = rows, k = cols
  void* weights_transposed = nullptr;                         // n = cols, k = rows
  void* activations = nullptr;                                // m = rows, k = cols
  void* activations_transposed = nullptr;                     // m = cols, k = rows
  kernels::Arithmetic arithmetic = kernels::Arithmetic::fma;  // of activations
  bool stream = false;                                        // weights are not read again soon
};

// e4m3fn with scales from the largest magnitude of each block, as quantize_blocks makes them; sides
// of blocks divide kPackTile. `scales`: of the whole matrix (ceil(rows / block.rows), ceil(cols /
// block.cols)); those of the tiles are written. `scratch`: kPackScratch bytes. Returns the first
// element of a tile that is not finite, where there is one; the tiles from there on are undefined.
std::optional<NonFinite> quantize_pack_blocks(const kernels::CastKernels& cast,
                                              const kernels::PackKernels& pack,
                                              const ConstMatrix& matrix, const BlockRecipe& recipe,
                                              std::span<float> scales, const PackedForms& to,
                                              TileRange tiles, std::span<std::uint8_t> scratch);

// e4m3fn or e5m2 of matrix * factor, a scale that is known. Raises *amax to the largest magnitude
// bits of the tiles (see BlockAmaxArgs), unless it is null.
void quantize_pack_scaled(const kernels::CastKernels& cast, const kernels::PackKernels& pack,
                          const ConstMatrix& matrix, Format code_format, float factor,
                          const PackedForms& to, TileRange tiles, std::span<std::uint8_t> scratch,
                          std::uint32_t* amax);

}  // namespace octavo
