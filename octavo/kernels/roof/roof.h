// What this machine allows: loops that do nothing but move bytes, or nothing but arithmetic, to
// hold kernels against.
//
// No inline code here: instruction-set files include this header (scripts/check_isa_symbols).
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/base/cpu_features.h"

namespace octavo::kernels {

// For each of `steps`: reads `in` lines of 64 bytes and writes `out` lines past the caches: the OR
// of the lines read where more are read than written, else the lines in turn. The two arrays are
// aligned to 64 bytes; in and out are 1 to 4, and 1:1 is a copy.
struct StreamArgs {
  const void* from;
  std::size_t in;
  void* to;
  std::size_t out;
  std::size_t steps;
};

// x = x * a + b in registers only: `chains` independent vectors of `lanes` f32, vector c beginning
// as c + 1 in all lanes, each advanced `steps` times; fused where the level has that. Returns the
// sum of all lanes of all chains. One step of one chain takes lanes * flops_per_lane operations.
struct ArithmeticPeak {
  float (*run)(std::size_t steps, float a, float b);  // null: the level has no such instruction
  std::size_t chains;
  std::size_t lanes;
  std::size_t flops_per_lane;
};

// One implementation: a line of roof_manifest.inc.
struct RoofKernels {
  const char* name;  // "generic", "avx2", "avx512bf16"
  // The OR of all 64-bit words, read as four streams. `from` is aligned to 64 bytes, `bytes` a
  // multiple of kReadStep.
  std::uint64_t (*read)(const void* from, std::size_t bytes);
  void (*stream)(const StreamArgs&);
  ArithmeticPeak fma;
  // vdpbf16ps: x = x + a * b + a * b, with a and b rounded to bf16; four operations a lane.
  ArithmeticPeak dot;
};
inline constexpr std::size_t kReadStep = 1024;

// Those of a level that is built and supported; throws ContractError otherwise.
const RoofKernels& roof_kernels(Isa isa);

// Those of the widest registers that were built and that this machine has, whatever OCTAVO_CPU
// says: what memory allows does not depend on the level that is measured.
const RoofKernels& widest_roof_kernels();

#define OCTAVO_ROOF_KERNELS(level)       \
  namespace level {                      \
  extern const RoofKernels kRoofKernels; \
  }
#include "octavo/kernels/roof/roof_manifest.inc"
#undef OCTAVO_ROOF_KERNELS

}  // namespace octavo::kernels
