#include <immintrin.h>

#include "octavo/kernels/roof/roof.h"

namespace octavo::kernels::avx512bf16 {

void stream(const StreamArgs& args) {
  const auto* from = static_cast<const __m512i*>(args.from);
  auto* to = static_cast<__m512i*>(args.to);
  for (std::size_t i = 0; i < args.steps; ++i, from += args.in, to += args.out) {
    __m512i line = _mm512_load_si512(from);
    for (std::size_t k = 1; k < args.in; ++k) {
      line = _mm512_or_si512(line, _mm512_load_si512(from + k));
    }
    for (std::size_t k = 0; k < args.out; ++k) _mm512_stream_si512(to + k, line);
  }
  _mm_sfence();
}

}  // namespace octavo::kernels::avx512bf16
