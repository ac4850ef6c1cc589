// Order C once more, in the plainest form: what tests and benchmarks hold the kernels to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace octavo::kernels::testing {

// One output in order C of gemm.h, before the bias: from values, with nothing of packed layouts or
// of the kernels in it. a(k) and w(k) for k < size, scale(kb).
template <class A, class W, class Scale>
float order_c(std::size_t size, std::size_t k_block, A&& a, W&& w, Scale&& scale) {
  float tot = 0.0f;
  for (std::size_t first = 0; first < size; first += k_block) {
    float acc = 0.0f;
    for (std::size_t k = first; k < std::min(size, first + k_block); k += 2) {
      const bool has_odd = k + 1 < size;
      acc = std::fma(has_odd ? a(k + 1) : 0.0f, has_odd ? w(k + 1) : 0.0f, acc);
      acc = std::fma(a(k), w(k), acc);
    }
    tot = std::fma(acc, scale(first / k_block), tot);
  }
  return tot;
}

}  // namespace octavo::kernels::testing
