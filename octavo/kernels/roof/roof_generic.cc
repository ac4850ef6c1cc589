// With what the compiler's baseline has.
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "octavo/kernels/roof/roof.h"

namespace octavo::kernels::generic {
namespace {

using Words [[gnu::vector_size(16)]] = std::uint64_t;
using Floats [[gnu::vector_size(16)]] = float;
constexpr std::size_t kWords = 64 / sizeof(Words);  // vectors a line

std::uint64_t read(const void* from, std::size_t bytes) {
  const std::size_t quarter = bytes / 4 / sizeof(Words);
  const auto* p = static_cast<const Words*>(from);
  Words found[4] = {};
  for (std::size_t i = 0; i < quarter; i += kWords) {
    for (std::size_t s = 0; s < 4; ++s) {
      for (std::size_t w = 0; w < kWords; ++w) found[s] |= p[s * quarter + i + w];
    }
  }
  const Words all = found[0] | found[1] | found[2] | found[3];
  return all[0] | all[1];
}

void store_past_caches(Words* to, Words value) {
#ifdef __SSE2__
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<__m128i>(value));
#else
  *to = value;
#endif
}

void stream(const StreamArgs& args) {
  const auto* from = static_cast<const Words*>(args.from);
  auto* to = static_cast<Words*>(args.to);
  const std::size_t in = kWords * args.in, out = kWords * args.out;
  for (std::size_t i = 0; i < args.steps; ++i, from += in, to += out) {
    if (in > out) {
      Words line[kWords] = {};
      for (std::size_t k = 0; k < in; ++k) line[k % kWords] |= from[k];
      for (std::size_t k = 0; k < out; ++k) store_past_caches(to + k, line[k % kWords]);
    } else {
      for (std::size_t k = 0; k < out; ++k) store_past_caches(to + k, from[k % in]);
    }
  }
#ifdef __SSE2__
  _mm_sfence();
#endif
}

constexpr std::size_t kChains = 12;  // of 16 registers; enough for two pipes of latency 4

float fma(std::size_t steps, float a, float b) {
  const Floats av = {a, a, a, a}, bv = {b, b, b, b};
  Floats x[kChains];
#pragma GCC unroll 12
  for (std::size_t c = 0; c < kChains; ++c) x[c] = Floats{} + static_cast<float>(c + 1);
  for (std::size_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (std::size_t c = 0; c < kChains; ++c) x[c] = x[c] * av + bv;
  }
  Floats sum = {};
  for (std::size_t c = 0; c < kChains; ++c) sum += x[c];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

}  // namespace

const RoofKernels kRoofKernels = {"generic", read, stream, {fma, kChains, 4, 2}, {}};

}  // namespace octavo::kernels::generic
