// Few rows, by f32 fused multiply-adds: any activations, any weights. Technique and rates:
// fused_avx512bf16.h.
#include "octavo/kernels/gemm/fused_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {

void gemm_fused_fma(const GemmArgs& g) {
  check(g, Arithmetic::fma);
  for_weights(g.weight_format, [&](const auto& weights) { fused<Arithmetic::fma>(g, weights); });
}

}  // namespace octavo::kernels::avx512bf16
