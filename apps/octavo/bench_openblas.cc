#include <cblas.h>
#include <fmt/format.h>

#include <memory>

#include "bench_product.h"

namespace octavo::app {
namespace {

struct Sgemm {
  int m, n, k, threads;
  std::vector<float> a, c;
  std::vector<std::vector<float>> w;  // copies

  void run(std::size_t copy) {
    openblas_set_num_threads(threads);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f, a.data(), k, w[copy].data(),
                k, 0.0f, c.data(), n);
  }
};

Result<Product> make(const ProductData& data, std::size_t copies, ThreadPool& pool) {
  auto product = std::make_shared<Sgemm>();
  product->m = static_cast<int>(data.m);
  product->n = static_cast<int>(data.n);
  product->k = static_cast<int>(data.k);
  product->threads = pool.threads();
  product->a = data.a;
  product->c.resize(data.m * data.n);
  product->w.assign(copies, data.w);
  return Product{[product](std::size_t copy) { product->run(copy); }, product->c.data()};
}

}  // namespace

std::vector<ProductKernel> openblas_kernels() {
  // With the kernels that it took for this processor: an old release may not know it, and then
  // OPENBLAS_CORETYPE=SkylakeX helps.
  return {{fmt::format("openblas {}", openblas_get_corename()), "f32 x f32", 32, false, false,
           false, false, make}};
}

}  // namespace octavo::app
