// What the AVX2 cast kernels share. Everything is static and in the level's namespace
// (scripts/check_isa_symbols).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "octavo/kernels/cast/cast_internal.h"

namespace octavo::kernels::avx2 {

static inline bool is_aligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

static inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  __builtin_memcpy(to, from, bytes);
}

// Rows that a streaming dequantization reads ahead: 1, 2 and 4 gave 84, 86 and 93 % of the stream
// roof with rows of 4 KiB; no reading ahead 65 %.
constexpr std::size_t kRowsAhead = 4;

// The address `offset` bytes beyond p, to be prefetched: it may lie outside the object of p, where
// pointer arithmetic would not be defined.
static inline const char* ahead_of(const void* p, std::size_t offset) {
  return reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) + offset);
}

// `bytes` bytes from ahead_of(p, offset) on, into L2: a chunk is longer in use than L1 can hold it.
static inline void prefetch_bytes(const void* p, std::size_t offset, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(ahead_of(p, offset + i), _MM_HINT_T1);
  }
}

static inline void store_256(void* p, __m256i bits, bool past_caches) {
  if (past_caches) {
    _mm256_stream_si256(static_cast<__m256i*>(p), bits);
  } else {
    _mm256_storeu_si256(static_cast<__m256i*>(p), bits);
  }
}

// 8 elements of a row from element i on, as f32.
template <Format F>
static inline __m256 load_f32(const void* row, std::size_t i) {
  if constexpr (F == Format::f32) {
    return _mm256_loadu_ps(static_cast<const float*>(row) + i);
  } else {
    const auto* words = static_cast<const std::uint16_t*>(row) + i;
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words));
    if constexpr (F == Format::f16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
}

static inline __m256i nan_lanes(__m256 x) {
  return _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

// NaN to the canonical one of its sign.
static inline __m256 canonical_nan(__m256 x) {
  const __m256i sign =
      _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(static_cast<int>(0x80000000)));
  const __m256i nan = _mm256_or_si256(sign, _mm256_set1_epi32(0x7FC00000));
  return _mm256_blendv_ps(x, _mm256_castsi256_ps(nan), _mm256_castsi256_ps(nan_lanes(x)));
}

// To bf16 bits in the low half of each lane, to nearest even, denormals kept; NaN canonical.
static inline __m256i round_to_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x8000));
  const __m256i nan = _mm256_or_si256(sign, _mm256_set1_epi32(0x7FC0));
  return _mm256_blendv_epi8(rounded, nan, nan_lanes(x));
}

// The low words of 16 lanes, in order.
static inline __m256i pack_words(__m256i first, __m256i second) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), _MM_SHUFFLE(3, 1, 2, 0));
}

// block_quantize's inner part for a cast: codes of e4m3fn or e5m2, saturating or not.
void cast_to_codes(const CastArgs& args);

}  // namespace octavo::kernels::avx2
