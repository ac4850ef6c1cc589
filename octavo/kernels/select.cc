#include "octavo/kernels/select.h"

#include <fmt/format.h>
#include <cstdlib>

#include "octavo/kernels/cast/cast_internal.h"
#include "octavo/kernels/gemm/gemm_internal.h"
#include "octavo/kernels/transformer/transformer_internal.h"

namespace octavo::kernels {
namespace {

struct CastImplementation {
  Isa isa;
  CastKernels kernels;
};

constexpr CastImplementation kCastImplementations[] = {
#define OCTAVO_CAST_KERNELS(level) \
  {Isa::level,                     \
   {#level, level::block_amax, level::block_quantize, level::block_dequantize, level::cast}},
#include "octavo/kernels/cast/cast_manifest.inc"
#undef OCTAVO_CAST_KERNELS
};

struct GemmImplementation {
  Isa isa;
  GemmShape shape;
  Arithmetic arithmetic;
  GemmFunction function;
};

constexpr GemmImplementation kGemmImplementations[] = {
#define OCTAVO_GEMM_KERNEL(level, shape, arithmetic) \
  {Isa::level, GemmShape::shape, Arithmetic::arithmetic, level::gemm_##shape##_##arithmetic},
#include "octavo/kernels/gemm/gemm_manifest.inc"
#undef OCTAVO_GEMM_KERNEL
};

struct PackImplementation {
  Isa isa;
  PackKernels kernels;
};

constexpr PackImplementation kPackImplementations[] = {
#define OCTAVO_PACK_KERNELS(level) \
  {Isa::level, {level::pack_weights, level::unpack_weights, level::pack_activations}},
#include "octavo/kernels/gemm/gemm_manifest.inc"
#undef OCTAVO_PACK_KERNELS
};

struct TransformerImplementation {
  Isa isa;
  TransformerKernels kernels;
};

constexpr TransformerImplementation kTransformerImplementations[] = {
#define OCTAVO_TRANSFORMER_KERNELS(level)                                            \
  {Isa::level,                                                                       \
   {#level, level::rms_norm, level::rope, level::add, level::scale, level::silu_mul, \
    level::row_max, level::exp_row, level::sum_exp}},
#include "octavo/kernels/transformer/transformer_manifest.inc"
#undef OCTAVO_TRANSFORMER_KERNELS
};

Result<Isa> choose_built() {
  const char* forced = std::getenv("OCTAVO_CPU");
  if (forced != nullptr && *forced != '\0') {
    OCTAVO_TRY(const Isa isa, choose_isa(cpu_features(), forced));
    if (is_built(isa)) return isa;
    return fail(ErrorCode::bad_value, fmt::format("OCTAVO_CPU={}: not in this build", forced));
  }
  Isa best = Isa::generic;
  for (const CastImplementation& implementation : kCastImplementations) {
    if (supports(cpu_features(), implementation.isa)) best = implementation.isa;
  }
  return best;
}

ContractError missing(const char* operation, const std::string& given) {
  return ContractError(fmt::format(
      "{}: given {}, expected one that is built and that this machine has", operation, given));
}

}  // namespace

Result<Isa> selected_isa() {
  static const Result<Isa> selected = choose_built();
  return selected;
}

bool is_built(Isa isa) {
  for (const CastImplementation& implementation : kCastImplementations) {
    if (implementation.isa == isa) return true;
  }
  return false;
}

const CastKernels& cast_kernels(Isa isa) {
  for (const CastImplementation& implementation : kCastImplementations) {
    if (implementation.isa == isa && supports(cpu_features(), isa)) return implementation.kernels;
  }
  throw missing("cast_kernels", isa_name(isa));
}

const CastKernels& cast_kernels() {
  const Result<Isa> selected = selected_isa();
  if (!selected) throw ContractError("cast_kernels: " + selected.error().message);
  return cast_kernels(*selected);
}

GemmFunction gemm_kernel(const GemmPlan& plan) {
  for (const GemmImplementation& implementation : kGemmImplementations) {
    if (implementation.isa == plan.isa && implementation.shape == plan.shape &&
        implementation.arithmetic == plan.arithmetic && supports(cpu_features(), plan.isa)) {
      return implementation.function;
    }
  }
  throw missing("gemm_kernel", kernel_name(plan));
}

const PackKernels& pack_kernels(Isa isa) {
  for (const PackImplementation& implementation : kPackImplementations) {
    if (implementation.isa == isa && supports(cpu_features(), isa)) return implementation.kernels;
  }
  throw missing("pack_kernels", isa_name(isa));
}

const TransformerKernels& transformer_kernels(Isa isa) {
  for (const TransformerImplementation& implementation : kTransformerImplementations) {
    if (implementation.isa == isa && supports(cpu_features(), isa)) return implementation.kernels;
  }
  throw missing("transformer_kernels", isa_name(isa));
}

}  // namespace octavo::kernels
