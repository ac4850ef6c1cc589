// The two layers between attentions: plain, and gated.
#pragma once

#include <functional>
#include <optional>

#include "octavo/nn/dense.h"

namespace octavo::nn {

// A function of each element.
using Activation = std::function<Variable(const Variable&)>;

// x (..., features) to (..., features): Dense_1(activation(Dense_0(x))), of hidden_features
// between. ContractError: as Dense.
struct Mlp {
  std::size_t hidden_features;
  std::optional<std::size_t> out_features = {};  // x's features
  Activation activation = [](const Variable& x) { return gelu(x); };
  bool use_bias = true;
  std::optional<DType> dtype = {};
  DType param_dtype = DType::f32;
  Initializer kernel_init = lecun_normal(), bias_init = zeros();
  DotGeneralCls dot_general_cls = PlainDotGeneral{};

  Variable operator()(const Scope& scope, const Variable& x) const;

  Variables init(const Rng& rng, const Variable& x) const { return nn::init(*this, rng, x); }
  Variable apply(const Variables& variables, const Variable& x) const {
    return nn::apply(*this, variables, x);
  }
};

// x (..., features) to (..., features): down(activation(gate(x)) * up(x)), the names of its three
// Dense (Llama's; Shazeer, 2020). ContractError: as Dense.
struct GatedMlp {
  std::size_t hidden_features;
  std::optional<std::size_t> out_features = {};
  Activation activation = [](const Variable& x) { return silu(x); };
  bool use_bias = false;
  std::optional<DType> dtype = {};
  DType param_dtype = DType::f32;
  Initializer kernel_init = lecun_normal(), bias_init = zeros();
  DotGeneralCls dot_general_cls = PlainDotGeneral{};

  Variable operator()(const Scope& scope, const Variable& x) const;

  Variables init(const Rng& rng, const Variable& x) const { return nn::init(*this, rng, x); }
  Variable apply(const Variables& variables, const Variable& x) const {
    return nn::apply(*this, variables, x);
  }
};

}  // namespace octavo::nn
