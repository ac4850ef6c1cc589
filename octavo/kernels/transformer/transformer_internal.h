// The implementations behind transformer_manifest.inc, and the constants that they share.
// Declarations only: instruction-set files include this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/kernels/transformer/transformer.h"

namespace octavo::kernels {

#define OCTAVO_TRANSFORMER_KERNELS(isa)                                                   \
  namespace isa {                                                                         \
  void rms_norm(const RmsNormArgs&);                                                      \
  void rope(const RopeArgs&);                                                             \
  void add(float* x, const float* y, std::size_t n);                                      \
  void scale(float* x, float factor, std::size_t n);                                      \
  void silu_mul(const float* gate, const float* up, float* y, std::size_t n);             \
  float row_max(const float* x, std::size_t begin, std::size_t end);                      \
  float exp_row(float* x, std::size_t n, std::size_t begin, std::size_t end, float scale, \
                float max);                                                               \
  float sum_exp(const float* x, std::size_t n, float scale, float max);                   \
  }
#include "octavo/kernels/transformer/transformer_manifest.inc"
#undef OCTAVO_TRANSFORMER_KERNELS

// 2^r - 1 = sum of kExp2[k] * r^(k + 1) on [-1/2, 1/2]: the polynomial of least relative error of
// 2^r (2^-28.3) among those that are 1 at 0, rounded to f32 coefficient by coefficient.
constexpr float kExp2[6] = {0x1.62e430p-1f, 0x1.ebfbdcp-3f,  0x1.c6af7cp-5f,
                            0x1.3b2de0p-7f, 0x1.5f0830p-10f, 0x1.416b5cp-13f};
constexpr float kExp2Min = -126.0f;  // below: 0
constexpr float kExp2Max = 128.0f;   // from here on: infinity

constexpr float kLog2eRest = 0x1.4ae0c0p-26f;  // log2(e) - kLog2e
constexpr float kSiluMin = -128.0f;            // exp(128) is infinite

constexpr std::uint32_t kCanonicalNan = 0x7FC00000;

}  // namespace octavo::kernels
