// What the AVX-512 cast kernels share. Everything is static and in the level's namespace
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

#include "octavo/kernels/cast/cast_internal.h"

namespace octavo::kernels::avx512bf16 {

static inline __mmask16 first_lanes16(std::size_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xFFFFu : (1u << n) - 1u);
}
static inline __mmask32 first_lanes32(std::size_t n) {
  return n >= 32 ? 0xFFFFFFFFu : (1u << n) - 1u;
}
static inline __mmask64 first_lanes64(std::size_t n) { return n >= 64 ? ~0ull : (1ull << n) - 1u; }

static inline bool is_aligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
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

// 16 lanes at element i of a row, as f32; lanes outside the mask are neither read nor defined but
// as zero.
template <Format F>
static inline __m512 load_f32(const void* row, std::size_t i, __mmask16 lanes) {
  if constexpr (F == Format::f32) {
    return _mm512_maskz_loadu_ps(lanes, static_cast<const float*>(row) + i);
  } else {
    const __m256i words =
        _mm256_maskz_loadu_epi16(lanes, static_cast<const std::uint16_t*>(row) + i);
    if constexpr (F == Format::f16) return _mm512_cvtph_ps(words);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }
}

// To bf16 bits in the low half of each lane, to nearest even, denormals kept (vcvtneps2bf16 would
// flush them). A NaN may come out as anything.
static inline __m512i round_to_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
  return _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
}

// block_quantize's inner part for a cast: codes of e4m3fn or e5m2, saturating or not.
void cast_to_codes(const CastArgs& args);

}  // namespace octavo::kernels::avx512bf16
