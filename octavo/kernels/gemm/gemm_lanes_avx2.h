// What the AVX2 products share: weights to f32, scales and the store of finished rows. Everything
// is static and in the level's namespace (scripts/check_isa_symbols).
#pragma once

#include "octavo/kernels/cast/cast_lanes_avx2.h"
#include "octavo/kernels/gemm/gemm_internal.h"

namespace octavo::kernels::avx2 {

// How packed weights become f32.
enum class Decode {
  e4m3fn_scaled,  // value x 2^-8, and NaN codes as 480 x 2^-8: the caller undoes both
  e4m3fn,
  e5m2,
  table,  // any 8-bit format, from a table of 256 floats
  bf16,
  f32,
};

constexpr std::size_t tile_bytes(Decode decode) {
  return decode == Decode::f32 ? 256 : decode == Decode::bf16 ? 128 : 64;
}

// A strip's 32 columns in four vectors, in the order in which decoding gives them. Natural: vector
// v holds columns 8v .. 8v+7. Else, from the 16-byte lanes of an 8-bit tile: 4v .. 4v+3, then
// 16+4v .. 16+4v+3.
constexpr bool is_natural(Decode decode) { return decode == Decode::bf16 || decode == Decode::f32; }

// Vectors 2h and 2h + 1 of a tile, for its odd and for its even k.
struct HalfTile {
  __m256 odd[2], even[2];
};

static inline __m256i load_256(const void* p) {
  return _mm256_load_si256(static_cast<const __m256i*>(p));
}

static inline void widen_halves(__m256i halves, __m256 (&wide)[2]) {
  wide[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  wide[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}

// e4m3fn in the high byte of each word to half precision: shifted into its fields it is 2^-8 of its
// value. vcvtph2ps takes subnormals at full speed, whatever the rounding mode and flags.
static inline __m256i e4m3fn_fields(__m256i words) {
  return _mm256_and_si256(_mm256_srai_epi16(words, 1),
                          _mm256_set1_epi16(static_cast<short>(0xBF80)));
}

// The fields of 480 to a NaN.
static inline __m256i with_nan(__m256i fields) {
  const __m256i negative = _mm256_or_si256(fields, _mm256_set1_epi16(static_cast<short>(0x8000)));
  return _mm256_or_si256(
      fields, _mm256_cmpeq_epi16(negative, _mm256_set1_epi16(static_cast<short>(0xBF80))));
}

template <Decode decode>
static inline HalfTile decode_half_tile(const std::uint8_t* tile, std::size_t h,
                                        const float* table) {
  HalfTile half;
  if constexpr (decode == Decode::f32) {
    for (std::size_t v = 0; v < 2; ++v) {
      const auto* even = reinterpret_cast<const float*>(tile) + 16 * h + 8 * v;
      half.even[v] = _mm256_load_ps(even);
      half.odd[v] = _mm256_load_ps(even + kStrip);
    }
  } else if constexpr (decode == Decode::bf16) {
    for (std::size_t v = 0; v < 2; ++v) {
      const __m256i pairs = load_256(tile + 64 * h + 32 * v);
      const __m256i high = _mm256_set1_epi32(static_cast<int>(0xFFFF0000));
      half.even[v] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
      half.odd[v] = _mm256_castsi256_ps(_mm256_and_si256(pairs, high));
    }
  } else if constexpr (decode == Decode::table) {
    for (std::size_t v = 0; v < 2; ++v) {
      const auto* words = reinterpret_cast<const __m128i*>(tile + 32 * h + 16 * v);
      const __m256i pairs = _mm256_cvtepu16_epi32(_mm_load_si128(words));
      half.even[v] =
          _mm256_i32gather_ps(table, _mm256_and_si256(pairs, _mm256_set1_epi32(0xFF)), 4);
      half.odd[v] = _mm256_i32gather_ps(table, _mm256_srli_epi32(pairs, 8), 4);
    }
  } else {
    const __m256i odd = load_256(tile + 32 * h), even = _mm256_slli_epi16(odd, 8);
    if constexpr (decode == Decode::e5m2) {
      // A code is the high byte of its half-precision number.
      const __m256i high = _mm256_set1_epi16(static_cast<short>(0xFF00));
      widen_halves(_mm256_and_si256(odd, high), half.odd);
      widen_halves(even, half.even);
    } else if constexpr (decode == Decode::e4m3fn_scaled) {
      widen_halves(e4m3fn_fields(odd), half.odd);
      widen_halves(e4m3fn_fields(even), half.even);
    } else {
      widen_halves(with_nan(e4m3fn_fields(odd)), half.odd);
      widen_halves(with_nan(e4m3fn_fields(even)), half.even);
      for (std::size_t v = 0; v < 2; ++v) {
        half.odd[v] = _mm256_mul_ps(half.odd[v], _mm256_set1_ps(256.0f));
        half.even[v] = _mm256_mul_ps(half.even[v], _mm256_set1_ps(256.0f));
      }
    }
  }
  return half;
}

// The values of all codes of a fnuz format, for Decode::table.
static inline void fill_fnuz_table(Format format, float* table) {
  const Bf16Table& bf16 = format == Format::e4m3fnuz ? kBf16Table_e4m3fnuz : kBf16Table_e5m2fnuz;
  for (std::uint32_t code = 0; code < 128; ++code) {
    const std::uint32_t high = bf16.high[code], low = bf16.low[code];
    const std::uint32_t bits = high << 24 | low << 16;
    const std::uint32_t negative = code == 0 ? 0x7FC00000 : bits | 0x80000000;
    copy_bytes(table + code, &bits, 4);
    copy_bytes(table + 128 + code, &negative, 4);
  }
}

static inline const float* scale_at(const Scales& scales, std::size_t index, std::size_t kb) {
  return scales.data + index * scales.index_stride + kb / scales.blocks * scales.block_stride;
}

// A strip's scale in block kb, for the columns of vector v.
template <bool natural>
static inline __m256 weight_scale(const Scales& scales, const float* at, std::size_t v) {
  if (!scales.lanes) return _mm256_broadcast_ss(at);
  if constexpr (natural) return _mm256_loadu_ps(at + 8 * v);
  return _mm256_set_m128(_mm_loadu_ps(at + 16 + 4 * v), _mm_loadu_ps(at + 4 * v));
}

static inline __m256 with_positive_nan(__m256 x) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
  return _mm256_blendv_ps(x, nan, _mm256_castsi256_ps(nan_lanes(x)));
}

// The bias of a strip's columns; zeros beyond a ragged end.
static inline void load_columns(const float* from, std::size_t columns, __m256 (&to)[4]) {
  alignas(32) float row[kStrip] = {};
  if (columns < kStrip) {
    copy_bytes(row, from, columns * sizeof(float));
    from = row;
  }
  for (std::size_t v = 0; v < 4; ++v) to[v] = _mm256_loadu_ps(from + 8 * v);
}

// Writes row m of a strip: bias, canonical NaN, c_format. tot: its 32 totals in decoded order.
template <bool natural>
static inline void store_row(const GemmArgs& args, std::size_t m, std::size_t strip,
                             const float* tot) {
  __m256 x[4];
  for (std::size_t v = 0; v < 4; ++v) x[v] = _mm256_load_ps(tot + 8 * v);
  if constexpr (!natural) {
    const __m256 a = x[0], b = x[1], c = x[2], d = x[3];
    x[0] = _mm256_permute2f128_ps(a, b, 0x20);
    x[1] = _mm256_permute2f128_ps(c, d, 0x20);
    x[2] = _mm256_permute2f128_ps(a, b, 0x31);
    x[3] = _mm256_permute2f128_ps(c, d, 0x31);
  }
  const std::size_t n = strip * kStrip;
  const std::size_t columns = args.n - n < kStrip ? args.n - n : kStrip;
  if (args.bias != nullptr) {
    __m256 bias[4];
    load_columns(args.bias + n, columns, bias);
    for (std::size_t v = 0; v < 4; ++v) x[v] = _mm256_add_ps(x[v], bias[v]);
  }
  for (std::size_t v = 0; v < 4; ++v) x[v] = with_positive_nan(x[v]);

  const bool is_f32 = args.c_format == Format::f32;
  const std::size_t size = is_f32 ? 4 : 2;
  char* c = static_cast<char*>(args.c) + (m * args.c_stride + n) * size;
  alignas(32) char row[kStrip * 4];
  char* to = columns == kStrip ? c : row;
  for (std::size_t v = 0; v < 4; v += is_f32 ? 1 : 2) {
    const __m256i bits = is_f32 ? _mm256_castps_si256(x[v])
                                : pack_words(round_to_bf16(x[v]), round_to_bf16(x[v + 1]));
    store_256(to + 8 * v * size, bits, false);
  }
  if (to == row) copy_bytes(c, row, columns * size);
}

static inline std::size_t panel_count(const GemmArgs& args) {
  return args.m == 0 ? 0 : (args.m + args.panel_rows - 1) / args.panel_rows;
}

constexpr std::size_t kTileRows = 6;  // 12 accumulators of 16 registers

// The rows of a panel in passes of nearly equal height: `higher` of them `height` + 1, the others
// `height`.
struct Passes {
  std::size_t count, height, higher;
  std::size_t height_of(std::size_t i) const { return height + (i < higher ? 1 : 0); }
};

static inline Passes passes_of(std::size_t rows) {
  const std::size_t count = (rows + kTileRows - 1) / kTileRows;
  return {count, rows / count, rows % count};
}

// All panels but the last one have panel_rows rows.
struct Panels {
  std::size_t count;
  Passes full, last;
  const Passes& passes(std::size_t panel) const { return panel + 1 < count ? full : last; }
};

static inline Panels panels_of(const GemmArgs& args) {
  const std::size_t count = panel_count(args);
  if (count == 0) return {};
  return {count, passes_of(args.panel_rows), passes_of(args.m - (count - 1) * args.panel_rows)};
}

// Block kb, as all rows and strips see it. Nothing in it is divided again in the loops.
struct Block {
  std::size_t kb, pair, pairs;  // pairs [pair, pair + pairs) of k
  const float* activations;     // (panel, row, k) at panel * panel_cells + k * panel_rows + row
  std::size_t panel_cells;
  const float* row_scales;
};

static inline Block block_at(const GemmArgs& args, std::size_t panels, std::size_t kb) {
  const std::size_t k = kb * args.k_block, left = (args.k - k + 1) / 2;
  const std::size_t panel_cells = kChunk * args.panel_rows;
  const float* chunk =
      static_cast<const float*>(args.activations) + k / kChunk * panels * panel_cells;
  return {kb,
          k / 2,
          left < args.k_block / 2 ? left : args.k_block / 2,
          chunk + k % kChunk * args.panel_rows,
          panel_cells,
          scale_at(args.activation_scale, 0, kb)};
}

}  // namespace octavo::kernels::avx2
