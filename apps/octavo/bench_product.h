// Implementations of C = A W^T that `octavo bench --op gemv|gemm` measures: ours, and those of
// other libraries where this build has them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"

namespace octavo::app {

// Operands, whose values e4m3fn and therefore bf16 and f32 hold exactly.
struct ProductData {
  std::size_t m, n, k;
  std::vector<float> a;        // (m, k)
  std::vector<float> w;        // (n, k)
  std::vector<float> a_scale;  // (m, ceil(k / 128))
  std::vector<float> w_scale;  // (ceil(n / 128), ceil(k / 128))
};

// Packed and ready. The weight is there in several copies, so that a call finds none of it in a
// cache.
struct Product {
  std::function<void(std::size_t copy)> run;
  const float* c;  // (m, n); owned by run
};

struct ProductKernel {
  std::string kernel;
  std::string formats;      // weights x activations
  std::size_t weight_bits;  // of an element
  bool uses_dot;            // of the arithmetic roofs, the one that applies
  // Order C with scales: the same bits as the scalar reference. Otherwise without scales, and
  // within the bound of any order of summation in f32.
  bool order_c;
  bool a_scaled, w_scaled;  // of order C
  // ErrorCode::unsupported: not on this machine.
  std::function<Result<Product>(const ProductData&, std::size_t copies, ThreadPool&)> make;
};

// Without any where the build lacks the library (bench_*_none.cc).
std::vector<ProductKernel> onednn_kernels();
std::vector<ProductKernel> openblas_kernels();

// One output of order C (octavo/kernels/gemm/gemm.h) with blocks of 128: a and w are of one size,
// scale(block) is the product of both scales.
float order_c(std::span<const float> a, std::span<const float> w,
              const std::function<float(std::size_t block)>& scale);

}  // namespace octavo::app
