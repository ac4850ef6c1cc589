#include "octavo/ops/weight_packer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/base/ceil_div.h"
#include "octavo/base/float_mode.h"
#include "octavo/formats/convert.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/layout.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/gemm_internal.h"

namespace octavo::ops {
namespace {

using kernels::kStrip;
using kernels::packed_weight_offset;

// Element (n, k) without its scale, as the products see it.
template <Format F>
float element_at(const PackedWeight& w, std::size_t n, std::size_t k) {
  using Cell = Code<F>;
  if (w.rows == nullptr) {
    const std::size_t at = packed_weight_offset<sizeof(Cell)>(n, k, ceil_div(w.k, 2));
    return decode<F>(kernels::element<Cell>(w.bytes.data(), at));
  }
  const float value = decode<F>(kernels::element<Cell>(w.rows, n * w.k + k));
  return F == Format::bf16 && std::abs(value) < kernels::kFlushAgainstBf16 ? 0.0f : value;
}

float scale_of(const PackedWeight& w, std::size_t n, std::size_t k) {
  const PackedScales& s = w.scale;
  const std::size_t lanes = s.lanes ? kStrip : 1;
  const std::size_t blocks = s.width == 0 ? 1 : ceil_div(w.k, s.width);
  const std::size_t strip = s.per_strip ? n / kStrip : 0, block = s.width == 0 ? 0 : k / s.width;
  return s.data[(strip * blocks + block) * lanes + (s.lanes ? n % kStrip : 0)];
}

template <Format F>
void gather(const PackedWeight& w, std::size_t n, float* dst) {
  const std::size_t width = w.scale.width == 0 ? w.k : w.scale.width;
  for (std::size_t first = 0; first < w.k; first += width) {
    const float scale = scale_of(w, n, first);
    for (std::size_t k = first; k < std::min(w.k, first + width); ++k) {
      dst[k] = element_at<F>(w, n, k) * scale;
    }
  }
}

}  // namespace

WeightPacker::WeightPacker(Format format, std::size_t n, std::size_t k) {
  check_operand("WeightPacker", "w", {{format, nullptr, 0, k, k}, {}, false});
  if (n > 0 && !is_addressable(n, k, k, format)) {
    throw ContractError(
        fmt::format("WeightPacker: given ({}, {}), expected one that memory can hold", n, k));
  }
  weight_ = {format, n, k, AlignedBytes(kernels::packed_weight_bytes(format, n, k)), {}};
}

void WeightPacker::add(std::size_t row, const ConstMatrix& rows, const Context& context) {
  check_operand("WeightPacker::add", "rows", {rows, {}, false});
  check_context("WeightPacker::add", context);
  const bool ends = row + rows.rows == weight_.n;
  if (rows.format != weight_.format || rows.cols != weight_.k || row > weight_.n ||
      rows.rows > weight_.n - row || row % kPackRows != 0 ||
      (rows.rows % kPackRows != 0 && !ends)) {
    throw ContractError(fmt::format(
        "WeightPacker::add: given rows {} to {} of {} columns in {}, expected whole pieces of {} "
        "rows of ({}, {}) in {}",
        row, row + rows.rows, rows.cols, format_name(rows.format), kPackRows, weight_.n, weight_.k,
        format_name(weight_.format)));
  }
  if (rows.rows == 0) return;
  rows_ += rows.rows;
  const std::size_t strip_bytes = kernels::packed_weight_bytes(weight_.format, kStrip, weight_.k);
  pack_strips("WeightPacker::add", rows, false, weight_.bytes.data() + row / kStrip * strip_bytes,
              context);
}

PackedWeight WeightPacker::finish(const ScaleGrid& scale) {
  const Operand whole{{weight_.format, nullptr, weight_.n, weight_.k, weight_.k}, scale, false};
  check_scale("WeightPacker::finish", "w", whole);
  if (rows_ != weight_.n) {
    throw ContractError(fmt::format("WeightPacker::finish: given {} rows, expected all of ({}, {})",
                                    rows_, weight_.n, weight_.k));
  }
  weight_.scale = pack_scales(whole);
  return std::move(weight_);
}

void gather_rows(const PackedWeight& w, const std::int32_t* ids, std::size_t count, float* dst,
                 std::size_t dst_stride) {
  const DefaultFloatMode mode;
  check_packed("gather_rows", w);
  for (std::size_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= w.n) {
      throw ContractError(
          fmt::format("gather_rows: given row {}, expected one below {}", ids[i], w.n));
    }
    const auto row = static_cast<std::size_t>(ids[i]);
    float* to = dst + i * dst_stride;
    switch (w.format) {
      case Format::e4m3fn:
        gather<Format::e4m3fn>(w, row, to);
        break;
      case Format::e5m2:
        gather<Format::e5m2>(w, row, to);
        break;
      case Format::e4m3fnuz:
        gather<Format::e4m3fnuz>(w, row, to);
        break;
      case Format::e5m2fnuz:
        gather<Format::e5m2fnuz>(w, row, to);
        break;
      case Format::bf16:
        gather<Format::bf16>(w, row, to);
        break;
      default:
        gather<Format::f32>(w, row, to);
    }
  }
}

}  // namespace octavo::ops
