// Implementations of C = A W^T that `octavo bench --op gemv|gemm` measures: ours, and those of
// other libraries where this build has them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench_case.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"

namespace octavo::app {

// Operands. Activations have values of e4m3fn, weights those of w_codes: bf16 and f32 hold both.
struct ProductData {
  std::size_t m, n, k;
  Format w_format;          // of w_codes, 8 bits
  std::vector<float> a, w;  // (m, k), (n, k)
  std::vector<std::uint8_t> a_codes, w_codes;
  std::vector<float> a_scale;  // (m, ceil(k / 128))
  std::vector<float> w_scale;  // (ceil(n / 128), ceil(k / 128))
};

// Packed and ready. The weight is there in several copies, so that a call finds none of it in a
// cache.
struct Product {
  std::function<void(std::size_t copy)> run;
  float* c;  // (m, n); owned by run
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

// What some of the outputs must be: a grid of up to 4 rows and 64 columns, its corners included.
struct ProductReference {
  std::size_t n;  // of the whole product
  std::vector<std::size_t> rows, cols;
  std::vector<double> values, bounds;  // (rows, cols): |c - value| is at most the bound
};

ProductReference product_reference(const ProductKernel& kernel, const ProductData& data);

// c: (m, n).
Checked compare(const ProductReference& reference, const float* c);

void poison(const ProductData& data, const Product& product);

// The first and the last copy, each on a poisoned result.
Checked check_product(const ProductReference& reference, const ProductData& data,
                      const Product& product, std::size_t copies);

// Without any where the build lacks the library (bench_*_none.cc).
std::vector<ProductKernel> onednn_kernels();
std::vector<ProductKernel> openblas_kernels();

}  // namespace octavo::app
