// The specification of the packed layouts, element by element.
#include <bit>
#include <cassert>
#include <cmath>

#include "octavo/base/ceil_div.h"
#include "octavo/formats/convert.h"
#include "octavo/kernels/gemm/gemm_internal.h"
#include "octavo/kernels/gemm/layout.h"

namespace octavo::kernels::generic {
namespace {

template <class Cell>
Cell flushed(Cell bits, float below) {
  if constexpr (sizeof(Cell) == 2) {
    if (std::abs(decode<Format::bf16>(bits)) < below) return 0;
  }
  return bits;
}

template <class Cell>
void pack(const PackWeightsArgs& args) {
  const std::size_t pairs = ceil_div(args.whole_k != 0 ? args.whole_k : args.k, 2);
  for (std::size_t n = args.strip_begin * kStrip; n < args.strip_end * kStrip; ++n) {
    for (std::size_t k = 0; k < 2 * ceil_div(args.k, 2); ++k) {
      Cell cell = 0;
      if (n < args.n && k < args.k) {
        const std::size_t at = args.transposed ? k * args.src_stride + n : n * args.src_stride + k;
        cell = flushed(element<Cell>(args.src, at), kFlushAgainstBf16);
      }
      set_element(args.packed, packed_weight_offset<sizeof(Cell)>(n, k, pairs), cell);
    }
  }
}

template <class Cell>
void unpack(const UnpackWeightsArgs& args) {
  const std::size_t pairs = ceil_div(args.k, 2);
  for (std::size_t n = args.strip_begin * kStrip; n < args.n && n < args.strip_end * kStrip; ++n) {
    for (std::size_t k = 0; k < args.k; ++k) {
      const auto cell = element<Cell>(args.packed, packed_weight_offset<sizeof(Cell)>(n, k, pairs));
      set_element(args.dst, n * args.dst_stride + k, cell);
    }
  }
}

float decoded(Format format, const void* src, std::size_t at) {
  const auto byte = [&] { return element<std::uint8_t>(src, at); };
  switch (format) {
    case Format::f32:
      return element<float>(src, at);
    case Format::bf16:
      return decode<Format::bf16>(element<std::uint16_t>(src, at));
    case Format::e4m3fn:
      return decode<Format::e4m3fn>(byte());
    case Format::e5m2:
      return decode<Format::e5m2>(byte());
    case Format::e4m3fnuz:
      return decode<Format::e4m3fnuz>(byte());
    case Format::e5m2fnuz:
      return decode<Format::e5m2fnuz>(byte());
    default:
      assert(false && "expected f32, bf16 or an 8-bit floating-point format");
      return 0.0f;
  }
}

float activation(const PackActivationsArgs& args, std::size_t m, std::size_t k) {
  if (m >= args.m || k >= args.k) return 0.0f;
  const std::size_t row = m - args.src_row;
  const std::size_t at = args.transposed ? k * args.src_stride + row : row * args.src_stride + k;
  const float a = decoded(args.src_format, args.src, at);
  return args.src_format == Format::bf16 && std::abs(a) < args.flush_below ? 0.0f : a;
}

}  // namespace

void pack_weights(const PackWeightsArgs& args) {
  check(args);
  switch (packed_tile_bytes(args.format)) {
    case 64:
      return pack<std::uint8_t>(args);
    case 128:
      return pack<std::uint16_t>(args);
    default:
      return pack<std::uint32_t>(args);
  }
}

void unpack_weights(const UnpackWeightsArgs& args) {
  check(args);
  switch (packed_tile_bytes(args.format)) {
    case 64:
      return unpack<std::uint8_t>(args);
    case 128:
      return unpack<std::uint16_t>(args);
    default:
      return unpack<std::uint32_t>(args);
  }
}

void pack_activations(const PackActivationsArgs& args) {
  check(args);
  const std::size_t rows = panel_rows(args.m);
  const bool dot = args.arithmetic == Arithmetic::dot;
  for (std::size_t k = args.chunk_begin * kChunk; k < args.chunk_end * kChunk; k += dot ? 2 : 1) {
    for (std::size_t m = args.panel_begin * rows; m < args.panel_end * rows; ++m) {
      auto cell = std::bit_cast<std::uint32_t>(activation(args, m, k));
      if (dot) {
        cell =
            cell >> 16 | (std::bit_cast<std::uint32_t>(activation(args, m, k + 1)) & 0xFFFF0000u);
      }
      set_element(args.packed, packed_activation_cell(args.arithmetic, m, k, args.m, rows), cell);
    }
  }
}

}  // namespace octavo::kernels::generic
