// Rows of a table: Flax's Embed.
#pragma once

#include <optional>

#include "octavo/nn/scope.h"

namespace octavo::nn {

// ids (...) i32 to (..., features). Parameter: embedding (num_embeddings, features).
// ContractError: ids of another type, or outside [0, num_embeddings).
struct Embed {
  std::size_t num_embeddings, features;
  std::optional<DType> dtype = {};  // of the result; none: param_dtype
  DType param_dtype = DType::f32;
  Initializer embedding_init = embedding_normal();

  Variable operator()(const Scope& scope, const Tensor& ids) const;

  // query (..., features) against every row: (..., num_embeddings), in `dtype`, else what query and
  // table promote to. For logits that share the table, called in the same scope (Scope::named).
  // ContractError: other features.
  Variable attend(const Scope& scope, const Variable& query) const;

  Variables init(const Rng& rng, const Tensor& ids) const { return nn::init(*this, rng, ids); }
  Variable apply(const Variables& variables, const Tensor& ids) const {
    return nn::apply(*this, variables, ids);
  }
};

}  // namespace octavo::nn
