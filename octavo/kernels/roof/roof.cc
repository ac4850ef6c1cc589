#include "octavo/kernels/roof/roof.h"

#include <fmt/format.h>

namespace octavo::kernels {
namespace {

struct RoofImplementation {
  Isa isa;
  const RoofKernels* kernels;
};

constexpr RoofImplementation kImplementations[] = {
#define OCTAVO_ROOF_KERNELS(level) {Isa::level, &level::kRoofKernels},
#include "octavo/kernels/roof/roof_manifest.inc"
#undef OCTAVO_ROOF_KERNELS
};

}  // namespace

const RoofKernels& roof_kernels(Isa isa) {
  for (const RoofImplementation& implementation : kImplementations) {
    if (implementation.isa == isa && supports(cpu_features(), isa)) return *implementation.kernels;
  }
  throw ContractError(fmt::format(
      "roof_kernels: given {}, expected a level that is built and that this machine has",
      isa_name(isa)));
}

const RoofKernels& widest_roof_kernels() {
  const RoofKernels* widest = &generic::kRoofKernels;
  for (const RoofImplementation& implementation : kImplementations) {
    if (supports(cpu_features(), implementation.isa)) widest = implementation.kernels;
  }
  return *widest;
}

}  // namespace octavo::kernels
