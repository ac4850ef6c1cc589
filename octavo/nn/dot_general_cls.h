// The products that layers can be given: plain, or one of FP8's recipes. Each keeps its state in
// the layer's scope, under the names of Flax.
#pragma once

#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/fp8.h"
#include "octavo/nn/scope.h"

namespace octavo::nn {

// What a layer calls for its product: x, kernel, axes. The extension point: any callable. Shapes
// and axes are those of dot_general.
using DotGeneralCls =
    std::function<Variable(const Scope& scope, const Variable& x, const Variable& kernel,
                           const DotDimensionNumbers& dims)>;

// dot_general, in the type of the operands. No state.
struct PlainDotGeneral {
  Variable operator()(const Scope&, const Variable& x, const Variable& kernel,
                      const DotDimensionNumbers& dims) const {
    return dot_general(x, kernel, dims);
  }
};

// Delayed scaling: fp8::fp8_scaled_dot_general. In "_overwrite_with_gradient", all f32:
//     input_amax_history, kernel_amax_history, output_grad_amax_history   (amax_history_length), 0
//     input_scale, kernel_scale, output_grad_scale                        (1), 1
// x is cast to the kernel's type, which the result has.
struct Fp8DirectDotGeneralOp {
  std::size_t amax_history_length = 1024;
  fp8::Fp8Types types = fp8::kOcp;
  Fp8Semantics semantics = Fp8Semantics::guarded;

  Variable operator()(const Scope& scope, const Variable& x, const Variable& kernel,
                      const DotDimensionNumbers& dims) const;
};
using Fp8DotGeneral = Fp8DirectDotGeneralOp;

// Scales from the tensors themselves, no state: fp8::current_scaled_dot_general, and
// fp8::block_scaled_dot_general. x is cast to the kernel's type, which the result has.
struct Fp8CurrentDotGeneral {
  fp8::Fp8Types types = fp8::kOcp;

  Variable operator()(const Scope&, const Variable& x, const Variable& kernel,
                      const DotDimensionNumbers& dims) const {
    return fp8::current_scaled_dot_general(cast(x, kernel.dtype()), kernel, dims, types);
  }
};
struct Fp8BlockDotGeneral {
  fp8::BlockScaling scaling = {};

  Variable operator()(const Scope&, const Variable& x, const Variable& kernel,
                      const DotDimensionNumbers& dims) const {
    return fp8::block_scaled_dot_general(cast(x, kernel.dtype()), kernel, dims, scaling);
  }
};

// x and kernel quantized and dequantized, then multiplied as they are, in the kernel's type:
// fp8::in_qdq, dot_general, fp8::out_qdq. State as of Fp8DirectDotGeneralOp, in the scope that run
// is given.
struct QdqDotGeneral {
  std::size_t amax_history_length = 1024;
  DType e4m3_dtype = DType::f8_e4m3;
  DType e5m2_dtype = DType::f8_e5m2;
  Fp8Semantics semantics = Fp8Semantics::guarded;

  // The product, its state directly in `scope`.
  Variable run(const Scope& scope, const Variable& x, const Variable& kernel,
               const DotDimensionNumbers& dims) const;
};

// Flax's older op of that name: QdqDotGeneral, its state in "Fp8DotGeneralOp_0".
struct [[deprecated("Fp8DotGeneral, or Fp8Einsum: docs/training.md has the table")]] Fp8DotGeneralOp
    : QdqDotGeneral {
  Variable operator()(const Scope& scope, const Variable& x, const Variable& kernel,
                      const DotDimensionNumbers& dims) const {
    return run(scope.child("Fp8DotGeneralOp"), x, kernel, dims);
  }
};

// QdqDotGeneral with the FNUZ formats of AMD's MI300, its state in "NANOOFp8DotGeneralOp_0".
// Fp8DotGeneral{.types = fp8::kNanoo} has them on the direct path.
struct NANOOFp8DotGeneralOp {
  std::size_t amax_history_length = 1024;
  Fp8Semantics semantics = Fp8Semantics::guarded;

  Variable operator()(const Scope& scope, const Variable& x, const Variable& kernel,
                      const DotDimensionNumbers& dims) const {
    return QdqDotGeneral{amax_history_length, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz, semantics}
        .run(scope.child("NANOOFp8DotGeneralOp"), x, kernel, dims);
  }
};

// The six variables of a product, those of Fp8DirectDotGeneralOp, directly in `scope`.
// ContractError: as Scope::variable.
fp8::Fp8DotMeta fp8_meta(const Scope& scope, std::size_t amax_history_length);

}  // namespace octavo::nn
