#include "octavo/ops/quantized_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/base/ceil_div.h"
#include "octavo/base/float_mode.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/layout.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/gemm_internal.h"

namespace octavo::ops {
namespace {

using kernels::kStrip;

constexpr const char* kName = "quantize";

// A tile in f32 (256 KiB) and its codes stay in L2; whole strips and blocks both ways. 128 rows of
// a weight that is packed transposed are runs of 4 KiB.
constexpr std::size_t kTileRows = 128, kTileCols = 512;

// Rows that are quantized with a known scale while as many are read ahead.
constexpr std::size_t kBandRows = 16;

struct Tile {
  std::size_t row, col, rows, cols;
};

void resize(AlignedBytes& bytes, std::size_t size) {
  if (bytes.size() != size) bytes = AlignedBytes(size);
}

ConstMatrix part_of(const ConstMatrix& matrix, const Tile& tile) {
  const auto* data = static_cast<const std::byte*>(matrix.data) +
                     (tile.row * matrix.stride + tile.col) * bytes_per_element(matrix.format);
  return {matrix.format, data, tile.rows, tile.cols, matrix.stride};
}

bool is_by_block(const TensorRecipe& recipe) { return recipe.scaling == Scaling::blocks; }

// Whether codes serve products along rows and along columns.
bool is_square(const TensorRecipe& recipe) {
  return !is_by_block(recipe) || recipe.block.rows == recipe.block.cols;
}

void check_recipe(const TensorRecipe& recipe) {
  const auto refuse = [](const std::string& given, const char* expected) {
    throw ContractError(fmt::format("{}: given {}, expected {}", kName, given, expected));
  };
  switch (recipe.format) {
    case Format::e4m3fn:
    case Format::e5m2:
    case Format::e4m3fnuz:
    case Format::e5m2fnuz:
      break;
    default:
      refuse(fmt::format("{} codes", format_name(recipe.format)),
             "e4m3fn, e5m2, e4m3fnuz or e5m2fnuz");
  }
  if (recipe.scaling == Scaling::delayed && !(std::isfinite(recipe.scale) && recipe.scale > 0)) {
    refuse(fmt::format("scale {}", recipe.scale), "a finite, positive one");
  }
  const auto [rows, cols] = std::pair(recipe.block.rows, recipe.block.cols);
  const bool is_width = cols == 32 || cols == 64 || cols == 128;
  if (is_by_block(recipe) && !(is_width && (rows == 1 || rows == cols))) {
    refuse(fmt::format("blocks of {} x {}", rows, cols), "1 x w or w x w of w = 32, 64 or 128");
  }
}

// The scales of a matrix (rows, cols) in blocks.
TensorScales grid_of(std::size_t rows, std::size_t cols, const BlockSize& block) {
  const std::size_t stride = ceil_div(cols, block.cols);
  return {std::vector<float>(ceil_div(rows, block.rows) * stride), stride, block};
}

TensorScales transposed(const TensorScales& scales, std::size_t rows, std::size_t cols) {
  TensorScales to = grid_of(cols, rows, {scales.block.cols, scales.block.rows});
  for (std::size_t i = 0; i < scales.data.size(); ++i) {
    to.data[i % scales.stride * to.stride + i / scales.stride] = scales.data[i];
  }
  return to;
}

ScaleGrid view(const TensorScales& scales) {
  return {scales.data.data(), scales.stride, scales.block, Format::f32};
}

// Memory of a thread.
struct Scratch {
  AlignedBytes codes, values;
};

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

class Quantization {
 public:
  Quantization(const Operand& source, const TensorRecipe& recipe, const TensorForms& forms,
               QuantizedTensor& to, const Context& context)
      : source_(source),
        matrix_(source.matrix),
        recipe_(recipe),
        forms_(forms),
        to_(to),
        pool_(*context.pool),
        isa_(selected_level(kName)),
        cast_(kernels::cast_kernels(isa_)),
        pack_(kernels::pack_kernels(isa_)) {}

  void run() {
    const DefaultFloatMode mode;
    prepare_memory();
    if (recipe_.scaling == Scaling::current) {
      find_amax();
      choose_scale();
    }
    if (recipe_.scaling == Scaling::delayed) {
      to_.scales.data = {recipe_.scale};
      factor_ = recipe_.scale;
      op_ = kernels::ScaleOp::divide;
    }
    std::vector<std::uint32_t> amax(parts());
    over_tiles([&](int part, const Tile& tile) {
      // A copy: neighbours in the vector share a cache line.
      std::uint32_t largest = amax[static_cast<std::size_t>(part)];
      quantize_tile(tile, largest);
      amax[static_cast<std::size_t>(part)] = largest;
    });
    if (recipe_.scaling == Scaling::delayed) set_amax(amax);
    pack_all_scales();
  }

 private:
  static constexpr std::size_t kTileElements = kTileRows * kTileCols;

  std::size_t tiles_down() const { return ceil_div(matrix_.rows, kTileRows); }
  std::size_t tiles_across() const { return ceil_div(matrix_.cols, kTileCols); }
  std::size_t parts() const {
    return std::min(static_cast<std::size_t>(pool_.threads()), tiles_down() * tiles_across());
  }
  bool by_row() const {
    return forms_.codes || forms_.weight ||
           (is_square(recipe_) && (forms_.codes_transposed || forms_.weight_transposed));
  }
  bool by_column() const {
    return !is_square(recipe_) && (forms_.codes_transposed || forms_.weight_transposed);
  }

  // body(part, tile) for all tiles, each thread's one after another.
  template <class Body>
  void over_tiles(const Body& body) {
    const int count = static_cast<int>(parts());
    pool_.run(count, [&](int part) {
      const DefaultFloatMode mode;
      const Range mine = split(tiles_down() * tiles_across(), 1, count, part);
      for (std::size_t t = mine.begin; t < mine.end; ++t) {
        const std::size_t row = t / tiles_across() * kTileRows;
        const std::size_t col = t % tiles_across() * kTileCols;
        body(part, {row, col, std::min(kTileRows, matrix_.rows - row),
                    std::min(kTileCols, matrix_.cols - col)});
      }
    });
  }

  void prepare_memory() {
    const std::size_t rows = matrix_.rows, cols = matrix_.cols, size = rows * cols;
    to_.format = recipe_.format;
    to_.rows = rows;
    to_.cols = cols;
    to_.amax = 0;
    const bool square = to_.is_square = is_square(recipe_);
    resize(to_.codes, forms_.codes || (square && forms_.codes_transposed) ? size : 0);
    resize(to_.codes_by_column, !square && forms_.codes_transposed ? size : 0);
    to_.scales =
        is_by_block(recipe_) ? grid_of(rows, cols, recipe_.block) : grid_of(1, 1, {rows, cols});
    to_.scales_transposed = grid_of(cols, rows, recipe_.block);
    const auto prepare = [&](std::optional<PackedWeight>& weight, bool wanted, std::size_t n,
                             std::size_t k) {
      if (!wanted) return weight.reset();
      if (!weight) weight.emplace();
      weight->format = recipe_.format;
      weight->n = n;
      weight->k = k;
      resize(weight->bytes, kernels::packed_weight_bytes(recipe_.format, n, k));
    };
    prepare(to_.weight, forms_.weight, rows, cols);
    prepare(to_.weight_transposed, forms_.weight_transposed, cols, rows);
  }

  void find_amax() {
    std::vector<std::uint32_t> amax(parts());
    over_tiles([&](int part, const Tile& tile) {
      block_row_amax(cast_, values_of(tile), tile.cols,
                     std::span(amax).subspan(static_cast<std::size_t>(part), 1));
    });
    set_amax(amax);
  }

  void set_amax(const std::vector<std::uint32_t>& amax) {
    to_.amax = magnitude(value_format(), *std::max_element(amax.begin(), amax.end()));
  }

  void choose_scale() {
    BlockScale scale{std::numeric_limits<float>::quiet_NaN(), 1.0f};
    if (std::isfinite(to_.amax)) {
      scale = compute_scale(to_.amax, recipe_.rule, recipe_.scale_fmt,
                            static_cast<float>(traits(recipe_.format).largest));
    }
    to_.scales.data = {scale.scale};
    factor_ = scale.factor;
    op_ = scale_op(recipe_.rule, recipe_.scale_fmt);
  }

  bool is_requantized() const { return bits_per_element(matrix_.format) == 8; }
  Format value_format() const { return is_requantized() ? Format::f32 : matrix_.format; }

  // The tile in value_format(): where it is, or dequantized in memory of the thread.
  ConstMatrix values_of(const Tile& tile) const {
    const ConstMatrix part = part_of(matrix_, tile);
    if (!is_requantized()) return part;
    AlignedBytes& values = thread_scratch().values;
    resize(values, kTileElements * sizeof(float));
    const ScaleGrid& grid = source_.scale;
    BlockSize block{matrix_.rows, matrix_.cols};
    std::vector<float> scales = {1.0f};
    if (grid.data != nullptr) {
      block = {std::min<std::uint64_t>(grid.block.rows, matrix_.rows),
               std::min<std::uint64_t>(grid.block.cols, matrix_.cols)};
      scales.clear();
      for (std::size_t r = tile.row / block.rows; r <= (tile.row + tile.rows - 1) / block.rows;
           ++r) {
        for (std::size_t c = tile.col / block.cols; c <= (tile.col + tile.cols - 1) / block.cols;
             ++c) {
          scales.push_back(scale_at(grid, r * grid.block.rows, c));
        }
      }
    }
    dequantize_blocks(cast_,
                      {matrix_.format, static_cast<const std::uint8_t*>(part.data), part.stride,
                       tile.row, tile.col, tile.rows, tile.cols},
                      block, scales,
                      {Format::f32, values.data(), kTileCols, false, false, nullptr});
    return {Format::f32, values.data(), tile.rows, tile.cols, kTileCols};
  }

  void quantize_tile(const Tile& tile, std::uint32_t& amax) {
    const ConstMatrix values = values_of(tile);
    if (by_row()) {
      const CodeMatrix codes = codes_at(to_.codes, tile);
      if (is_by_block(recipe_)) {
        const std::vector<float> scales = quantize_in_blocks(values, recipe_.block, codes);
        put_scales(scales, tile);
      } else {
        quantize_scaled(values, codes, amax);
      }
      if (to_.weight) pack_weight_part(*to_.weight, false, codes, tile);
      if (to_.weight_transposed && !by_column()) {
        pack_weight_part(*to_.weight_transposed, true, codes, tile);
      }
    }
    if (by_column()) {
      const CodeMatrix codes = codes_at(to_.codes_by_column, tile);
      const BlockSize block{recipe_.block.cols, recipe_.block.rows};
      put_scales_by_column(quantize_in_blocks(values, block, codes), tile);
      if (to_.weight_transposed) pack_weight_part(*to_.weight_transposed, true, codes, tile);
    }
  }

  // Where the codes of a tile go: into the tensor's, or memory of the thread.
  CodeMatrix codes_at(AlignedBytes& codes, const Tile& tile) const {
    if (codes.size() != 0) return {codes.data() + tile.row * matrix_.cols + tile.col, matrix_.cols};
    AlignedBytes& scratch = thread_scratch().codes;
    resize(scratch, kTileElements);
    return {scratch.data(), kTileCols};
  }

  void quantize_scaled(const ConstMatrix& values, CodeMatrix codes, std::uint32_t& amax) const {
    const bool finds_amax = recipe_.scaling == Scaling::delayed;
    if (recipe_.format != Format::e4m3fn && recipe_.format != Format::e5m2) {
      if (finds_amax) block_row_amax(cast_, values, values.cols, std::span(&amax, 1));
      return block_row_quantize(cast_, values, values.cols, std::span(&factor_, 1), op_, codes,
                                nullptr, false, recipe_.format);
    }
    for (std::size_t r = 0; r < values.rows; r += kBandRows) {
      const ConstMatrix band =
          part_of(values, {r, 0, std::min(kBandRows, values.rows - r), values.cols});
      const void* next = r + 2 * kBandRows <= values.rows
                             ? part_of(values, {r + kBandRows, 0, kBandRows, values.cols}).data
                             : nullptr;
      cast_.block_quantize({band.format, band.data, band.stride, band.rows, band.cols, band.cols,
                            &factor_, op_, recipe_.format, codes.data + r * codes.stride,
                            codes.stride, next, false, finds_amax ? &amax : nullptr});
    }
  }

  // The scales of the tile's blocks.
  std::vector<float> quantize_in_blocks(const ConstMatrix& values, const BlockSize& block,
                                        CodeMatrix codes) const {
    std::vector<float> scales(ceil_div(values.rows, block.rows) *
                              ceil_div(values.cols, block.cols));
    quantize_blocks(
        cast_, values,
        {block, recipe_.rule, recipe_.scale_fmt, recipe_.format, NonFiniteBlocks::nan_scale}, codes,
        scales, false);
    return scales;
  }

  void put_scales(const std::vector<float>& scales, const Tile& tile) {
    const BlockSize& block = recipe_.block;
    const std::size_t across = ceil_div(tile.cols, block.cols);
    float* to =
        to_.scales.data.data() + tile.row / block.rows * to_.scales.stride + tile.col / block.cols;
    for (std::size_t i = 0; i < scales.size(); ++i) {
      to[i / across * to_.scales.stride + i % across] = scales[i];
    }
  }

  void put_scales_by_column(const std::vector<float>& scales, const Tile& tile) {
    TensorScales& grid = to_.scales_transposed;
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const std::size_t row = tile.row / recipe_.block.cols + i / tile.cols;
      grid.data[(tile.col + i % tile.cols) * grid.stride + row] = scales[i];
    }
  }

  // A tile's codes as part of a weight, which is (matrix.rows, matrix.cols) or that transposed.
  void pack_weight_part(PackedWeight& weight, bool transposed, CodeMatrix codes,
                        const Tile& tile) const {
    const Tile in = transposed ? Tile{tile.col, tile.row, tile.cols, tile.rows} : tile;
    const Format format = recipe_.format;
    const std::size_t at = kernels::packed_weight_bytes(format, in.row, weight.k) +
                           in.col / 2 * kernels::packed_tile_bytes(format);
    pack_.pack_weights({format, codes.data, codes.stride, transposed, in.rows, in.cols, 0,
                        ceil_div(in.rows, kStrip), weight.bytes.data() + at, true, weight.k});
  }

  void pack_all_scales() {
    if (is_square(recipe_)) {
      to_.scales_transposed = transposed(to_.scales, matrix_.rows, matrix_.cols);
    }
    const auto pack = [](std::optional<PackedWeight>& weight, const TensorScales& scales) {
      if (!weight) return;
      weight->scale =
          pack_scales({{weight->format, nullptr, weight->n, weight->k, weight->k}, view(scales)});
    };
    pack(to_.weight, to_.scales);
    pack(to_.weight_transposed, to_.scales_transposed);
  }

  const Operand& source_;
  const ConstMatrix& matrix_;
  const TensorRecipe& recipe_;
  const TensorForms& forms_;
  QuantizedTensor& to_;
  ThreadPool& pool_;
  Isa isa_;
  const kernels::CastKernels& cast_;
  const kernels::PackKernels& pack_;
  float factor_ = 1.0f;
  kernels::ScaleOp op_ = kernels::ScaleOp::multiply;
};

void check_form(bool is_there, const char* form) {
  if (!is_there) {
    throw ContractError(fmt::format(
        "QuantizedTensor: given a tensor without {}, expected one quantized with them", form));
  }
}

}  // namespace

Operand QuantizedTensor::operand() const {
  check_form(codes.size() == rows * cols, "codes");
  return {{format, codes.data(), rows, cols, cols}, view(scales)};
}

Operand QuantizedTensor::operand_transposed() const {
  const AlignedBytes& bytes = is_square ? codes : codes_by_column;
  check_form(bytes.size() == rows * cols, "codes_transposed");
  return {{format, bytes.data(), cols, rows, cols}, view(scales_transposed), true};
}

void quantize(const Operand& source, const TensorRecipe& recipe, const TensorForms& forms,
              QuantizedTensor& to, const Context& context) {
  check_operand(kName, "source", source);
  check_context(kName, context);
  check_recipe(recipe);
  if (source.matrix.rows == 0) {
    throw ContractError(fmt::format("{}: given a source without rows, expected at least 1", kName));
  }
  if (source.transposed) {
    throw ContractError(
        fmt::format("{}: given a transposed source, expected one row by row", kName));
  }
  Quantization(source, recipe, forms, to, context).run();
}

}  // namespace octavo::ops
