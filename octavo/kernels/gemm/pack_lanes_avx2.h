// What packing with AVX2 shares. Everything is static and in the level's namespace
// (scripts/check_isa_symbols).
#pragma once

#include "octavo/kernels/cast/cast_lanes_avx2.h"

namespace octavo::kernels::avx2 {

// The first `bytes` bytes, at most 32; the others are zero.
static inline __m256i load_bytes(const void* from, std::size_t bytes) {
  if (bytes >= 32) return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  alignas(32) char buffer[32] = {};
  copy_bytes(buffer, from, bytes);
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(buffer));
}

// 8 x 8 dwords: afterwards dword r of v[d] is what was dword d of v[r].
static inline void transpose8(__m256i v[8]) {
  __m256i lanes[8];  // lane j of lanes[4g + i]: dword 4j + i of rows 4g .. 4g + 3
  for (int g = 0; g < 8; g += 4) {
    const __m256i a = _mm256_unpacklo_epi32(v[g], v[g + 1]);
    const __m256i b = _mm256_unpackhi_epi32(v[g], v[g + 1]);
    const __m256i c = _mm256_unpacklo_epi32(v[g + 2], v[g + 3]);
    const __m256i d = _mm256_unpackhi_epi32(v[g + 2], v[g + 3]);
    lanes[g] = _mm256_unpacklo_epi64(a, c);
    lanes[g + 1] = _mm256_unpackhi_epi64(a, c);
    lanes[g + 2] = _mm256_unpacklo_epi64(b, d);
    lanes[g + 3] = _mm256_unpackhi_epi64(b, d);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2x128_si256(lanes[i], lanes[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(lanes[i], lanes[i + 4], 0x31);
  }
}

}  // namespace octavo::kernels::avx2
