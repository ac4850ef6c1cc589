#include "octavo/quant/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/formats/convert.h"

namespace octavo {
namespace {

// Elements quantized between two looks at amax. One block of the usual size: its 32 KiB of BF16 are
// still in L1 for the second pass, and wider chunks were slower (of 128 rows and 128 columns: 76 %
// of the stream roof, 256: 62 %, 512: 60 %, on a Xeon with 2 MiB of L2).
constexpr std::uint64_t kChunkElements = 128 * 128;

const std::byte* element(const ConstMatrix& matrix, std::size_t row, std::size_t col) {
  return static_cast<const std::byte*>(matrix.data) +
         (row * matrix.stride + col) * bytes_per_element(matrix.format);
}

void check(bool ok, std::string_view operation, std::size_t given, std::uint64_t expected) {
  if (!ok)
    throw ContractError(
        fmt::format("{}: {} scales given, {} expected", operation, given, expected));
}

float widen(Format format, std::uint32_t bits) {
  if (format == Format::f32) return decode<Format::f32>(bits);
  const auto code = static_cast<std::uint16_t>(bits);
  return format == Format::bf16 ? decode<Format::bf16>(code) : decode<Format::f16>(code);
}

std::uint32_t load_bits(const ConstMatrix& matrix, std::size_t row, std::size_t col) {
  std::uint32_t bits = 0;  // little-endian: a 16-bit element lands in the low half
  std::memcpy(&bits, element(matrix, row, col), bytes_per_element(matrix.format));
  return bits;
}

template <class Bits>
Bits load(const std::byte* row, std::size_t c) {  // rows need no alignment
  Bits bits;
  std::memcpy(&bits, row + c * sizeof(Bits), sizeof(Bits));
  return bits;
}

void widen_row(const ConstMatrix& rows, std::size_t r, std::vector<float>& to) {
  const std::byte* from = element(rows, r, 0);
  if (rows.format == Format::f32) {
    std::memcpy(to.data(), from, rows.cols * sizeof(float));
  } else if (rows.format == Format::bf16) {
    for (std::size_t c = 0; c < rows.cols; ++c) {
      to[c] = std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(from, c)} << 16);
    }
  } else {
    for (std::size_t c = 0; c < rows.cols; ++c) to[c] = widen(rows.format, load_bits(rows, r, c));
  }
}

// block_row_amax of blocks of one column: kernels go along rows.
template <class Bits>
void column_amax(const ConstMatrix& rows, std::span<std::uint32_t> amax) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  for (std::size_t r = 0; r < rows.rows; ++r) {
    const std::byte* row = element(rows, r, 0);
    for (std::size_t c = 0; c < rows.cols; ++c) {
      // Compared as signed numbers, which baseline x86-64 has vectors for.
      const auto bits = static_cast<std::int32_t>(load<Bits>(row, c) & kMagnitude);
      amax[c] = static_cast<std::uint32_t>(std::max(static_cast<std::int32_t>(amax[c]), bits));
    }
  }
}

// What block_quantize does, in two steps (scaled to f32, then cast), for blocks of one column and
// formats that it does not write.
void scale_and_cast(const kernels::CastKernels& kernels, const ConstMatrix& rows,
                    std::uint64_t block_cols, std::span<const float> factors, kernels::ScaleOp op,
                    CodeMatrix codes, Format code_format) {
  std::vector<float> factor(rows.cols), row(rows.cols);
  for (std::size_t c = 0; c < rows.cols; ++c) factor[c] = factors[c / block_cols];
  for (std::size_t r = 0; r < rows.rows; ++r) {
    widen_row(rows, r, row);
    if (op == kernels::ScaleOp::multiply) {
      for (std::size_t c = 0; c < rows.cols; ++c) row[c] *= factor[c];
    } else {
      for (std::size_t c = 0; c < rows.cols; ++c) row[c] /= factor[c];
    }
    kernels.cast({Format::f32, row.data(), code_format, codes.data + r * codes.stride, rows.cols,
                  Overflow::saturate});
  }
}

}  // namespace

float magnitude(Format format, std::uint32_t bits) { return widen(format, bits); }

bool is_finite_magnitude(Format format, std::uint32_t bits) {
  return bits < traits(format).infinity_code;
}

void block_row_amax(const kernels::CastKernels& kernels, const ConstMatrix& rows,
                    std::uint64_t block_cols, std::span<std::uint32_t> amax) {
  check(amax.size() == ceil_div(rows.cols, block_cols), "block_row_amax", amax.size(),
        ceil_div(rows.cols, block_cols));
  if (block_cols == 1) {
    return rows.format == Format::f32 ? column_amax<std::uint32_t>(rows, amax)
                                      : column_amax<std::uint16_t>(rows, amax);
  }
  kernels.block_amax(
      {rows.format, rows.data, rows.stride, rows.rows, rows.cols, block_cols, amax.data()});
}

void block_row_quantize(const kernels::CastKernels& kernels, const ConstMatrix& rows,
                        std::uint64_t block_cols, std::span<const float> factors,
                        kernels::ScaleOp op, CodeMatrix codes, const void* next, bool stream,
                        Format code_format) {
  check(factors.size() == ceil_div(rows.cols, block_cols), "block_row_quantize", factors.size(),
        ceil_div(rows.cols, block_cols));
  const bool is_written = code_format == Format::e4m3fn || code_format == Format::e5m2;
  if (block_cols == 1 || !is_written) {
    return scale_and_cast(kernels, rows, block_cols, factors, op, codes, code_format);
  }
  kernels.block_quantize({rows.format, rows.data, rows.stride, rows.rows, rows.cols, block_cols,
                          factors.data(), op, code_format, codes.data, codes.stride, next, stream});
}

std::optional<NonFinite> find_non_finite(const ConstMatrix& rows) {
  for (std::size_t r = 0; r < rows.rows; ++r) {
    for (std::size_t c = 0; c < rows.cols; ++c) {
      const std::uint32_t bits = load_bits(rows, r, c);
      if (is_finite_magnitude(rows.format, bits & traits(rows.format).magnitude_bits())) continue;
      return NonFinite{r, c, widen(rows.format, bits)};
    }
  }
  return std::nullopt;
}

std::optional<NonFinite> quantize_blocks(const kernels::CastKernels& kernels,
                                         const ConstMatrix& matrix, const BlockRecipe& recipe,
                                         CodeMatrix codes, std::span<float> scales, bool stream) {
  if (matrix.rows == 0 || matrix.cols == 0) return std::nullopt;
  const std::uint64_t block_rows = std::min<std::uint64_t>(recipe.block.rows, matrix.rows);
  const std::uint64_t block_cols = std::min<std::uint64_t>(recipe.block.cols, matrix.cols);
  const std::uint64_t grid_cols = ceil_div(matrix.cols, block_cols);
  const std::uint64_t grid_rows = ceil_div(matrix.rows, block_rows);
  check(scales.size() == grid_rows * grid_cols, "quantize_blocks", scales.size(),
        grid_rows * grid_cols);

  const kernels::ScaleOp op = scale_op(recipe.rule, recipe.scale_fmt);
  const auto largest = static_cast<float>(traits(recipe.code_format).largest);
  const std::uint64_t chunk_blocks =
      std::max<std::uint64_t>(1, kChunkElements / (block_rows * block_cols));
  std::vector<std::uint32_t> amax(std::min(chunk_blocks, grid_cols));
  std::vector<float> factors(amax.size());
  for (std::uint64_t block_row = 0; block_row < grid_rows; ++block_row) {
    const std::uint64_t row = block_row * block_rows;
    const std::size_t rows = std::min(block_rows, matrix.rows - row);
    for (std::uint64_t first = 0; first < grid_cols; first += chunk_blocks) {
      const std::uint64_t blocks = std::min(chunk_blocks, grid_cols - first);
      const std::uint64_t col = first * block_cols;
      const std::size_t cols = std::min(blocks * block_cols, matrix.cols - col);
      const ConstMatrix chunk{matrix.format, element(matrix, row, col), rows, cols, matrix.stride};

      std::fill_n(amax.begin(), blocks, 0u);
      block_row_amax(kernels, chunk, block_cols, std::span(amax).first(blocks));
      for (std::uint64_t b = 0; b < blocks; ++b) {
        const bool is_finite = is_finite_magnitude(matrix.format, amax[b]);
        if (!is_finite && recipe.non_finite == NonFiniteBlocks::end) {
          std::optional<NonFinite> bad = find_non_finite(
              {matrix.format, element(matrix, row, 0), rows, matrix.cols, matrix.stride});
          bad->row += row;
          return bad;
        }
        const BlockScale scale = is_finite
                                     ? compute_scale(magnitude(matrix.format, amax[b]), recipe.rule,
                                                     recipe.scale_fmt, largest)
                                     : BlockScale{std::numeric_limits<float>::quiet_NaN(), 1.0f};
        scales[block_row * grid_cols + first + b] = scale.scale;
        factors[b] = scale.factor;
      }
      // Read ahead: the chunk to the right, or the first of the next block row, where it has the
      // same shape.
      const void* next = nullptr;
      if (col + 2 * cols <= matrix.cols) {
        next = element(matrix, row, col + cols);
      } else if (col + cols == matrix.cols && row + 2 * rows <= matrix.rows) {
        next = element(matrix, row + rows, 0);
      }
      block_row_quantize(kernels, chunk, block_cols, std::span(factors).first(blocks), op,
                         {codes.data + row * codes.stride + col, codes.stride}, next, stream,
                         recipe.code_format);
    }
  }
  return std::nullopt;
}

void dequantize_blocks(const kernels::CastKernels& kernels, const CodeWindow& codes,
                       const BlockSize& block_size, std::span<const float> scales,
                       const DequantizeTarget& to) {
  if (codes.rows == 0 || codes.cols == 0) return;
  // A block that ends beyond the window may as well end with it.
  const BlockSize block{std::min(block_size.rows, codes.row0 + codes.rows),
                        std::min(block_size.cols, codes.col0 + codes.cols)};
  const std::uint64_t first_row = codes.row0 / block.rows;
  const std::uint64_t first_col = codes.col0 / block.cols;
  const std::uint64_t grid_rows = (codes.row0 + codes.rows - 1) / block.rows - first_row + 1;
  const std::uint64_t grid_cols = (codes.col0 + codes.cols - 1) / block.cols - first_col + 1;
  check(scales.size() == grid_rows * grid_cols, "dequantize_blocks", scales.size(),
        grid_rows * grid_cols);
  const bool packed = codes.format == Format::e2m1fn;
  const std::size_t to_bytes = bytes_per_element(to.format);
  kernels::DequantizeCounts unwanted{};

  // A kernel call begins on a block boundary, so a first column block that is cut on its left is a
  // call of its own.
  const std::size_t head = codes.col0 % block.cols == 0
                               ? 0
                               : static_cast<std::size_t>(std::min<std::uint64_t>(
                                     codes.cols, block.cols - codes.col0 % block.cols));
  const auto call = [&](std::size_t row, std::size_t rows, std::size_t col, std::size_t cols,
                        const float* scale) {
    const std::uint8_t* from = codes.data + row * codes.stride + (packed ? col / 2 : col);
    kernels.block_dequantize(
        {codes.format, from, codes.stride, rows, cols, std::min<std::uint64_t>(block.cols, cols),
         scale, to.format, static_cast<std::byte*>(to.data) + (row * to.stride + col) * to_bytes,
         to.stride, to.saturate, to.counts != nullptr ? to.counts : &unwanted, to.stream});
  };
  std::size_t row = 0;
  for (std::uint64_t g = 0; g < grid_rows; ++g) {
    const std::uint64_t end = std::min((first_row + g + 1) * block.rows, codes.row0 + codes.rows);
    const std::size_t rows = end - codes.row0 - row;
    const float* scale = scales.data() + g * grid_cols;
    if (head > 0) call(row, rows, 0, head, scale);
    if (head < codes.cols) call(row, rows, head, codes.cols - head, scale + (head > 0 ? 1 : 0));
    row += rows;
  }
}

}  // namespace octavo
