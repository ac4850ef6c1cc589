#include <fmt/format.h>
#include <omp.h>

#include <dnnl.hpp>
#include <memory>

#include "bench_product.h"

namespace octavo::app {
namespace {

using dnnl::memory;

// BF16 with f32 results. Weights are packed once per copy, or from f32 in every call, which then
// converts the activations too.
struct Matmul {
  int threads;
  bool converts;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul::primitive_desc description;
  dnnl::matmul matmul;
  std::vector<float> wide_a, wide_w;
  memory a32, w32, a, c;
  std::vector<memory> w;

  void pack(memory& to) { dnnl::reorder(w32, to).execute(stream, w32, to); }

  void run(std::size_t copy) {
    omp_set_num_threads(threads);
    if (converts) {
      dnnl::reorder(a32, a).execute(stream, a32, a);
      pack(w[copy]);
    }
    matmul.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, w[copy]}, {DNNL_ARG_DST, c}});
    stream.wait();
  }
};

Product make_matmul(const ProductData& data, std::size_t copies, int threads, bool converts) {
  omp_set_num_threads(threads);
  const auto m = static_cast<memory::dim>(data.m), n = static_cast<memory::dim>(data.n),
             k = static_cast<memory::dim>(data.k);
  const auto f32 = memory::data_type::f32, bf16 = memory::data_type::bf16;
  using tag = memory::format_tag;
  auto p = std::make_shared<Matmul>();
  p->threads = threads;
  p->converts = converts;
  p->description = {
      dnnl::matmul::desc({{m, k}, bf16, tag::ab}, {{k, n}, bf16, tag::any}, {{m, n}, f32, tag::ab}),
      p->engine};
  p->matmul = dnnl::matmul(p->description);
  p->wide_a = data.a;
  p->wide_w = data.w;
  p->a32 = memory({{m, k}, f32, tag::ab}, p->engine, p->wide_a.data());
  p->w32 = memory({{k, n}, f32, tag::ba}, p->engine, p->wide_w.data());  // (n, k) row by row
  p->a = memory(p->description.src_desc(), p->engine);
  p->c = memory(p->description.dst_desc(), p->engine);
  dnnl::reorder(p->a32, p->a).execute(p->stream, p->a32, p->a);
  for (std::size_t i = 0; i < copies; ++i) {
    p->w.emplace_back(p->description.weights_desc(), p->engine);
    p->pack(p->w.back());
  }
  p->stream.wait();
  return {[p](std::size_t copy) { p->run(copy); }, static_cast<float*>(p->c.get_data_handle())};
}

Result<Product> make(const ProductData& data, std::size_t copies, ThreadPool& pool, bool converts) {
  try {
    return make_matmul(data, copies, pool.threads(), converts);
  } catch (const dnnl::error& error) {
    return fail(ErrorCode::unsupported, fmt::format("oneDNN: {}", error.what()));
  }
}

ProductKernel kernel(const char* name, bool converts) {
  return {name,
          "bf16 x bf16",
          16,
          true,
          false,
          false,
          false,
          [converts](const ProductData& data, std::size_t copies, ThreadPool& pool) {
            return make(data, copies, pool, converts);
          }};
}

}  // namespace

std::vector<ProductKernel> onednn_kernels() {
  return {kernel("onednn", false), kernel("onednn+convert", true)};
}

}  // namespace octavo::app
