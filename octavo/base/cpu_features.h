// What this machine's processor offers, and the ladder of instruction-set levels that kernels are
// written for.
#pragma once

#include <cstdint>
#include <string>

#include "octavo/base/error.h"

namespace octavo {

// Levels, lowest first. A level stands for a set of features that are used together:
//   generic     what the compiler's baseline has
//   avx2        AVX2, FMA, F16C, with the operating system saving ymm registers
//   avx512bf16  AVX-512 F, BW, VL, DQ, VBMI and BF16, with the operating system saving zmm and mask
//   registers
enum class Isa : std::uint8_t { generic, avx2, avx512bf16 };
inline constexpr int kIsaCount = 3;

const char* isa_name(Isa isa);

struct CpuFeatures {
  std::string model;  // "Intel(R) Xeon(R) Processor"
  bool avx2, fma, f16c;
  bool avx512f, avx512bw, avx512vl, avx512dq, avx512vbmi, avx512bf16;
  bool os_saves_ymm, os_saves_zmm;

  // vdpbf16ps does more than two zmm multiply-adds would. From the maker, since nothing tells: AMD
  // from Zen 4 on twice the rate of f32 multiply-adds; Intel half of it (measured on Emerald
  // Rapids: 0.46 a cycle, as four micro-operations).
  bool fast_bf16_dot;
};

const CpuFeatures& cpu_features();  // of this machine, read once

bool supports(const CpuFeatures& features, Isa isa);
Isa best_isa(const CpuFeatures& features);

// The level to use: `forced` (the value of OCTAVO_CPU, may be null or empty) if the machine has it,
// else the best. bad_value: an unknown name, or a level that the machine lacks; never a silent
// fallback.
Result<Isa> choose_isa(const CpuFeatures& features, const char* forced);

}  // namespace octavo
