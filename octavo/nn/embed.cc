#include "octavo/nn/embed.h"

#include <fmt/format.h>

#include "octavo/autograd/dot_general.h"
#include "octavo/autograd/take.h"
#include "octavo/base/error.h"
#include "octavo/nn/compute_type.h"

namespace octavo::nn {
namespace {

Variable table(const Embed& layer, const Scope& scope) {
  return scope.param("embedding", layer.embedding_init, {layer.num_embeddings, layer.features},
                     layer.param_dtype);
}

}  // namespace

Variable Embed::operator()(const Scope& scope, const Tensor& ids) const {
  const Variable embedding = table(*this, scope);
  const DType type = compute_type("Embed", dtype, {embedding.dtype()});
  return cast(take(embedding, ids), type);
}

Variable Embed::attend(const Scope& scope, const Variable& query) const {
  if (query.rank() == 0 || query.shape().back() != features) {
    throw ContractError(fmt::format("Embed: given a query {} to attend, expected (..., {})",
                                    to_string(query.shape()), features));
  }
  const Variable embedding = table(*this, scope);
  const DType type = compute_type("Embed", dtype, {query.dtype(), embedding.dtype()});
  return dot_general(cast(query, type), cast(embedding, type), {{query.rank() - 1}, {1}});
}

}  // namespace octavo::nn
