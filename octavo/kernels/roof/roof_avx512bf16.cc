// g++ 12 takes the undefined operands inside its own intrinsics for mistakes (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "octavo/kernels/roof/roof.h"

namespace octavo::kernels::avx512bf16 {

static std::uint64_t read(const void* from, std::size_t bytes) {
  const std::size_t quarter = bytes / 4 / sizeof(__m512i);
  const auto* p = static_cast<const __m512i*>(from);
  __m512i found[4] = {};
  for (std::size_t i = 0; i < quarter; i += 2) {
#pragma GCC unroll 4
    for (std::size_t s = 0; s < 4; ++s) {
      const __m512i* line = p + s * quarter + i;
      found[s] = _mm512_or_si512(found[s], _mm512_load_si512(line));
      found[s] = _mm512_or_si512(found[s], _mm512_load_si512(line + 1));
    }
  }
  const __m512i all =
      _mm512_or_si512(_mm512_or_si512(found[0], found[1]), _mm512_or_si512(found[2], found[3]));
  alignas(64) std::uint64_t words[8];
  _mm512_store_si512(words, all);
  std::uint64_t result = 0;
  for (std::size_t i = 0; i < 8; ++i) result |= words[i];
  return result;
}

static void stream(const StreamArgs& args) {
  const auto* from = static_cast<const __m512i*>(args.from);
  auto* to = static_cast<__m512i*>(args.to);
  for (std::size_t i = 0; i < args.steps; ++i, from += args.in, to += args.out) {
    if (args.in > args.out) {
      __m512i line = _mm512_load_si512(from);
      for (std::size_t k = 1; k < args.in; ++k) {
        line = _mm512_or_si512(line, _mm512_load_si512(from + k));
      }
      for (std::size_t k = 0; k < args.out; ++k) _mm512_stream_si512(to + k, line);
    } else {
      for (std::size_t k = 0, line = 0; k < args.out; ++k) {
        _mm512_stream_si512(to + k, _mm512_load_si512(from + line));
        if (++line == args.in) line = 0;
      }
    }
  }
  _mm_sfence();
}

static float sum_of_lanes(__m512 x) {
  alignas(64) float lanes[16];
  _mm512_store_ps(lanes, x);
  float total = 0;
  for (std::size_t i = 0; i < 16; ++i) total += lanes[i];
  return total;
}

static constexpr std::size_t kChains = 24;  // of 32 registers; two pipes of latency 4-6 need 12

static float fma(std::size_t steps, float a, float b) {
  const __m512 av = _mm512_set1_ps(a), bv = _mm512_set1_ps(b);
  __m512 x[kChains];
#pragma GCC unroll 24
  for (std::size_t c = 0; c < kChains; ++c) x[c] = _mm512_set1_ps(static_cast<float>(c + 1));
  for (std::size_t i = 0; i < steps; ++i) {
#pragma GCC unroll 24
    for (std::size_t c = 0; c < kChains; ++c) x[c] = _mm512_fmadd_ps(x[c], av, bv);
  }
  __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 24
  for (std::size_t c = 0; c < kChains; ++c) sum = _mm512_add_ps(sum, x[c]);
  return sum_of_lanes(sum);
}

static float dot(std::size_t steps, float a, float b) {
  const __m512 av = _mm512_set1_ps(a), bv = _mm512_set1_ps(b);
  const __m512bh a2 = _mm512_cvtne2ps_pbh(av, av), b2 = _mm512_cvtne2ps_pbh(bv, bv);
  __m512 x[kChains];
#pragma GCC unroll 24
  for (std::size_t c = 0; c < kChains; ++c) x[c] = _mm512_set1_ps(static_cast<float>(c + 1));
  for (std::size_t i = 0; i < steps; ++i) {
#pragma GCC unroll 24
    for (std::size_t c = 0; c < kChains; ++c) x[c] = _mm512_dpbf16_ps(x[c], a2, b2);
  }
  __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 24
  for (std::size_t c = 0; c < kChains; ++c) sum = _mm512_add_ps(sum, x[c]);
  return sum_of_lanes(sum);
}

const RoofKernels kRoofKernels = {
    "avx512bf16", read, stream, {fma, kChains, 16, 2}, {dot, kChains, 16, 4}};

}  // namespace octavo::kernels::avx512bf16
