// Products by equation, as Flax's Einsum, and in FP8, as Flax's Fp8Einsum.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "octavo/autograd/einsum.h"
#include "octavo/nn/dot_general_cls.h"

namespace octavo::nn {

// What a layer calls for a product by equation, as DotGeneralCls for one by axes.
using EinsumCls = std::function<Variable(const Scope& scope, std::string_view equation,
                                         const Variable& lhs, const Variable& rhs)>;

// octavo::einsum, in the type of the operands. No state.
struct PlainEinsum {
  Variable operator()(const Scope&, std::string_view equation, const Variable& lhs,
                      const Variable& rhs) const {
    return einsum(equation, lhs, rhs);
  }
};

// einsum in FP8 with delayed scaling. rhs is taken for the weight: lhs is cast to its type, which
// the result has unless another is preferred. The six variables are those of Fp8DirectDotGeneralOp;
// input_* is always of lhs and kernel_* of rhs (Flax swaps them for equations like "mk,kn->nm").
// Amaxes are those of the operands of the product: after diagonals and sums (einsum.h).
// Called with a scope as EinsumCls it keeps them in "Fp8Einsum_0"; init, apply and run in the scope
// itself, as a root layer.
struct Fp8Einsum {
  std::size_t amax_history_length = 1024;
  fp8::Fp8Types types = fp8::kOcp;
  Fp8Semantics semantics = Fp8Semantics::guarded;
  std::optional<DType> preferred_element_type = {};

  Variable operator()(const Scope& scope, std::string_view equation, const Variable& lhs,
                      const Variable& rhs) const {
    return run(scope.child("Fp8Einsum"), equation, lhs, rhs);
  }
  // The product, its six variables directly in `scope`.
  Variable run(const Scope& scope, std::string_view equation, const Variable& lhs,
               const Variable& rhs) const;

  Variables init(const Rng& rng, std::string_view equation, const Variable& lhs,
                 const Variable& rhs) const;
  Variable apply(const Variables& variables, std::string_view equation, const Variable& lhs,
                 const Variable& rhs) const {
    return run(Scope::apply(variables), equation, lhs, rhs);
  }
};

// einsum(equation, x, kernel) + bias. Parameters: kernel of `shape`; bias of the kernel's axes that
// the result has, in the result's order, added along them. Flax's Einsum.
// ContractError: an equation without "->", or one that does not fit (einsum); as Dense.
struct Einsum {
  Shape shape;  // of the kernel
  std::string equation;
  bool use_bias = true;
  std::optional<DType> dtype = {};
  DType param_dtype = DType::f32;
  Initializer kernel_init = lecun_normal();
  Initializer bias_init = zeros();
  EinsumCls einsum_cls = PlainEinsum{};

  Variable operator()(const Scope& scope, const Variable& x) const;

  Variables init(const Rng& rng, const Variable& x) const { return nn::init(*this, rng, x); }
  Variable apply(const Variables& variables, const Variable& x) const {
    return nn::apply(*this, variables, x);
  }
};

}  // namespace octavo::nn
