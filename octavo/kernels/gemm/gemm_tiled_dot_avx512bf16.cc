// Many rows, by vdpbf16ps: activations that bf16 holds, weights in bf16 or 8 bits. Technique:
// tiled_avx512bf16.h. For processors with two vdpbf16ps a cycle, where the technique gives 90 to 92
// % of their peak from 128 rows on (Zen 5, tiles of 6 x 64; this file itself is measured on Intel
// only).
#include <type_traits>

#include "octavo/kernels/gemm/tiled_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {

void gemm_tiled_dot(const GemmArgs& g) {
  check(g, Arithmetic::dot);
  for_weights(g.weight_format, [&](const auto& weights) {
    if constexpr (!std::is_same_v<std::decay_t<decltype(weights)>, F32Weights>) {
      tiled<Arithmetic::dot>(g, weights);
    }
  });
}

}  // namespace octavo::kernels::avx512bf16
