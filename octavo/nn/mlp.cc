#include "octavo/nn/mlp.h"

#include <fmt/format.h>

#include "octavo/base/error.h"

namespace octavo::nn {
namespace {

// The Dense layers of both have all but their width in common.
template <class Layer>
Dense dense_of(const Layer& layer, std::size_t features) {
  return {.features = features,
          .use_bias = layer.use_bias,
          .dtype = layer.dtype,
          .param_dtype = layer.param_dtype,
          .kernel_init = layer.kernel_init,
          .bias_init = layer.bias_init,
          .dot_general_cls = layer.dot_general_cls};
}

template <class Layer>
Dense last_of(const char* name, const Layer& layer, const Variable& x) {
  if (x.rank() == 0) {
    throw ContractError(fmt::format("{}: given x of rank 0, expected (..., features)", name));
  }
  return dense_of(layer, layer.out_features.value_or(x.shape().back()));
}

}  // namespace

Variable Mlp::operator()(const Scope& scope, const Variable& x) const {
  const Dense last = last_of("Mlp", *this, x);
  const Variable hidden = dense_of(*this, hidden_features)(scope.child("Dense"), x);
  return last(scope.child("Dense"), activation(hidden));
}

Variable GatedMlp::operator()(const Scope& scope, const Variable& x) const {
  const Dense down = last_of("GatedMlp", *this, x), wide = dense_of(*this, hidden_features);
  const Variable gate = activation(wide(scope.named("gate"), x));
  return down(scope.named("down"), gate * wide(scope.named("up"), x));
}

}  // namespace octavo::nn
