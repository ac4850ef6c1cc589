#include <fmt/format.h>
#include <omp.h>

#include <dnnl.hpp>
#include <memory>

#include "bench_product.h"
#include "bench_training.h"

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

// ---- Training ----

// One of the three products: dst = src weights.
struct Step {
  dnnl::matmul::primitive_desc description;
  dnnl::matmul matmul;
  memory src, weights, dst;
};

// Each tensor is converted once, to plain rows; or once for each product, to the layout that it
// prefers.
struct TrainingSteps {
  int threads;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  TrainingData data;
  std::vector<std::pair<memory, memory>> conversions;  // from f32, to bf16
  std::vector<Step> steps;

  void run() {
    omp_set_num_threads(threads);
    for (auto& [from, to] : conversions) dnnl::reorder(from, to).execute(stream, from, to);
    for (Step& step : steps) {
      step.matmul.execute(
          stream,
          {{DNNL_ARG_SRC, step.src}, {DNNL_ARG_WEIGHTS, step.weights}, {DNNL_ARG_DST, step.dst}});
    }
    stream.wait();
  }

  memory converted(std::vector<float>& from, const memory::dims& dims, memory::format_tag tag,
                   const memory::desc& to) {
    const memory wide({dims, memory::data_type::f32, tag}, engine, from.data());
    return conversions.emplace_back(wide, memory(to, engine)).second;
  }
};

Training make_training(const TrainingData& data, int threads, bool preferred) {
  omp_set_num_threads(threads);
  const auto m = static_cast<memory::dim>(data.m), n = static_cast<memory::dim>(data.n),
             k = static_cast<memory::dim>(data.k);
  const auto f32 = memory::data_type::f32, bf16 = memory::data_type::bf16;
  using tag = memory::format_tag;
  auto t = std::make_shared<TrainingSteps>();
  t->threads = threads;
  t->data = data;
  const auto plain = [&](std::vector<float>& from, memory::dim rows, memory::dim cols) {
    return t->converted(from, {rows, cols}, tag::ab, {{rows, cols}, bf16, tag::ab});
  };
  memory x, w, g;
  if (!preferred)
    x = plain(t->data.x, m, k), w = plain(t->data.w, n, k), g = plain(t->data.g, m, n);
  // (rows, depth) (depth, cols); a tag `ba` is a matrix that lies transposed in memory.
  const auto add = [&](std::vector<float>& from_a, const memory& a, tag a_tag,
                       std::vector<float>& from_b, const memory& b, tag b_tag, memory::dim rows,
                       memory::dim depth, memory::dim cols) {
    Step step;
    step.description = {dnnl::matmul::desc({{rows, depth}, bf16, preferred ? tag::any : a_tag},
                                           {{depth, cols}, bf16, preferred ? tag::any : b_tag},
                                           {{rows, cols}, f32, tag::ab}),
                        t->engine};
    step.matmul = dnnl::matmul(step.description);
    if (preferred) {
      step.src = t->converted(from_a, {rows, depth}, a_tag, step.description.src_desc());
      step.weights = t->converted(from_b, {depth, cols}, b_tag, step.description.weights_desc());
    } else {
      step.src = memory(step.description.src_desc(), t->engine, a.get_data_handle());
      step.weights = memory(step.description.weights_desc(), t->engine, b.get_data_handle());
    }
    step.dst = memory(step.description.dst_desc(), t->engine);
    t->steps.push_back(step);
  };
  TrainingData& d = t->data;
  add(d.x, x, tag::ab, d.w, w, tag::ba, m, k, n);
  add(d.g, g, tag::ab, d.w, w, tag::ab, m, n, k);
  add(d.g, g, tag::ba, d.x, x, tag::ab, n, m, k);
  const auto result = [&](std::size_t i) {
    return static_cast<float*>(t->steps[i].dst.get_data_handle());
  };
  return {[t] { t->run(); }, result(0), result(1), result(2)};
}

TrainingPeer training_peer(const char* name, bool preferred) {
  return {name, [preferred](const TrainingData& data, ThreadPool& pool) -> Result<Training> {
            try {
              return make_training(data, pool.threads(), preferred);
            } catch (const dnnl::error& error) {
              return fail(ErrorCode::unsupported, fmt::format("oneDNN: {}", error.what()));
            }
          }};
}

}  // namespace

std::vector<TrainingPeer> onednn_training() {
  return {training_peer("onednn", false), training_peer("onednn any layout", true)};
}

std::vector<ProductKernel> onednn_kernels() {
  return {kernel("onednn", false), kernel("onednn+convert", true)};
}

}  // namespace octavo::app
