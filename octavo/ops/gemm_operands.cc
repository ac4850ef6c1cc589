// Checks and scales of operands.
#include <fmt/format.h>

#include <algorithm>

#include "octavo/base/ceil_div.h"
#include "octavo/formats/convert.h"
#include "octavo/kernels/gemm/layout.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/gemm_internal.h"

namespace octavo::ops {
namespace {

using kernels::kStrip;

bool is_operand_format(Format format) {
  switch (format) {
    case Format::e4m3fn:
    case Format::e5m2:
    case Format::e4m3fnuz:
    case Format::e5m2fnuz:
    case Format::bf16:
    case Format::f32:
      return true;
    default:
      return false;
  }
}

[[noreturn]] void refuse(const char* operation, const char* name, const std::string& given,
                         std::string_view expected) {
  throw ContractError(
      fmt::format("{}: given {} with {}, expected {}", operation, name, given, expected));
}

constexpr std::string_view kAddressable = "one that memory can hold";

bool is_aligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

}  // namespace

bool is_scale_width(std::uint64_t block_cols, std::size_t cols) {
  return block_cols >= cols || block_cols == 32 || block_cols == 64 || block_cols % 128 == 0;
}

void check_scale(const char* operation, const char* name, const Operand& operand) {
  const ScaleGrid& scale = operand.scale;
  if (scale.data == nullptr) return;
  if (scale.format != Format::f32 && scale.format != Format::e8m0fnu) {
    refuse(operation, name, fmt::format("scales in {}", format_name(scale.format)),
           "f32 or e8m0fnu");
  }
  if (scale.format == Format::f32 && !is_aligned(scale.data, alignof(float))) {
    refuse(operation, name, "misaligned scales", "f32 aligned to 4 bytes");
  }
  const auto [rows, cols] = std::pair(scale.block.rows, scale.block.cols);
  const bool whole_rows = cols >= operand.matrix.cols;
  if (rows == 0 || cols == 0 || !is_scale_width(cols, operand.matrix.cols)) {
    refuse(operation, name, fmt::format("scales per block of {} x {}", rows, cols),
           "blocks of at least one row and of 32, 64, a multiple of 128 or all columns");
  }
  const std::size_t grid_cols = whole_rows ? 1 : ceil_div(operand.matrix.cols, cols);
  const std::size_t grid_rows =
      rows >= operand.matrix.rows ? 1 : ceil_div(operand.matrix.rows, rows);
  if (scale.stride < grid_cols && operand.matrix.rows > rows) {
    refuse(operation, name, fmt::format("scales of stride {}", scale.stride),
           fmt::format("at least {}, the blocks of a row", grid_cols));
  }
  if (!is_addressable(grid_rows, grid_cols, scale.stride, scale.format)) {
    refuse(operation, name, fmt::format("scales of stride {}", scale.stride), kAddressable);
  }
}

void check_operand(const char* operation, const char* name, const Operand& operand) {
  const ConstMatrix& m = operand.matrix;
  if (!is_operand_format(m.format)) {
    refuse(operation, name, fmt::format("elements in {}", format_name(m.format)),
           "e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, bf16 or f32");
  }
  if (m.cols == 0) refuse(operation, name, "K = 0", "at least 1");
  if (m.rows == 0) return;
  if (m.data == nullptr)
    refuse(operation, name, "data null", fmt::format("({}, {})", m.rows, m.cols));
  const std::size_t contiguous = operand.transposed ? m.rows : m.cols;
  const std::size_t lines = operand.transposed ? m.cols : m.rows;
  if (lines > 1 && m.stride < contiguous) {
    refuse(operation, name, fmt::format("stride {}", m.stride),
           fmt::format("at least {}, one {}", contiguous, operand.transposed ? "column" : "row"));
  }
  if (!is_addressable(lines, contiguous, m.stride, m.format)) {
    refuse(operation, name, fmt::format("({}, {}) of stride {}", m.rows, m.cols, m.stride),
           kAddressable);
  }
  const auto bytes = bytes_per_element(m.format);
  if (!is_aligned(m.data, bytes)) {
    refuse(operation, name, fmt::format("misaligned {} elements", format_name(m.format)),
           fmt::format("aligned to {} bytes", bytes));
  }
  check_scale(operation, name, operand);
}

void check_packed(const char* operation, const PackedWeight& w) {
  const auto refuse_size = [&](std::string_view what, std::size_t given, std::size_t expected) {
    refuse(operation, "w", fmt::format("{} {}", given, what),
           fmt::format("{} for ({}, {}) in {}, as pack_weight makes", expected, w.n, w.k,
                       format_name(w.format)));
  };
  if (!is_operand_format(w.format) || w.k == 0 ||
      !is_addressable(std::max<std::size_t>(w.n, 1), w.k, w.k, w.format)) {
    refuse(operation, "w", fmt::format("({}, {}) in {}", w.n, w.k, format_name(w.format)),
           "a weight that pack_weight made");
  }
  const std::size_t bytes =
      w.rows != nullptr ? 0 : kernels::packed_weight_bytes(w.format, w.n, w.k);
  if (w.bytes.size() != bytes) refuse_size("bytes", w.bytes.size(), bytes);
  const std::size_t scales = (w.scale.per_strip ? kernels::strips(w.n) : 1) *
                             (w.scale.width == 0 ? 1 : ceil_div(w.k, w.scale.width)) *
                             (w.scale.lanes ? kStrip : 1);
  if (w.scale.data.size() != scales) refuse_size("scales", w.scale.data.size(), scales);
}

void check_context(const char* operation, const Context& context) {
  if (context.pool == nullptr) refuse(operation, "context", "pool null", "a pool");
}

bool is_addressable(std::size_t lines, std::size_t length, std::size_t stride, Format format) {
  // No processor has more than 2^57 bytes of addresses.
  constexpr std::size_t kMostBits = std::size_t{1} << 60;
  std::size_t elements = 0;
  return !__builtin_mul_overflow(lines - 1, stride, &elements) &&
         !__builtin_add_overflow(elements, length, &elements) &&
         elements <= kMostBits / static_cast<std::size_t>(bits_per_element(format));
}

Isa selected_level(const char* operation) {
  const Result<Isa> selected = kernels::selected_isa();
  if (!selected) throw ContractError(fmt::format("{}: {}", operation, selected.error().message));
  return *selected;
}

std::size_t scale_width(const Operand& operand) {
  const ScaleGrid& scale = operand.scale;
  return scale.data == nullptr || scale.block.cols >= operand.matrix.cols ? 0 : scale.block.cols;
}

float scale_at(const ScaleGrid& grid, std::size_t row, std::size_t block) {
  const std::size_t at = row / grid.block.rows * grid.stride + block;
  if (grid.format == Format::f32) return static_cast<const float*>(grid.data)[at];
  return decode<Format::e8m0fnu>(static_cast<const std::uint8_t*>(grid.data)[at]);
}

PackedScales pack_scales(const Operand& w) {
  PackedScales scales;
  pack_scales(w, scales);
  return scales;
}

void pack_scales(const Operand& w, PackedScales& scales) {
  scales.data.clear();
  scales.width = 0;
  scales.per_strip = scales.lanes = false;
  if (w.scale.data == nullptr) {
    scales.data.push_back(1.0f);
    return;
  }
  const ScaleGrid& grid = w.scale;
  const std::size_t n = w.matrix.rows;
  scales.width = scale_width(w);
  scales.lanes = grid.block.rows < n && grid.block.rows % kStrip != 0;
  scales.per_strip = grid.block.rows < n;
  const std::size_t strips = scales.per_strip ? kernels::strips(n) : 1;
  const std::size_t blocks = scales.width == 0 ? 1 : ceil_div(w.matrix.cols, scales.width);
  const std::size_t lanes = scales.lanes ? kStrip : 1;
  scales.data.reserve(strips * blocks * lanes);
  for (std::size_t strip = 0; strip < strips; ++strip) {
    for (std::size_t block = 0; block < blocks; ++block) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const std::size_t row = strip * kStrip + lane;
        scales.data.push_back(row < n ? scale_at(grid, row, block) : 0.0f);
      }
    }
  }
}

}  // namespace octavo::ops
