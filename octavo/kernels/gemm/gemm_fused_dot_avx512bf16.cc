// Few rows, by vdpbf16ps: activations that bf16 holds, weights in bf16 or 8 bits. Technique:
// fused_avx512bf16.h. For processors with two vdpbf16ps a cycle, where the technique gives 94 % of
// the read rate with 1, 2 and 4 rows (Zen 5; this file itself is measured on Intel only).
#include <type_traits>

#include "octavo/kernels/gemm/fused_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {

void gemm_fused_dot(const GemmArgs& g) {
  check(g, Arithmetic::dot);
  for_weights(g.weight_format, [&](const auto& weights) {
    if constexpr (!std::is_same_v<std::decay_t<decltype(weights)>, F32Weights>) {
      fused<Arithmetic::dot>(g, weights);
    }
  });
}

}  // namespace octavo::kernels::avx512bf16
