// Normalizations of the last axis: Flax's LayerNorm and RMSNorm, with their parameters as
// arguments. Statistics and all else are computed in f32 (f64 in f64), sums in the lanes of sum();
// the result is rounded once.
#pragma once

#include <optional>

#include "octavo/autograd/variable.h"

namespace octavo {

// Of rms_norm and layer_norm.
struct NormOptions {
  double epsilon = 1e-6;            // inside the root
  std::optional<DType> dtype = {};  // of the result; that to which x and the parameters promote
};

// x / sqrt(mean(x^2) + epsilon) * scale. x: (..., n), scale: (n) or none; f32, bf16, f16 or f64.
// The result has x's shape. ContractError: x of rank 0 or without elements along the axis, a
// parameter of another shape, another type.
Variable rms_norm(const Variable& x, const std::optional<Variable>& scale,
                  const NormOptions& options = {});

// (x - mean) / sqrt(variance + epsilon) * scale + bias, likewise. The variance is the mean of
// (x - mean)^2 (Flax: use_fast_variance=False). ContractError: as rms_norm.
Variable layer_norm(const Variable& x, const std::optional<Variable>& scale,
                    const std::optional<Variable>& bias, const NormOptions& options = {});

}  // namespace octavo
