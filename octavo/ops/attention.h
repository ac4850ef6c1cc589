// Causal attention of new tokens over the cache of their sequence: softmax(scale * q k^T) v.
#pragma once

#include <cstddef>
#include <optional>

#include "octavo/ops/kv_cache.h"

namespace octavo::ops {

// Tokens whose scores are in memory at once. The grid of chunks begins at token 0 whatever is
// asked, so that bits do not depend on how a prompt is cut, on a window, or on threads.
inline constexpr std::size_t kAttentionChunk = 1024;

// Of one sequence and layer; strides in elements.
struct AttentionArgs {
  const float* q;  // (count, heads * head_dim)
  std::size_t q_stride;
  float* out;  // (count, heads * head_dim); may be q
  std::size_t out_stride;
  std::size_t count;     // new tokens, whose keys and values the cache has already
  std::size_t position;  // of the first of them
  std::size_t heads;     // a multiple of the cache's kv_heads: consecutive ones share a kv head
  std::size_t layer;
  float scale;                        // of scores, 1 / sqrt(head_dim) as a rule
  std::optional<std::size_t> window;  // a token sees itself and the window - 1 tokens before
};

// Order: scores of a query in order C over channels; per chunk of kAttentionChunk tokens their
// maximum, p = exp2((s - max) * scale * log2(e)) and its sum in 16 lanes (kernels/softmax), values
// in order C over pages of kKvPage tokens, pages added in order; between chunks, sums are rescaled
// by exp2((old max - max) * ...). All in f32; an e4m3fn cache's value scales multiply p.
// What a query does not see, it does not depend on, be it finite or not; what it sees and is not
// finite makes its results so, by these formulas. (Which NaN a result is, is not specified.)
// ContractError: heads that do not divide, a layer or positions beyond the cache, a window of 0.
void attention(const AttentionArgs& args, const KvCache& cache,
               const Context& context = default_context());

}  // namespace octavo::ops
