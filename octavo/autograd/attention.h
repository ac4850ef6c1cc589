// softmax(Q K^T) V with masks that follow from positions, heads in groups.
#pragma once

#include <optional>

#include "octavo/autograd/random.h"
#include "octavo/autograd/variable.h"

namespace octavo {

// What a query sees, and how its scores become weights.
struct AttentionOptions {
  bool is_causal = false;  // a query sees keys of its own position and before
  std::optional<std::size_t> window =
      {};                            // and only those nearer than that: itself, and window - 1
  std::optional<double> scale = {};  // of scores; 1 / sqrt(head_dim)
  // Of queries and of keys, i32: (length), or all axes before the heads; 0, 1, 2, ... if not given.
  // A negative one is padding: as a key it is not seen, as a query it sees nothing and gives 0.
  std::optional<Tensor> positions = {}, kv_positions = {};
  double dropout_rate = 0;  // of weights; one draw for all batches and heads
  std::optional<Rng> dropout_rng = {};
};

// softmax(scale * query key^T) value over the keys that a query sees; 0 where it sees none.
// query: (..., length, heads, head_dim); key: (..., kv_length, kv_heads, head_dim); value:
// likewise, its head_dim may be another. Consecutive queries share a key head: kv_heads divides
// heads (jax.nn.dot_product_attention). The result is (..., length, heads, value's head_dim) in the
// type of value. Scores and softmax are f32 (f64 for f64); weights are rounded to the type of
// value. ContractError: shapes or types that do not fit, dropout without a key.
Variable dot_product_attention(const Variable& query, const Variable& key, const Variable& value,
                               const AttentionOptions& options = {});

}  // namespace octavo
