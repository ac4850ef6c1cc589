// Random numbers by key and counter, JAX's threefry2x32 with partitionable counters: the bits are
// those of jax.random for the same key.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "octavo/base/threefry.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// A key. Each use of one gives the same numbers: split it, or fold something in, for others.
struct Rng {
  Threefry key;

  // From a seed, or the words of a key.
  explicit Rng(std::uint64_t seed) : key(threefry_words(seed)) {}  // jax.random.key(seed)
  explicit Rng(Threefry words) : key(words) {}

  // Other keys: of this one and a number or name (jax.random.fold_in), or `count` of them
  // (jax.random.split).
  Rng fold_in(std::uint32_t data) const;
  Rng fold_in(std::string_view name) const;  // a hash of the name
  std::vector<Rng> split(std::size_t count) const;
};

// f32 in [low, high), normal(0, 1), and normal(0, 1) limited to (low, high). JAX's, to the bit for
// uniform; of 100,000 of the others 0.7 % differ, by 3 units in the last place at most: the inverse
// of erf is the same polynomial, its logarithm is the C library's here and XLA's there.
Tensor uniform(const Rng& rng, const Shape& shape, float low = 0, float high = 1);
Tensor normal(const Rng& rng, const Shape& shape);
Tensor truncated_normal(const Rng& rng, const Shape& shape, float low, float high);

// 1 with that probability, else 0, in f32 (jax.random.bernoulli, which gives booleans).
Tensor bernoulli(const Rng& rng, float probability, const Shape& shape);

}  // namespace octavo
