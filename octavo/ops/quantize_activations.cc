#include "octavo/ops/quantize_activations.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/base/for_rows.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/gemm_internal.h"
#include "octavo/ops/quantize_activations_internal.h"
#include "octavo/quant/scale_rule.h"

namespace octavo::ops {
namespace {

// Groups whose largest magnitudes and factors are on the stack at once.
constexpr std::size_t kGroupsAtOnce = 64;

constexpr std::uint32_t kLargestFinite = 0x7F7F'FFFF;  // bits of an f32

constexpr auto kNanCode = static_cast<std::uint8_t>(traits(Format::e4m3fn).nan_code);

}  // namespace

void quantize_row(const kernels::CastKernels& cast, const float* x, std::size_t cols,
                  std::size_t group, std::uint8_t* codes, float* scales) {
  const std::size_t groups = ceil_div(cols, group);
  std::uint32_t amax[kGroupsAtOnce];
  float factors[kGroupsAtOnce];
  for (std::size_t first = 0; first < groups; first += kGroupsAtOnce) {
    const std::size_t count = std::min(kGroupsAtOnce, groups - first), col = first * group;
    const std::size_t here = std::min(cols - col, count * group);
    std::fill_n(amax, count, 0u);
    cast.block_amax({Format::f32, x + col, here, 1, here, group, amax});
    bool finite = true;
    for (std::size_t i = 0; i < count; ++i) {
      finite &= amax[i] <= kLargestFinite;
      const auto largest = std::bit_cast<float>(std::min(amax[i], kLargestFinite));
      const BlockScale scale = compute_scale(largest, ScaleRule::deepseek, ScaleFormat::float32);
      scales[first + i] = scale.scale;
      factors[i] = scale.factor;
    }
    cast.block_quantize({Format::f32, x + col, here, 1, here, group, factors,
                         scale_op(ScaleRule::deepseek, ScaleFormat::float32), Format::e4m3fn,
                         codes + col, here, nullptr, false});
    if (finite) continue;
    for (std::size_t c = col; c < col + here; ++c) {
      if (std::isinf(x[c])) codes[c] = kNanCode;  // not the largest code, which saturation gives
    }
  }
}

namespace {

void check_args(const char* operation, const QuantizeActivationsArgs& args,
                const Context& context) {
  check_context(operation, context);
  if (args.cols == 0 || args.group == 0 || (args.rows > 1 && args.stride < args.cols) ||
      (args.rows > 0 && (args.x == nullptr || args.codes == nullptr || args.scales == nullptr))) {
    throw ContractError(fmt::format(
        "{}: given ({}, {}) of stride {} in groups of {}, expected columns, a group of at least "
        "one, a stride of at least a row, memory",
        operation, args.rows, args.cols, args.stride, args.group));
  }
}

}  // namespace

Operand quantize_activations(const QuantizeActivationsArgs& given, const Context& context) {
  check_args("quantize_activations", given, context);
  QuantizeActivationsArgs args = given;
  args.group = std::min(args.group, args.cols);
  const kernels::CastKernels& cast = kernels::cast_kernels(selected_level("quantize_activations"));
  for_rows(context, args.rows, args.rows * args.cols, [&](const Range& rows) {
    const std::size_t groups = ceil_div(args.cols, args.group);
    for (std::size_t row = rows.begin; row < rows.end; ++row) {
      quantize_row(cast, args.x + row * args.stride, args.cols, args.group,
                   args.codes + row * args.cols, args.scales + row * groups);
    }
  });
  return {{Format::e4m3fn, args.codes, args.rows, args.cols, args.cols},
          {args.scales, ceil_div(args.cols, args.group), {1, args.group}, Format::f32},
          false};
}

Operand quantize_activations_static(const QuantizeActivationsArgs& args, float scale,
                                    const Context& context) {
  check_args("quantize_activations_static", args, context);
  if (!(scale > 0) || !std::isfinite(scale)) {
    throw ContractError(fmt::format(
        "quantize_activations_static: given scale {}, expected a positive number", scale));
  }
  const kernels::CastKernels& cast =
      kernels::cast_kernels(selected_level("quantize_activations_static"));
  if (args.rows > 0) args.scales[0] = scale;
  for_rows(context, args.rows, args.rows * args.cols, [&](const Range& rows) {
    cast.block_quantize({Format::f32, args.x + rows.begin * args.stride, args.stride,
                         rows.end - rows.begin, args.cols, args.cols, &scale,
                         kernels::ScaleOp::divide, Format::e4m3fn,
                         args.codes + rows.begin * args.cols, args.cols, nullptr, false});
  });
  return {{Format::e4m3fn, args.codes, args.rows, args.cols, args.cols},
          {args.scales, 1, {args.rows, args.cols}, Format::f32},
          false};
}

Operand round_activations(const float* x, std::size_t stride, std::size_t rows, std::size_t cols,
                          std::uint16_t* rounded, const Context& context) {
  check_context("round_activations", context);
  const kernels::CastKernels& cast = kernels::cast_kernels(selected_level("round_activations"));
  for_rows(context, rows, rows * cols, [&](const Range& range) {
    for (std::size_t row = range.begin; row < range.end; ++row) {
      cast.cast({Format::f32, x + row * stride, Format::bf16, rounded + row * cols, cols,
                 Overflow::special});
    }
  });
  return {{Format::bf16, rounded, rows, cols, cols}, {}, false};
}

}  // namespace octavo::ops
