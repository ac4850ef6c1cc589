// Which implementation of each kernel family runs. The choice is a function of machine and
// environment: made once, can be printed (`octavo info`), forced and refused (OCTAVO_CPU).
#pragma once

#include "octavo/base/cpu_features.h"
#include "octavo/base/error.h"
#include "octavo/kernels/cast/cast.h"
#include "octavo/kernels/gemm/pack.h"
#include "octavo/kernels/gemm/plan.h"
#include "octavo/kernels/transformer/transformer.h"

namespace octavo::kernels {

// The best level that was built and that this machine has, or the one that OCTAVO_CPU names; read
// once per process. bad_value: OCTAVO_CPU names a level that is unknown, not built, or that this
// machine lacks.
Result<Isa> selected_isa();

bool is_built(Isa isa);

// The cast kernels of a level that is built and supported; throws ContractError otherwise.
const CastKernels& cast_kernels(Isa isa);

// Those of selected_isa(); throws ContractError where that is an error, so programs ask
// selected_isa() first.
const CastKernels& cast_kernels();

// The product that a plan names; throws ContractError if it is not built or not supported.
GemmFunction gemm_kernel(const GemmPlan& plan);

// The packing kernels of a level that is built and supported; throws ContractError otherwise.
const PackKernels& pack_kernels(Isa isa);

// The transformer kernels of a level that is built and supported; throws ContractError otherwise.
const TransformerKernels& transformer_kernels(Isa isa);

}  // namespace octavo::kernels
