// What packing with AVX-512 shares. Everything is static and in the level's namespace
// (scripts/check_isa_symbols).
#pragma once

#include "octavo/kernels/cast/cast_lanes_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {

// Rows of dwords to columns of dwords, within each four rows and each 16-byte lane: afterwards lane
// j of v[i] is dword 4j + i of the four rows.
static inline void transpose4(__m512i v[4]) {
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, c);
  v[1] = _mm512_unpackhi_epi64(a, c);
  v[2] = _mm512_unpacklo_epi64(b, d);
  v[3] = _mm512_unpackhi_epi64(b, d);
}

// 16 x 16 dwords: afterwards dword r of v[d] is what was dword d of v[r].
static inline void transpose16(__m512i v[16]) {
  for (int g = 0; g < 16; g += 4) transpose4(v + g);
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);  // lanes 0 and 2 of both
    const __m512i b = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xDD);  // lanes 1 and 3
    const __m512i c = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xDD);
    v[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    v[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(a, c, 0xDD);
    v[i + 12] = _mm512_shuffle_i32x4(b, d, 0xDD);
  }
}

// bf16 words whose magnitude is below `limit`, itself the magnitude bits of a bf16, become +0.
static inline __m512i flush_words(__m512i words, __m512i limit) {
  const __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7FFF));
  return _mm512_maskz_mov_epi16(_mm512_cmpge_epu16_mask(magnitude, limit), words);
}

}  // namespace octavo::kernels::avx512bf16
