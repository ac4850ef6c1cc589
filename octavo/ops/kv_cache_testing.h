// Keys and values of a cache as a reader of its layout sees them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "octavo/base/ceil_div.h"
#include "octavo/formats/convert.h"
#include "octavo/kernels/gemm/layout.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/kv_cache.h"

namespace octavo::ops::testing {

// The codes of a packed weight (n, k) as f32, exactly.
inline std::vector<float> unpacked(Format format, const void* packed, std::size_t n,
                                   std::size_t k) {
  std::vector<std::uint8_t> codes(n * k * bytes_per_element(format));
  kernels::pack_kernels(Isa::generic)
      .unpack_weights({format, packed, n, k, 0, kernels::strips(n), codes.data(), k});
  std::vector<float> values(n * k);
  kernels::cast_kernels(Isa::generic)
      .cast({format, codes.data(), Format::f32, values.data(), n * k, Overflow::special});
  return values;
}

// (tokens, head_dim), without scales.
inline std::vector<float> key_codes(const KvCache& cache, std::size_t layer, std::size_t head,
                                    std::size_t tokens) {
  return unpacked(cache.shape().format, cache.keys(layer, head), tokens, cache.shape().head_dim);
}

inline std::vector<float> value_codes(const KvCache& cache, std::size_t layer, std::size_t head,
                                      std::size_t tokens) {
  const std::size_t dim = cache.shape().head_dim;
  std::vector<float> values(tokens * dim);
  for (std::size_t first = 0; first < tokens; first += kKvPage) {
    const std::vector<float> page =
        unpacked(cache.shape().format, cache.values(layer, head, first / kKvPage), dim, kKvPage);
    for (std::size_t token = first; token < std::min(tokens, first + kKvPage); ++token) {
      for (std::size_t c = 0; c < dim; ++c) {
        values[token * dim + c] = page[c * kKvPage + token - first];
      }
    }
  }
  return values;
}

inline std::vector<float> normal_floats(std::mt19937& random, std::size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace octavo::ops::testing
