// The specification of products: order C of gemm.h in plain scalar code.
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "octavo/base/ceil_div.h"
#include "octavo/formats/convert.h"
#include "octavo/kernels/gemm/gemm_internal.h"
#include "octavo/kernels/gemm/layout.h"

namespace octavo::kernels {

std::size_t packed_tile_bytes(Format format) {
  return 2 * kStrip * static_cast<std::size_t>(bits_per_element(format)) / 8;
}

std::size_t packed_weight_bytes(Format format, std::size_t n, std::size_t k) {
  return strips(n) * ceil_div(k, 2) * packed_tile_bytes(format);
}

std::size_t panel_rows(std::size_t m) {
  if (m <= kPanelRows) return m;
  return m < 2 * kPanelRows ? ceil_div(m, 2) : kPanelRows;
}

// A panel of decoded weights and the totals of a group of strips; whole cache lines.
std::size_t gemm_scratch_floats(std::size_t m, std::size_t group) {
  return kChunk * kStrip + group * m * kStrip;
}

std::size_t packed_activation_bytes(Arithmetic arithmetic, std::size_t m, std::size_t k) {
  if (m == 0) return 0;
  const std::size_t rows = ceil_div(m, panel_rows(m)) * panel_rows(m);
  return ceil_div(k, kChunk) * kChunk * rows * (arithmetic == Arithmetic::fma ? 4 : 2);
}

namespace generic {
namespace {

template <Format F>
float weight(const void* packed, std::size_t n, std::size_t k, std::size_t pairs) {
  constexpr std::size_t kBytes = sizeof(Code<F>);
  return decode<F>(element<Code<F>>(packed, packed_weight_offset<kBytes>(n, k, pairs)));
}

float activation(const GemmArgs& args, std::size_t m, std::size_t k) {
  return element<float>(args.activations,
                        packed_activation_cell(Arithmetic::fma, m, k, args.m, args.panel_rows));
}

float scale(const Scales& scales, std::size_t index, std::size_t kb, std::size_t lane) {
  const float* at =
      scales.data + index * scales.index_stride + kb / scales.blocks * scales.block_stride;
  return scales.lanes ? at[lane] : at[0];
}

template <Format F>
float total(const GemmArgs& args, std::size_t m, std::size_t n) {
  const std::size_t pairs = ceil_div(args.k, 2);
  float tot = 0.0f;
  for (std::size_t first = 0, kb = 0; first < args.k; first += args.k_block, ++kb) {
    const std::size_t end = first + args.k_block < args.k ? first + args.k_block : args.k;
    float acc = 0.0f;
    for (std::size_t k = first; k < end; k += 2) {  // packed operands hold a zero at an odd K
      const float odd =
          std::fma(activation(args, m, k + 1), weight<F>(args.weights, n, k + 1, pairs), acc);
      acc = std::fma(activation(args, m, k), weight<F>(args.weights, n, k, pairs), odd);
    }
    const float s = scale(args.weight_scale, n / kStrip, kb, n % kStrip) *
                    scale(args.activation_scale, m, kb, 0);
    tot = std::fma(acc, s, tot);
  }
  return tot;
}

void store(const GemmArgs& args, std::size_t m, std::size_t n, float value) {
  if (args.bias != nullptr) value += args.bias[n];
  if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  const std::size_t at = m * args.c_stride + n;
  if (args.c_format == Format::f32) {
    set_element(args.c, at, value);
  } else {
    set_element(args.c, at, encode<Format::bf16>(value, Rounding::nearest_even, Overflow::special));
  }
}

template <Format F>
void gemm(const GemmArgs& args) {
  for (std::size_t n = args.strip_begin * kStrip; n < args.n && n < args.strip_end * kStrip; ++n) {
    for (std::size_t m = 0; m < args.m; ++m) store(args, m, n, total<F>(args, m, n));
  }
}

}  // namespace

void gemm_plain_fma(const GemmArgs& args) {
  check(args, Arithmetic::fma);
  switch (args.weight_format) {
    case Format::e4m3fn:
      return gemm<Format::e4m3fn>(args);
    case Format::e5m2:
      return gemm<Format::e5m2>(args);
    case Format::e4m3fnuz:
      return gemm<Format::e4m3fnuz>(args);
    case Format::e5m2fnuz:
      return gemm<Format::e5m2fnuz>(args);
    case Format::bf16:
      return gemm<Format::bf16>(args);
    case Format::f32:
      return gemm<Format::f32>(args);
    default:
      assert(false && "expected an 8-bit floating-point format, bf16 or f32");
  }
}

}  // namespace generic
}  // namespace octavo::kernels
