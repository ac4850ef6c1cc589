// What the AVX-512 products share: operands out of packed weights, the step of order C, and how a
// finished row is stored. Everything is static and in the level's namespace
// (scripts/check_isa_symbols).
#pragma once

// g++ 12 takes the undefined operands inside its own intrinsics for mistakes (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>

#include "octavo/kernels/cast/cast_lanes_avx512bf16.h"
#include "octavo/kernels/gemm/gemm_internal.h"

namespace octavo::kernels::avx512bf16 {

// One tile of weights as an arithmetic takes it; [0] is n = 0 .. 15 of the strip, [1] n = 16 .. 31.
template <Arithmetic A>
struct Operand;
template <>
struct Operand<Arithmetic::fma> {
  __m512 odd[2], even[2];  // k + 1, k
};
template <>
struct Operand<Arithmetic::dot> {
  __m512i pair[2];  // bf16 (k, k + 1) in each lane
};

template <Arithmetic A>
static inline Operand<A> from_pairs(__m512i first, __m512i second) {
  Operand<A> w;
  if constexpr (A == Arithmetic::dot) {
    w.pair[0] = first;
    w.pair[1] = second;
  } else {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
    w.odd[0] = _mm512_castsi512_ps(_mm512_and_si512(first, upper));
    w.odd[1] = _mm512_castsi512_ps(_mm512_and_si512(second, upper));
    w.even[0] = _mm512_castsi512_ps(_mm512_slli_epi32(first, 16));
    w.even[1] = _mm512_castsi512_ps(_mm512_slli_epi32(second, 16));
  }
  return w;
}

// 8-bit codes by table: two lookups of 128 bytes (vpermi2b ignores the top bit of an index) give
// the bytes of the bf16 magnitude, the sign is joined to the high one, and the interleave puts the
// columns in order. Exact for every code, NaN included. Nuz: 0x80 is NaN, not minus zero.
template <bool Nuz>
struct CodeWeights {
  static constexpr std::size_t kTileBytes = 64;
  __m512i low[2], high[2];

  static inline CodeWeights of(const Bf16Table& table) {
    CodeWeights w;
    for (int i = 0; i < 2; ++i) {
      w.low[i] = _mm512_load_si512(table.low + 64 * i);
      w.high[i] = _mm512_load_si512(table.high + 64 * i);
    }
    return w;
  }

  template <Arithmetic A>
  inline Operand<A> tile(const void* p) const {
    const __m512i codes = _mm512_load_si512(p);
    __m512i l = _mm512_permutex2var_epi8(low[0], codes, low[1]);
    __m512i h = _mm512_permutex2var_epi8(high[0], codes, high[1]);
    // h | (codes & 0x80)
    h = _mm512_ternarylogic_epi32(h, codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0xF8);
    if constexpr (Nuz) {
      const __mmask64 nan =
          _mm512_cmpeq_epi8_mask(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
      h = _mm512_mask_mov_epi8(h, nan, _mm512_set1_epi8(0x7F));
      l = _mm512_mask_mov_epi8(l, nan, _mm512_set1_epi8(static_cast<char>(0xC0)));
    }
    return from_pairs<A>(_mm512_unpacklo_epi8(l, h), _mm512_unpackhi_epi8(l, h));
  }
};

struct Bf16Weights {
  static constexpr std::size_t kTileBytes = 128;
  template <Arithmetic A>
  inline Operand<A> tile(const void* p) const {
    return from_pairs<A>(_mm512_load_si512(p), _mm512_load_si512(static_cast<const char*>(p) + 64));
  }
};

struct F32Weights {  // for Arithmetic::fma only
  static constexpr std::size_t kTileBytes = 256;
  template <Arithmetic A>
  inline Operand<A> tile(const void* p) const {
    const auto* f = static_cast<const float*>(p);
    Operand<A> w;
    for (int i = 0; i < 2; ++i) {
      w.even[i] = _mm512_load_ps(f + 16 * i);
      w.odd[i] = _mm512_load_ps(f + 32 + 16 * i);
    }
    return w;
  }
};

// acc[m] += the products of one tile with M rows, odd k first. a: the cells of the tile's first k,
// row 0; cells of the next k (fma) lie `rows` further on.
template <Arithmetic A, int M>
static inline void step(__m512 (&acc)[M][2], const Operand<A>& w, const float* a,
                        std::size_t rows) {
  if constexpr (A == Arithmetic::dot) {
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      const auto x = (__m512bh)_mm512_castps_si512(_mm512_set1_ps(a[m]));
      acc[m][0] = _mm512_dpbf16_ps(acc[m][0], x, (__m512bh)w.pair[0]);
      acc[m][1] = _mm512_dpbf16_ps(acc[m][1], x, (__m512bh)w.pair[1]);
    }
  } else {
    // Kept from being folded into twelve addresses of its own, which g++ 12 spills.
    const float* next = a + rows;
    __asm__("" : "+r"(next));
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      const __m512 x = _mm512_set1_ps(next[m]);
      acc[m][0] = _mm512_fmadd_ps(x, w.odd[0], acc[m][0]);
      acc[m][1] = _mm512_fmadd_ps(x, w.odd[1], acc[m][1]);
    }
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      const __m512 x = _mm512_set1_ps(a[m]);
      acc[m][0] = _mm512_fmadd_ps(x, w.even[0], acc[m][0]);
      acc[m][1] = _mm512_fmadd_ps(x, w.even[1], acc[m][1]);
    }
  }
}

// Cells of a pair of k, and of a chunk, in packed activations.
template <Arithmetic A>
constexpr std::size_t kCellsPerPair = A == Arithmetic::fma ? 2 : 1;

static inline const float* scale_at(const Scales& s, std::size_t index, std::size_t kb) {
  return s.data + index * s.index_stride + kb / s.blocks * s.block_stride;
}

// The scales of a strip's columns in block kb.
static inline void load_weight_scale(const Scales& s, std::size_t strip, std::size_t kb,
                                     __m512 (&scale)[2]) {
  const float* at = scale_at(s, strip, kb);
  if (s.lanes) {
    scale[0] = _mm512_loadu_ps(at);
    scale[1] = _mm512_loadu_ps(at + 16);
  } else {
    scale[0] = scale[1] = _mm512_set1_ps(*at);
  }
}

// tot (M rows of 32, `stride` apart) = fma(acc, weight scale * activation scale, tot)
template <int M>
static inline void fold(const __m512 (&acc)[M][2], const GemmArgs& g, std::size_t strip,
                        std::size_t row, std::size_t kb, float* tot) {
  __m512 w[2];
  load_weight_scale(g.weight_scale, strip, kb, w);
  const float* a = scale_at(g.activation_scale, row, kb);
#pragma GCC unroll 12
  for (std::size_t m = 0; m < M; ++m) {
    const __m512 x = _mm512_set1_ps(a[m * g.activation_scale.index_stride]);
    for (std::size_t i = 0; i < 2; ++i) {
      float* t = tot + m * kStrip + 16 * i;
      _mm512_store_ps(t, _mm512_fmadd_ps(acc[m][i], _mm512_mul_ps(w[i], x), _mm512_load_ps(t)));
    }
  }
}

// 16 finished totals from column n on: bias, canonical NaN, rounding, the columns that exist.
static inline void store_16(const GemmArgs& g, std::size_t row, std::size_t n, __m512 v) {
  if (n >= g.n) return;
  const std::size_t left = g.n - n;
  const auto lanes = static_cast<__mmask16>(left >= 16 ? 0xFFFFu : (1u << left) - 1u);
  if (g.bias != nullptr) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(lanes, g.bias + n));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  v = _mm512_mask_mov_ps(v, nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000)));
  if (g.c_format == Format::f32) {
    _mm512_mask_storeu_ps(static_cast<float*>(g.c) + row * g.c_stride + n, lanes, v);
    return;
  }
  // To nearest even with denormals kept (vcvtneps2bf16 would flush them); infinity stays.
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
  __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
  rounded = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7FC0));
  _mm512_mask_cvtepi32_storeu_epi16(static_cast<std::uint16_t*>(g.c) + row * g.c_stride + n, lanes,
                                    rounded);
}

static inline void store_row(const GemmArgs& g, std::size_t row, std::size_t strip,
                             const float* tot) {
  store_16(g, row, strip * kStrip, _mm512_load_ps(tot));
  store_16(g, row, strip * kStrip + 16, _mm512_load_ps(tot + 16));
}

template <class Function>
static inline void for_weights(Format format, Function&& f) {
  switch (format) {
    case Format::e4m3fn:
      return f(CodeWeights<false>::of(kBf16Table_e4m3fn));
    case Format::e5m2:
      return f(CodeWeights<false>::of(kBf16Table_e5m2));
    case Format::e4m3fnuz:
      return f(CodeWeights<true>::of(kBf16Table_e4m3fnuz));
    case Format::e5m2fnuz:
      return f(CodeWeights<true>::of(kBf16Table_e5m2fnuz));
    case Format::bf16:
      return f(Bf16Weights{});
    default:
      return f(F32Weights{});
  }
}

}  // namespace octavo::kernels::avx512bf16
