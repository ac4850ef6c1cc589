#include "octavo/quant/quantize_pack.h"

#include <fmt/format.h>

#include <algorithm>

#include <vector>

#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/formats/traits.h"

namespace octavo {
namespace {

using kernels::kChunk;
using kernels::kStrip;
using kernels::PackActivationsArgs;
using kernels::PackKernels;
using kernels::PackWeightsArgs;

struct Tile {
  std::size_t row, col, rows, cols;
};

Tile tile_at(const ConstMatrix& matrix, std::size_t index) {
  const std::size_t across = ceil_div(matrix.cols, kPackTile);
  const std::size_t row = index / across * kPackTile, col = index % across * kPackTile;
  return {row, col, std::min(kPackTile, matrix.rows - row), std::min(kPackTile, matrix.cols - col)};
}

// Rows that are quantized with a known scale while as many are read ahead.
constexpr std::size_t kBandRows = 32;

ConstMatrix part_of(const ConstMatrix& matrix, const Tile& tile) {
  const auto bytes = bytes_per_element(matrix.format);
  const auto* data =
      static_cast<const std::byte*>(matrix.data) + (tile.row * matrix.stride + tile.col) * bytes;
  return {matrix.format, data, tile.rows, tile.cols, matrix.stride};
}

// Where the band after one of a tile begins, in this tile or the next; null where there is none of
// the same shape.
const void* band_after(const ConstMatrix& matrix, const Tile& tile, const Tile& band,
                       std::size_t next_tile, std::size_t tiles_end) {
  Tile next = {band.row + band.rows, band.col, band.rows, band.cols};
  std::size_t rows_end = tile.row + tile.rows;
  if (next.row == rows_end) {
    if (next_tile == tiles_end) return nullptr;
    next = tile_at(matrix, next_tile);
    rows_end = next.row + next.rows;
    if (next.cols != band.cols) return nullptr;
  }
  return next.row + band.rows <= rows_end ? part_of(matrix, next).data : nullptr;
}

void* after(void* packed, std::size_t bytes) { return static_cast<std::byte*>(packed) + bytes; }

// A tile's codes as part of a weight of (whole_n, whole_k), from (n, k) on.
PackWeightsArgs weight_part(Format format, const std::uint8_t* codes, bool transposed,
                            const Tile& in, std::size_t whole_k, const PackedForms& to) {
  void* packed = transposed ? to.weights_transposed : to.weights;
  const std::size_t at = kernels::packed_weight_bytes(format, in.row, whole_k) +
                         in.col / 2 * kernels::packed_tile_bytes(format);
  return {format,
          codes,
          kPackTile,
          transposed,
          in.rows,
          in.cols,
          0,
          ceil_div(in.rows, kStrip),
          after(packed, at),
          to.stream,
          whole_k};
}

// The same of activations of (whole_m, any k).
PackActivationsArgs activation_part(Format format, const std::uint8_t* codes, bool transposed,
                                    const Tile& in, std::size_t whole_m, const PackedForms& to) {
  void* packed = transposed ? to.activations_transposed : to.activations;
  const std::size_t height = kernels::panel_rows(whole_m);
  const std::size_t at = kernels::packed_activation_bytes(to.arithmetic, whole_m, in.col);
  return {format,
          codes,
          kPackTile,
          transposed,
          whole_m,
          in.cols,
          to.arithmetic,
          0.0f,
          0,
          ceil_div(in.cols, kChunk),
          in.row / height,
          ceil_div(in.row + in.rows, height),
          after(packed, at),
          in.row};
}

void pack_tile(const PackKernels& pack, const ConstMatrix& matrix, const Tile& tile, Format format,
               const std::uint8_t* codes, const PackedForms& to) {
  const Tile turned = {tile.col, tile.row, tile.cols, tile.rows};
  if (to.weights != nullptr) {
    pack.pack_weights(weight_part(format, codes, false, tile, matrix.cols, to));
  }
  if (to.weights_transposed != nullptr) {
    pack.pack_weights(weight_part(format, codes, true, turned, matrix.rows, to));
  }
  if (to.activations != nullptr) {
    pack.pack_activations(activation_part(format, codes, false, tile, matrix.rows, to));
  }
  if (to.activations_transposed != nullptr) {
    pack.pack_activations(activation_part(format, codes, true, turned, matrix.cols, to));
  }
}

void check(bool ok, std::string_view operation, std::string_view expected) {
  if (!ok) throw ContractError(fmt::format("{}: expected {}", operation, expected));
}

}  // namespace

std::size_t pack_tiles(std::size_t rows, std::size_t cols) {
  return ceil_div(rows, kPackTile) * ceil_div(cols, kPackTile);
}

std::optional<NonFinite> quantize_pack_blocks(const kernels::CastKernels& cast,
                                              const PackKernels& pack, const ConstMatrix& matrix,
                                              const BlockRecipe& recipe, std::span<float> scales,
                                              const PackedForms& to, TileRange tiles,
                                              std::span<std::uint8_t> scratch) {
  constexpr std::string_view kName = "quantize_pack_blocks";
  const BlockSize& block = recipe.block;
  check(block.rows != 0 && block.cols != 0 && kPackTile % block.rows == 0 &&
            kPackTile % block.cols == 0,
        kName,
        fmt::format("blocks that divide {}, given {} x {}", kPackTile, block.rows, block.cols));
  const std::size_t grid_cols = ceil_div(matrix.cols, block.cols);
  check(scales.size() == grid_cols * ceil_div(matrix.rows, block.rows), kName,
        fmt::format("{} scales, given {}", grid_cols * ceil_div(matrix.rows, block.rows),
                    scales.size()));
  check(scratch.size() >= kPackScratch, kName, fmt::format("{} bytes of scratch", kPackScratch));

  std::vector<float> tile_scales(kPackTile / block.rows * (kPackTile / block.cols));
  for (std::size_t t = tiles.begin; t < tiles.end; ++t) {
    const Tile tile = tile_at(matrix, t);
    const std::size_t across = ceil_div(tile.cols, block.cols);
    const std::size_t down = ceil_div(tile.rows, block.rows);
    std::optional<NonFinite> bad =
        quantize_blocks(cast, part_of(matrix, tile), recipe, {scratch.data(), kPackTile},
                        std::span(tile_scales).first(down * across), false);
    if (bad) return NonFinite{tile.row + bad->row, tile.col + bad->col, bad->value};
    for (std::size_t r = 0; r < down; ++r) {
      const std::size_t at = (tile.row / block.rows + r) * grid_cols + tile.col / block.cols;
      std::copy_n(tile_scales.begin() + r * across, across, scales.begin() + at);
    }
    pack_tile(pack, matrix, tile, Format::e4m3fn, scratch.data(), to);
  }
  return std::nullopt;
}

void quantize_pack_scaled(const kernels::CastKernels& cast, const PackKernels& pack,
                          const ConstMatrix& matrix, Format code_format, float factor,
                          const PackedForms& to, TileRange tiles, std::span<std::uint8_t> scratch,
                          std::uint32_t* amax) {
  constexpr std::string_view kName = "quantize_pack_scaled";
  check(code_format == Format::e4m3fn || code_format == Format::e5m2, kName, "e4m3fn or e5m2");
  check(scratch.size() >= kPackScratch, kName, fmt::format("{} bytes of scratch", kPackScratch));
  for (std::size_t t = tiles.begin; t < tiles.end; ++t) {
    const Tile tile = tile_at(matrix, t);
    for (std::size_t r = 0; r < tile.rows; r += kBandRows) {
      const Tile band = {tile.row + r, tile.col, std::min(kBandRows, tile.rows - r), tile.cols};
      const ConstMatrix from = part_of(matrix, band);
      cast.block_quantize({from.format, from.data, from.stride, from.rows, from.cols, from.cols,
                           &factor, kernels::ScaleOp::multiply, code_format,
                           scratch.data() + r * kPackTile, kPackTile,
                           band_after(matrix, tile, band, t + 1, tiles.end), false, amax});
    }
    pack_tile(pack, matrix, tile, code_format, scratch.data(), to);
  }
}

}  // namespace octavo
