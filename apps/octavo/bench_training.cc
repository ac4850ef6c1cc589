// training: the three products of a layer from f32 to f32, with all quantization and packing,
// against arithmetic.
#include "bench_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "bench_case.h"
#include "bench_product.h"
#include "bench_roof.h"
#include "octavo/base/ceil_div.h"
#include "octavo/formats/convert.h"
#include "octavo/kernels/gemm/order_c_reference.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/training_products.h"

namespace octavo::app {
namespace {

constexpr std::size_t kBlock = 128;

std::vector<float> normal_values(std::size_t count, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

std::shared_ptr<TrainingData> make_data(std::size_t m, std::size_t n, std::size_t k) {
  std::mt19937 random(1);
  return std::make_shared<TrainingData>(m, n, k, normal_values(m * k, 1.0f, random),
                                        normal_values(n * k, 0.02f, random),
                                        normal_values(m * n, 1e-4f, random));
}

// ---- Ours ----

ops::TrainingRecipes recipes_of(ops::Scaling scaling) {
  ops::TrainingRecipes recipes;
  recipes.x.scaling = recipes.w.scaling = recipes.g.scaling = scaling;
  // Of values that are known to stay below 5 deviations or so.
  recipes.x.scale = 0.0113f;
  recipes.w.scale = 2.3e-4f;
  recipes.g.scale = 9.1e-9f;
  recipes.w.block = {kBlock, kBlock};
  return recipes;
}

struct OurTraining {
  std::shared_ptr<const TrainingData> data;
  ops::TrainingRecipes recipes;
  Context context;
  std::vector<float> y, dx, dw;
  ops::TrainingTensors tensors = {};

  OurTraining(std::shared_ptr<const TrainingData> from, const ops::TrainingRecipes& how,
              ThreadPool& pool)
      : data(std::move(from)),
        recipes(how),
        context{&pool},
        y(data->m * data->n),
        dx(data->m * data->k),
        dw(data->n * data->k) {}

  void run() {
    const auto [m, n, k] = std::tuple(data->m, data->n, data->k);
    ops::training_products(
        {{{Format::f32, data->x.data(), m, k, k}, {}},
         {{Format::f32, data->w.data(), n, k, k}, {}},
         {{Format::f32, data->g.data(), m, n, n}, {}}},
        recipes, tensors,
        {{Format::f32, y.data(), n}, {Format::f32, dx.data(), k}, {Format::f32, dw.data(), k}},
        context);
  }
};

// ---- The reference ----

// A matrix (rows, cols) whose rows a product contracts.
struct Contracted {
  std::size_t rows, cols;
  std::vector<float> values;
  std::span<const float> row(std::size_t r) const {
    return std::span(values).subspan(r * cols, cols);
  }
};

Contracted transposed(const Contracted& from) {
  Contracted to{from.cols, from.rows, std::vector<float>(from.values.size())};
  for (std::size_t r = 0; r < from.rows; ++r) {
    for (std::size_t c = 0; c < from.cols; ++c) to.values[c * from.rows + r] = from.row(r)[c];
  }
  return to;
}

// Codes as values, and their scales in blocks.
struct Reference {
  Contracted codes;
  std::vector<float> scales;
  BlockSize block;
  float scale(std::size_t row, std::size_t k_block) const {
    return scales[row / block.rows * ceil_div(codes.cols, block.cols) +
                  k_block * kBlock / block.cols];
  }
};

// By the scalar kernels, in one piece, as the recipe says for a matrix that lies this way.
Reference reference(const Contracted& from, const ops::TensorRecipe& recipe) {
  const kernels::CastKernels& cast = kernels::cast_kernels(Isa::generic);
  const ConstMatrix matrix{Format::f32, from.values.data(), from.rows, from.cols, from.cols};
  std::vector<std::uint8_t> codes(from.values.size());
  Reference result{from, {recipe.scale}, {from.rows, from.cols}};
  if (recipe.scaling == ops::Scaling::delayed) {
    cast.block_quantize({Format::f32, matrix.data, from.cols, from.rows, from.cols, from.cols,
                         &recipe.scale, kernels::ScaleOp::divide, recipe.format, codes.data(),
                         from.cols, nullptr, false});
  } else {
    if (recipe.scaling == ops::Scaling::blocks) result.block = recipe.block;
    result.scales.resize(ceil_div(from.rows, result.block.rows) *
                         ceil_div(from.cols, result.block.cols));
    quantize_blocks(cast, matrix, {result.block, recipe.rule, recipe.scale_fmt, recipe.format},
                    {codes.data(), from.cols}, result.scales, false);
  }
  for (std::size_t i = 0; i < codes.size(); ++i) {
    result.codes.values[i] = recipe.format == Format::e5m2 ? decode<Format::e5m2>(codes[i])
                                                           : decode<Format::e4m3fn>(codes[i]);
  }
  return result;
}

// How far what was computed is from what it should be.
struct Difference {
  double value, error;
  bool is_allowed;
};
using Judge = std::function<Difference(std::size_t row, std::size_t col, float got)>;

Judge same_bits(const Contracted& a, const ops::TensorRecipe& a_recipe, const Contracted& w,
                const ops::TensorRecipe& w_recipe) {
  return [a = reference(a, a_recipe), w = reference(w, w_recipe)](std::size_t row, std::size_t col,
                                                                  float got) {
    const float expected = kernels::testing::order_c(
        a.codes.cols, kBlock, [&](std::size_t i) { return a.codes.row(row)[i]; },
        [&](std::size_t i) { return w.codes.row(col)[i]; },
        [&](std::size_t b) { return w.scale(col, b) * a.scale(row, b); });
    return Difference{expected, std::abs(double{got} - expected), got == expected};
  };
}

// Factors rounded to bf16 (8 bits, each with a relative error of up to 2^-8) and summed in f32 in
// any order.
Judge within_bf16(const Contracted& a, const Contracted& w) {
  return [a, w](std::size_t row, std::size_t col, float got) {
    double value = 0, magnitude = 0;
    for (std::size_t i = 0; i < a.cols; ++i) {
      const double product = double{a.row(row)[i]} * w.row(col)[i];
      value += product;
      magnitude += std::abs(product);
    }
    const double rounding = 0x1p-7 + 0x1p-16, ku = static_cast<double>(a.cols) * 0x1p-24;
    const double bound = (rounding + ku / (1 - ku) * (1 + rounding)) * magnitude;
    const double error = std::abs(got - value);
    return Difference{value, error, error <= bound};
  };
}

// A grid of up to 8 x 32 outputs, corners included.
Checked check_product(const char* name, const float* c, std::size_t m, std::size_t n,
                      const Judge& judge) {
  const auto place = [](std::size_t count, std::size_t i, std::size_t of) {
    return of == 1 ? 0 : i * (count - 1) / (of - 1);
  };
  const std::size_t rows = std::min<std::size_t>(m, 8), cols = std::min<std::size_t>(n, 32);
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < rows * cols; ++i) {
    const std::size_t row = place(m, i / cols, rows), col = place(n, i % cols, cols);
    const Difference found = judge(row, col, c[row * n + col]);
    if (!found.is_allowed)
      return std::unexpected(fmt::format("{} ({}, {}) is {}, expected {}", name, row, col,
                                         c[row * n + col], found.value));
    error = std::max(error, found.error);
    largest = std::max(largest, std::abs(found.value));
  }
  return largest == 0 ? error : error / largest;
}

// recipes null: a peer in bf16.
Checked check(const TrainingData& d, const Training& training,
              const ops::TrainingRecipes* recipes) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::fill_n(training.y, d.m * d.n, kNan);
  std::fill_n(training.dx, d.m * d.k, kNan);
  std::fill_n(training.dw, d.n * d.k, kNan);
  training.run();
  const Contracted x{d.m, d.k, d.x}, w{d.n, d.k, d.w}, g{d.m, d.n, d.g};
  const Contracted x_t = transposed(x), w_t = transposed(w), g_t = transposed(g);
  const auto judge = [&](const Contracted& a, ops::TensorRecipe ops::TrainingRecipes::* a_recipe,
                         const Contracted& b, ops::TensorRecipe ops::TrainingRecipes::* b_recipe) {
    return recipes == nullptr ? within_bf16(a, b)
                              : same_bits(a, recipes->*a_recipe, b, recipes->*b_recipe);
  };
  using R = ops::TrainingRecipes;
  OCTAVO_TRY(const double y, check_product("Y", training.y, d.m, d.n, judge(x, &R::x, w, &R::w)));
  OCTAVO_TRY(const double dx,
             check_product("dX", training.dx, d.m, d.k, judge(g, &R::g, w_t, &R::w)));
  OCTAVO_TRY(const double dw,
             check_product("dW", training.dw, d.n, d.k, judge(g_t, &R::g, x_t, &R::x)));
  return std::max({y, dx, dw});
}

// ---- Cases ----

struct Kernel {
  std::string name, formats;
  bool uses_dot;
  std::optional<ops::TrainingRecipes> recipes;  // nothing: a peer
  TrainingPeer peer;
};

Result<PreparedCase> prepare(const Kernel& kernel, std::size_t m, std::size_t n, std::size_t k,
                             int threads, BenchContext& context) {
  // Inputs and their transposes as f32 and as values of codes, one and two bytes of operands,
  // results.
  OCTAVO_CHECK(check_memory(context, 20 * (m * k + n * k + m * n)));
  const std::shared_ptr<const TrainingData> data = make_data(m, n, k);
  ThreadPool& pool = context.pool(threads);
  Training training;
  if (kernel.recipes) {
    auto ours = std::make_shared<OurTraining>(data, *kernel.recipes, pool);
    training = {[ours] { ours->run(); }, ours->y.data(), ours->dx.data(), ours->dw.data()};
  } else {
    OCTAVO_TRY(training, kernel.peer.make(*data, pool));
  }
  PreparedCase prepared;
  prepared.check = [=, recipes = kernel.recipes] {
    return check(*data, training, recipes ? &*recipes : nullptr);
  };
  prepared.kernel = {training.run, 6e-9 * static_cast<double>(m) * static_cast<double>(n * k)};
  if (!kernel.recipes && threads > 1)
    prepared.settle = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  const kernels::RoofKernels& roofs =
      kernel.recipes ? kernels::roof_kernels(context.isa) : kernels::widest_roof_kernels();
  prepared.roof = peak_roof(pool, kernel.uses_dot ? roofs.dot : roofs.fma);
  return prepared;
}

}  // namespace

std::vector<BenchCase> training_cases(const BenchContext& context) {
  const BenchRequest& request = context.request;
  // The scalar reference takes long.
  const bool is_small = request.quick || context.isa == Isa::generic;
  const std::vector<std::size_t> rows =
      !request.m.empty() ? request.m : std::vector<std::size_t>{is_small ? 64u : 512u};
  const std::size_t n = request.n != 0 ? request.n : is_small ? 256 : 4096;
  const std::size_t k = request.k != 0 ? request.k : is_small ? 192 : 1024;
  const bool has_dot = kernels::widest_roof_kernels().dot.run != nullptr;
  std::vector<BenchCase> cases;
  for (const std::size_t m : rows) {
    for (const int threads : request.threads) {
      const kernels::GemmPlan plan = plan_gemm({m, n, k, Format::e4m3fn, Format::e4m3fn},
                                               kernels::gemm_machine(context.isa, threads));
      const bool uses_dot = plan.arithmetic == kernels::Arithmetic::dot;
      std::vector<Kernel> all;
      for (const auto& [scaling, words] : {std::pair{ops::Scaling::delayed, "delayed"},
                                           std::pair{ops::Scaling::current, "current"},
                                           std::pair{ops::Scaling::blocks, "blocks"}}) {
        all.push_back({kernels::kernel_name(plan),
                       fmt::format("e4m3fn, e5m2 {}", words),
                       uses_dot,
                       recipes_of(scaling),
                       {}});
      }
      for (const TrainingPeer& peer : onednn_training())
        all.push_back({peer.kernel, "bf16", has_dot, std::nullopt, peer});
      for (const Kernel& kernel : all) {
        cases.push_back({"training", m, n, k, kernel.formats, threads, kernel.name, "GFLOP/s",
                         kernel.uses_dot ? "dot bf16" : "fma f32",
                         [=](BenchContext& c) { return prepare(kernel, m, n, k, threads, c); }});
      }
    }
  }
  return cases;
}

}  // namespace octavo::app
