// Attention: Flax's MultiHeadDotProductAttention.
#pragma once

#include <optional>

#include "octavo/autograd/rope.h"
#include "octavo/nn/dense_general.h"
#include "octavo/nn/einsum.h"

namespace octavo::nn {

// What a call has beside the queries' input.
struct AttentionInputs {
  std::optional<Variable> keys = {};    // (batch..., kv_length, features); the queries' input
  std::optional<Variable> values = {};  // likewise; that of the keys
  // u8, broadcasts to (batch..., num_heads, length, kv_length): 0 where a query does not see a key.
  std::optional<Tensor> mask = {};
  std::optional<RopeTables> rope = {};  // rotates query and key, of one length (Flax: none)
  bool deterministic = false;           // no dropout
};

// (length, length) u8: a position sees itself and those before, 1 (flax.linen.make_causal_mask).
Tensor causal_mask(std::size_t length);

// x (batch..., length, features) to (batch..., length, out_features). Children, each a
// DenseGeneral: query, key, value to (num_heads, qkv_features / num_heads), out back from them;
// query_ln and key_ln, LayerNorm without bias, if normalize_qk. Einsums in FP8 keep their state in
// Fp8Einsum_0 (query with key) and Fp8Einsum_1 (weights with value). Softmax is computed in f32,
// and where a query sees no key the result is that of weights 0 (Flax: the mean of all values).
// Flax's MultiHeadDotProductAttention; the type is that of compute_type over query, key and value.
// ContractError: x of rank below 2, qkv_features that num_heads does not divide, one einsum class
// without the other; a mask, keys, values or tables that do not fit; dropout without an Rng.
struct MultiHeadDotProductAttention {
  std::size_t num_heads;
  std::optional<std::size_t> qkv_features = {}, out_features = {};  // x's features
  double dropout_rate = 0;                                          // of weights
  bool broadcast_dropout = true;  // one draw for all batches and heads
  bool use_bias = true, normalize_qk = false;
  std::optional<DType> dtype = {};
  DType param_dtype = DType::f32;
  Initializer kernel_init = lecun_normal(), bias_init = zeros();
  DotGeneralCls qkv_dot_general_cls = PlainDotGeneral{}, out_dot_general_cls = PlainDotGeneral{};
  EinsumCls qk_attn_weights_einsum_cls = {}, attn_weights_value_einsum_cls = {};  // plain

  Variable operator()(const Scope& scope, const Variable& x,
                      const AttentionInputs& inputs = {}) const;

  Variables init(const Rng& rng, const Variable& x, const AttentionInputs& inputs = {}) const {
    return nn::init(*this, rng, x, inputs);
  }
  Variable apply(const Variables& variables, const Variable& x,
                 const AttentionInputs& inputs = {}) const {
    return nn::apply(*this, variables, x, inputs);
  }
  Variable apply(const Variables& variables, const Rng& rng, const Variable& x,
                 const AttentionInputs& inputs = {}) const {
    return nn::apply(*this, variables, rng, x, inputs);
  }
};

}  // namespace octavo::nn
