#include <immintrin.h>

#include "octavo/kernels/roof/roof.h"

namespace octavo::kernels::avx2 {

static std::uint64_t read(const void* from, std::size_t bytes) {
  const std::size_t quarter = bytes / 4 / sizeof(__m256i);
  const auto* p = static_cast<const __m256i*>(from);
  __m256i found[4] = {};
  for (std::size_t i = 0; i < quarter; i += 2) {
#pragma GCC unroll 4
    for (std::size_t s = 0; s < 4; ++s) {
      const __m256i* line = p + s * quarter + i;
      found[s] = _mm256_or_si256(found[s], _mm256_load_si256(line));
      found[s] = _mm256_or_si256(found[s], _mm256_load_si256(line + 1));
    }
  }
  const __m256i all =
      _mm256_or_si256(_mm256_or_si256(found[0], found[1]), _mm256_or_si256(found[2], found[3]));
  alignas(32) std::uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), all);
  return words[0] | words[1] | words[2] | words[3];
}

static void stream(const StreamArgs& args) {
  const auto* from = static_cast<const __m256i*>(args.from);
  auto* to = static_cast<__m256i*>(args.to);
  for (std::size_t i = 0; i < args.steps; ++i, from += 2 * args.in, to += 2 * args.out) {
    if (args.in > args.out) {
      __m256i low = _mm256_load_si256(from), high = _mm256_load_si256(from + 1);
      for (std::size_t k = 1; k < args.in; ++k) {
        low = _mm256_or_si256(low, _mm256_load_si256(from + 2 * k));
        high = _mm256_or_si256(high, _mm256_load_si256(from + 2 * k + 1));
      }
      for (std::size_t k = 0; k < args.out; ++k) {
        _mm256_stream_si256(to + 2 * k, low);
        _mm256_stream_si256(to + 2 * k + 1, high);
      }
    } else {
      for (std::size_t k = 0, line = 0; k < args.out; ++k) {
        _mm256_stream_si256(to + 2 * k, _mm256_load_si256(from + 2 * line));
        _mm256_stream_si256(to + 2 * k + 1, _mm256_load_si256(from + 2 * line + 1));
        if (++line == args.in) line = 0;
      }
    }
  }
  _mm_sfence();
}

static constexpr std::size_t kChains = 12;  // of 16 registers; enough for two pipes of latency 4-6

static float fma(std::size_t steps, float a, float b) {
  const __m256 av = _mm256_set1_ps(a), bv = _mm256_set1_ps(b);
  __m256 x[kChains];
#pragma GCC unroll 12
  for (std::size_t c = 0; c < kChains; ++c) x[c] = _mm256_set1_ps(static_cast<float>(c + 1));
  for (std::size_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (std::size_t c = 0; c < kChains; ++c) x[c] = _mm256_fmadd_ps(x[c], av, bv);
  }
  __m256 sum = _mm256_setzero_ps();
#pragma GCC unroll 12
  for (std::size_t c = 0; c < kChains; ++c) sum = _mm256_add_ps(sum, x[c]);
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, sum);
  float total = 0;
  for (std::size_t i = 0; i < 8; ++i) total += lanes[i];
  return total;
}

const RoofKernels kRoofKernels = {"avx2", read, stream, {fma, kChains, 8, 2}, {}};

}  // namespace octavo::kernels::avx2
