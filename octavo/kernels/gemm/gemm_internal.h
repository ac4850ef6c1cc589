// The implementations behind gemm_manifest.inc. Declarations only: instruction-set files include
// this.
#pragma once

#include "octavo/kernels/gemm/gemm.h"
#include "octavo/kernels/gemm/pack.h"

namespace octavo::kernels {

#define OCTAVO_GEMM_KERNEL(isa, shape, arithmetic)   \
  namespace isa {                                    \
  void gemm_##shape##_##arithmetic(const GemmArgs&); \
  }
#define OCTAVO_PACK_KERNELS(isa)                     \
  namespace isa {                                    \
  void pack_weights(const PackWeightsArgs&);         \
  void unpack_weights(const UnpackWeightsArgs&);     \
  void pack_activations(const PackActivationsArgs&); \
  }
#include "octavo/kernels/gemm/gemm_manifest.inc"
#undef OCTAVO_GEMM_KERNEL
#undef OCTAVO_PACK_KERNELS

// What gemm.h and pack.h ask of their arguments. Every kernel begins with it: debug builds abort
// where something is broken, release builds do nothing.
void check(const GemmArgs& args, Arithmetic arithmetic);
void check(const PackWeightsArgs& args);
void check(const UnpackWeightsArgs& args);
void check(const PackActivationsArgs& args);

// bf16 bit patterns of the codes 0 to 127 of each 8-bit format, low and high byte apart.
struct Bf16Table {
  alignas(64) std::uint8_t low[128];
  alignas(64) std::uint8_t high[128];
};
extern const Bf16Table kBf16Table_e4m3fn, kBf16Table_e5m2, kBf16Table_e4m3fnuz, kBf16Table_e5m2fnuz;

}  // namespace octavo::kernels
