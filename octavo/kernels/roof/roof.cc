#include "octavo/kernels/roof/roof.h"

#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace octavo::kernels {

#ifdef __SSE2__
void generic::stream(const StreamArgs& args) {
  const auto* from = static_cast<const __m128i*>(args.from);
  auto* to = static_cast<__m128i*>(args.to);
  for (std::size_t i = 0; i < args.steps; ++i, from += 4 * args.in, to += 4 * args.out) {
    __m128i line[4] = {};
    for (std::size_t k = 0; k < 4 * args.in; ++k) {
      line[k % 4] = _mm_or_si128(line[k % 4], _mm_load_si128(from + k));
    }
    for (std::size_t k = 0; k < 4 * args.out; ++k) _mm_stream_si128(to + k, line[k % 4]);
  }
  _mm_sfence();
}
#else
void generic::stream(const StreamArgs& args) {
  const auto* from = static_cast<const char*>(args.from);
  auto* to = static_cast<char*>(args.to);
  for (std::size_t i = 0; i < args.steps; ++i, from += 64 * args.in, to += 64 * args.out) {
    for (std::size_t k = 0; k < args.out; ++k)
      std::memcpy(to + 64 * k, from + 64 * (k % args.in), 64);
  }
}
#endif

void stream(const StreamArgs& args) {
#ifdef OCTAVO_HAS_AVX512BF16
  if (supports(cpu_features(), Isa::avx512bf16)) return avx512bf16::stream(args);
#endif
  generic::stream(args);
}

}  // namespace octavo::kernels
