// OpenBLAS, loaded when its rows are listed. Once it is in a process its threads each allocate
// 128 MiB, repeat that for ever where the address space does not hold it, and are waited for at
// exit: linked, it would hang every command under a tight `ulimit -v`.
#include <cblas.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <memory>

#include "bench_product.h"

namespace octavo::app {
namespace {

struct OpenBlas {
  decltype(&cblas_sgemm) sgemm;
  decltype(&openblas_set_num_threads) set_num_threads;
  decltype(&openblas_get_corename) get_corename;
};

Result<OpenBlas> load() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return fail(ErrorCode::unsupported,
                "OpenBLAS may wait for ever under a limit of address space; lift it (ulimit -v "
                "unlimited)");
  void* library = ::dlopen(OCTAVO_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(ErrorCode::unsupported, ::dlerror());
  OpenBlas blas{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(  // NOLINT
        ::dlsym(library, name));
    return function != nullptr;
  };
  if (!find(blas.sgemm, "cblas_sgemm") || !find(blas.set_num_threads, "openblas_set_num_threads") ||
      !find(blas.get_corename, "openblas_get_corename"))
    return fail(ErrorCode::unsupported, ::dlerror());
  return blas;
}

struct Sgemm {
  OpenBlas blas;
  int m, n, k, threads;
  std::vector<float> a, c;
  std::vector<std::vector<float>> w;  // copies

  void run(std::size_t copy) {
    blas.set_num_threads(threads);
    blas.sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f, a.data(), k, w[copy].data(),
               k, 0.0f, c.data(), n);
  }
};

Product make(const OpenBlas& blas, const ProductData& data, std::size_t copies, ThreadPool& pool) {
  auto product = std::make_shared<Sgemm>();
  product->blas = blas;
  product->m = static_cast<int>(data.m);
  product->n = static_cast<int>(data.n);
  product->k = static_cast<int>(data.k);
  product->threads = pool.threads();
  product->a = data.a;
  product->c.resize(data.m * data.n);
  product->w.assign(copies, data.w);
  return {[product](std::size_t copy) { product->run(copy); }, product->c.data()};
}

}  // namespace

std::vector<ProductKernel> openblas_kernels() {
  static const Result<OpenBlas> blas = load();
  // With the kernels that it took for this processor: an old release may not know it, and then
  // OPENBLAS_CORETYPE=SkylakeX helps.
  const std::string name = blas ? fmt::format("openblas {}", blas->get_corename()) : "openblas";
  return {{name, "f32 x f32", 32, false, false, false, false,
           [](const ProductData& data, std::size_t copies, ThreadPool& pool) -> Result<Product> {
             OCTAVO_TRY(const OpenBlas loaded, blas);
             return make(loaded, data, copies, pool);
           }}};
}

}  // namespace octavo::app
