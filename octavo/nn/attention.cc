#include "octavo/nn/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "octavo/autograd/dropout.h"
#include "octavo/autograd/softmax.h"
#include "octavo/base/error.h"
#include "octavo/nn/compute_type.h"
#include "octavo/nn/norms.h"

namespace octavo::nn {
namespace {

struct Heads {
  Variable query, key, value;  // (batch..., length, heads, head_dim)
};

std::size_t head_dim_of(const MultiHeadDotProductAttention& layer, const Variable& x) {
  if (x.rank() < 2) {
    throw ContractError(
        fmt::format("MultiHeadDotProductAttention: given x {}, expected (batch..., "
                    "length, features)",
                    to_string(x.shape())));
  }
  const std::size_t features = layer.qkv_features.value_or(x.shape().back());
  if (layer.num_heads == 0 || features % layer.num_heads != 0) {
    throw ContractError(
        fmt::format("MultiHeadDotProductAttention: given {} qkv_features for {} heads, expected a "
                    "multiple of these",
                    features, layer.num_heads));
  }
  return features / layer.num_heads;
}

Heads project(const MultiHeadDotProductAttention& layer, const Scope& scope, const Variable& x,
              const AttentionInputs& inputs) {
  const DenseGeneral projection{.features = {layer.num_heads, head_dim_of(layer, x)},
                                .use_bias = layer.use_bias,
                                .dtype = layer.dtype,
                                .param_dtype = layer.param_dtype,
                                .kernel_init = layer.kernel_init,
                                .bias_init = layer.bias_init,
                                .dot_general_cls = layer.qkv_dot_general_cls};
  const Variable& keys = inputs.keys ? *inputs.keys : x;
  Heads heads{projection(scope.named("query"), x), projection(scope.named("key"), keys),
              projection(scope.named("value"), inputs.values ? *inputs.values : keys)};
  if (layer.normalize_qk) {
    const LayerNorm norm{.use_bias = false, .dtype = layer.dtype, .param_dtype = layer.param_dtype};
    heads.query = norm(scope.named("query_ln"), heads.query);
    heads.key = norm(scope.named("key_ln"), heads.key);
  }
  if (inputs.rope) {
    heads.query = octavo::rope(heads.query, *inputs.rope);
    heads.key = octavo::rope(heads.key, *inputs.rope);
  }
  const DType type = compute_type("MultiHeadDotProductAttention", layer.dtype,
                                  {heads.query.dtype(), heads.key.dtype(), heads.value.dtype()});
  return {cast(heads.query, type), cast(heads.key, type), cast(heads.value, type)};
}

// (batch..., heads, length, kv_length)
Variable attention_weights(const MultiHeadDotProductAttention& layer, const Scope& scope,
                           const Variable& query, const Variable& key, const EinsumCls& product,
                           const AttentionInputs& inputs) {
  const double depth = static_cast<double>(query.shape().back());
  const Variable scores =
      product(scope, "...qhd,...khd->...hqk", scale(query, 1 / std::sqrt(depth)), key);
  if (scores.rank() != query.rank()) {
    throw ContractError(
        fmt::format("MultiHeadDotProductAttention: einsum_cls gave {}, expected scores of rank {}",
                    to_string(scores.shape()), query.rank()));
  }
  const Variable weights = inputs.mask ? masked_softmax(scores, *inputs.mask) : softmax(scores);
  if (inputs.deterministic || layer.dropout_rate == 0) return weights;
  ops::Axes shared(layer.broadcast_dropout ? weights.rank() - 2 : 0);
  std::iota(shared.begin(), shared.end(), std::size_t{0});
  return dropout(weights, layer.dropout_rate, scope.make_rng(), shared);
}

}  // namespace

Tensor causal_mask(std::size_t length) {
  Tensor mask(DType::u8, {length, length});
  const auto to = mask.mutable_values<std::uint8_t>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = i % length <= i / length ? 1 : 0;
  return mask;
}

Variable MultiHeadDotProductAttention::operator()(const Scope& scope, const Variable& x,
                                                  const AttentionInputs& inputs) const {
  const bool has_einsums = qk_attn_weights_einsum_cls && attn_weights_value_einsum_cls;
  if (!has_einsums && (qk_attn_weights_einsum_cls || attn_weights_value_einsum_cls)) {
    throw ContractError(
        "MultiHeadDotProductAttention: given one einsum class, expected "
        "qk_attn_weights_einsum_cls and attn_weights_value_einsum_cls together");
  }
  const EinsumCls of_scores = has_einsums ? qk_attn_weights_einsum_cls : PlainEinsum{};
  const EinsumCls of_values = has_einsums ? attn_weights_value_einsum_cls : PlainEinsum{};
  const Heads heads = project(*this, scope, x, inputs);
  const Variable weights =
      attention_weights(*this, scope, heads.query, heads.key, of_scores, inputs);
  const Variable mixed = of_values(scope, "...hqk,...khd->...qhd", weights, heads.value);
  const DenseGeneral projection{.features = {out_features.value_or(x.shape().back())},
                                .axis = {-2, -1},
                                .use_bias = use_bias,
                                .dtype = dtype,
                                .param_dtype = param_dtype,
                                .kernel_init = kernel_init,
                                .bias_init = bias_init,
                                .dot_general_cls = out_dot_general_cls};
  return projection(scope.named("out"), mixed);
}

}  // namespace octavo::nn
