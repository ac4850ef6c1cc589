#include "octavo/autograd/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "octavo/autograd/compute_internal.h"
#include "octavo/autograd/dot_general.h"
#include "octavo/autograd/dropout.h"
#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/softmax.h"

namespace octavo {
namespace {

// Sizes, after the axes before `length` became one.
struct AttentionShape {
  std::uint64_t batch, length, kv_length, kv_heads, group, dim, value_dim;
  std::uint64_t heads() const { return kv_heads * group; }
};

AttentionShape attention_shape(const Shape& q, const Shape& k, const Shape& v) {
  const std::size_t rank = q.size();
  bool fits = rank >= 3 && k.size() == rank && v.size() == rank;
  fits = fits && std::equal(q.begin(), q.end() - 3, k.begin()) &&
         std::equal(k.begin(), k.end() - 1, v.begin()) && k[rank - 1] == q[rank - 1] &&
         k[rank - 2] != 0 && q[rank - 2] % k[rank - 2] == 0;
  if (!fits) {
    throw ContractError(fmt::format(
        "dot_product_attention: given query {}, key {} and value {}, expected (..., length, heads, "
        "dim), (..., kv_length, kv_heads, dim) and (..., kv_length, kv_heads, value_dim) with "
        "kv_heads dividing heads",
        to_string(q), to_string(k), to_string(v)));
  }
  return {.batch = *element_count(Shape(q.begin(), q.end() - 3)),
          .length = q[rank - 3],
          .kv_length = k[rank - 3],
          .kv_heads = k[rank - 2],
          .group = q[rank - 2] / k[rank - 2],
          .dim = q[rank - 1],
          .value_dim = v[rank - 1]};
}

// (1 or batch, length).
Tensor positions_of(const std::optional<Tensor>& given, const Shape& x, std::uint64_t length) {
  if (!given) {
    std::vector<std::int32_t> counted(length);
    std::iota(counted.begin(), counted.end(), 0);
    return Tensor::from_ids(counted, {1, length});
  }
  const bool is_shared = given->shape() == Shape{length};
  if (given->dtype() != DType::i32 ||
      (!is_shared && given->shape() != Shape(x.begin(), x.end() - 2))) {
    throw ContractError(fmt::format(
        "dot_product_attention: given positions {} of {} for {}, expected [{}] or {} of I32",
        to_string(given->shape()), dtype_name(given->dtype()), to_string(x), length,
        to_string(Shape(x.begin(), x.end() - 2))));
  }
  return given->reshape({length == 0 ? 1 : given->size() / length, length});
}

// (1 or batch, 1, length, kv_length) u8: 1 where a query sees a key.
Tensor visible(const Tensor& positions, const Tensor& kv_positions, std::uint64_t of_all,
               const AttentionOptions& options) {
  const bool is_shared = positions.shape()[0] == 1 && kv_positions.shape()[0] == 1;
  const std::uint64_t batch = is_shared ? 1 : of_all;
  const std::uint64_t length = positions.shape()[1], kv_length = kv_positions.shape()[1];
  Tensor mask(DType::u8, {batch, 1, length, kv_length});
  std::uint8_t* to = mask.mutable_values<std::uint8_t>().data();
  for (std::uint64_t b = 0; b < batch; ++b) {
    const auto row = [b](const Tensor& p, std::uint64_t n) {
      return p.values<std::int32_t>().subspan(p.shape()[0] == 1 ? 0 : b * n, n);
    };
    for (const std::int64_t q : row(positions, length)) {
      for (const std::int64_t k : row(kv_positions, kv_length)) {
        const auto distance = static_cast<std::uint64_t>(std::abs(q - k));
        const bool is_seen = q >= 0 && k >= 0 && (!options.is_causal || k <= q) &&
                             (!options.window || distance < *options.window);
        *to++ = is_seen ? 1 : 0;
      }
    }
  }
  return mask;
}

// (batch, heads, length, kv_length)
Variable attention_weights(const Variable& query, const Variable& key, const AttentionShape& s,
                           double factor, const Tensor& mask) {
  const Variable q =
      transpose(reshape(query, {s.batch, s.length, s.kv_heads, s.group, s.dim}), {0, 2, 3, 1, 4});
  const Variable k = reshape(key, {s.batch, s.kv_length, s.kv_heads, s.dim});
  const Variable scores = dot_general(
      q, k,
      {.lhs_contracting = {4}, .rhs_contracting = {3}, .lhs_batch = {0, 1}, .rhs_batch = {0, 2}},
      computed_in(query.dtype()));
  return masked_softmax(scale(reshape(scores, {s.batch, s.heads(), s.length, s.kv_length}), factor),
                        mask);
}

}  // namespace

Variable dot_product_attention(const Variable& query, const Variable& key, const Variable& value,
                               const AttentionOptions& options) {
  const AttentionShape s = attention_shape(query.shape(), key.shape(), value.shape());
  const Tensor mask =
      visible(positions_of(options.positions, query.shape(), s.length),
              positions_of(options.kv_positions, key.shape(), s.kv_length), s.batch, options);
  const double factor = options.scale.value_or(1 / std::sqrt(static_cast<double>(s.dim)));
  Variable weights = cast(attention_weights(query, key, s, factor, mask), value.dtype());
  if (options.dropout_rate != 0) {
    if (!options.dropout_rng) {
      throw ContractError(
          "dot_product_attention: given a dropout_rate without dropout_rng, expected both");
    }
    weights = dropout(weights, options.dropout_rate, *options.dropout_rng, {0, 1});
  }
  const Variable mixed = dot_general(
      reshape(weights, {s.batch, s.kv_heads, s.group, s.length, s.kv_length}),
      reshape(value, {s.batch, s.kv_length, s.kv_heads, s.value_dim}),
      {.lhs_contracting = {4}, .rhs_contracting = {1}, .lhs_batch = {0, 1}, .rhs_batch = {0, 2}});
  Shape shape = query.shape();
  shape.back() = s.value_dim;
  return reshape(transpose(mixed, {0, 3, 1, 2, 4}), std::move(shape));
}

}  // namespace octavo
