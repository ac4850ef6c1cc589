// gemv and gemm: C = A W^T. gemv is held against reading the weight, gemm against arithmetic.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "bench_case.h"
#include "bench_product.h"
#include "bench_roof.h"
#include "octavo/base/ceil_div.h"
#include "octavo/formats/traits.h"
#include "octavo/formats/values.h"
#include "octavo/kernels/gemm/plan.h"

namespace octavo::app {
namespace {

constexpr std::size_t kBlock = 128;
// From so many rows on a weight is used so often that one copy of it does.
constexpr std::size_t kRowsOfOneCopy = 128;

// Of small weights, which then stay in caches.
constexpr std::size_t kMostCopies = 4096;

enum class Against { read, arithmetic };

std::shared_ptr<ProductData> make_data(std::size_t m, std::size_t n, std::size_t k) {
  auto data = std::make_shared<ProductData>(m, n, k);
  std::mt19937 random(1);
  float values[256];
  for (int code = 0; code < 256; ++code) {
    const E4m3fn value = E4m3fn::from_bits(static_cast<std::uint8_t>(code));
    values[code] = value.is_nan() ? 0 : value.to_float();
  }
  const auto fill = [&](std::vector<float>& v, std::size_t count) {
    v.resize(count);
    for (float& x : v) x = values[random() & 0xFF];
  };
  const auto fill_scales = [](std::vector<float>& v, std::size_t count) {
    v.resize(count);
    for (std::size_t i = 0; i < count; ++i) v[i] = 0.01f * (1 + static_cast<float>(i % 13) / 13);
  };
  fill(data->a, m * k);
  fill(data->w, n * k);
  fill_scales(data->a_scale, m * ceil_div(k, kBlock));
  fill_scales(data->w_scale, ceil_div(n, kBlock) * ceil_div(k, kBlock));
  return data;
}

// ---- Ours ----

// In a format that holds the values exactly.
AlignedBytes in_format(const std::vector<float>& values, Format format) {
  const std::size_t bytes = bytes_per_element(format);
  AlignedBytes result(values.size() * bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t bits = 0;
    if (format == Format::e4m3fn) {
      bits = E4m3fn::rounded(values[i], Rounding::nearest_even, Overflow::saturate).bits();
    } else {
      std::memcpy(&bits, &values[i], 4);
      if (format == Format::bf16) bits >>= 16;
    }
    std::memcpy(result.data() + i * bytes, &bits, bytes);
  }
  return result;
}

struct OurProduct {
  std::size_t m, n, k;
  Context context;
  Format a_format;
  bool a_scaled;
  AlignedBytes a, c;
  std::vector<float> a_scale;
  std::vector<ops::PackedWeight> w;  // copies

  void run(std::size_t copy) {
    ops::Operand operand{{a_format, a.data(), m, k, k}, {}};
    if (a_scaled) operand.scale = {a_scale.data(), ceil_div(k, kBlock), {1, kBlock}};
    ops::gemm(operand, w[copy], {Format::f32, c.data(), n}, {.context = &context});
  }
};

Result<Product> make_ours(const ProductKernel& kernel, Format w_format, Format a_format,
                          const ProductData& data, std::size_t copies, ThreadPool& pool) {
  auto product = std::make_shared<OurProduct>(data.m, data.n, data.k, Context{&pool}, a_format,
                                              kernel.a_scaled);
  product->a = in_format(data.a, a_format);
  product->c = AlignedBytes(data.m * data.n * sizeof(float));
  product->a_scale = data.a_scale;
  const AlignedBytes w = in_format(data.w, w_format);
  ops::Operand operand{{w_format, w.data(), data.n, data.k, data.k}, {}};
  if (kernel.w_scaled)
    operand.scale = {data.w_scale.data(), ceil_div(data.k, kBlock), {kBlock, kBlock}};
  for (std::size_t i = 0; i < copies; ++i)
    product->w.push_back(ops::pack_weight(operand, product->context));
  return Product{[product](std::size_t copy) { product->run(copy); },
                 reinterpret_cast<const float*>(product->c.data())};
}

ProductKernel ours(const BenchContext& context, int threads, std::size_t m, std::size_t n,
                   std::size_t k, Format w, Format a) {
  const kernels::GemmPlan plan =
      plan_gemm({m, n, k, w, a}, kernels::gemm_machine(context.isa, threads));
  ProductKernel kernel{kernels::kernel_name(plan),
                       fmt::format("{} x {}", format_name(w), format_name(a)),
                       static_cast<std::size_t>(traits(w).bits),
                       plan.arithmetic == kernels::Arithmetic::dot,
                       true,
                       a == Format::e4m3fn,
                       w == Format::e4m3fn,
                       {}};
  kernel.make = [kernel, w, a](const ProductData& data, std::size_t copies, ThreadPool& pool) {
    return make_ours(kernel, w, a, data, copies, pool);
  };
  return kernel;
}

// Every implementation of a product, ours first.
std::vector<ProductKernel> product_kernels(const BenchContext& context, int threads, std::size_t m,
                                           std::size_t n, std::size_t k) {
  std::vector<ProductKernel> all;
  for (const auto& [w, a] :
       {std::pair{Format::e4m3fn, Format::bf16}, std::pair{Format::e4m3fn, Format::e4m3fn},
        std::pair{Format::e4m3fn, Format::f32}, std::pair{Format::bf16, Format::bf16}}) {
    all.push_back(ours(context, threads, m, n, k, w, a));
  }
  for (const auto& kernels : {onednn_kernels(), openblas_kernels()})
    all.insert(all.end(), kernels.begin(), kernels.end());
  return all;
}

// ---- The reference ----

// Outputs to look at: up to 4 rows and 64 columns, corners included.
struct Grid {
  std::vector<std::size_t> rows, cols;
};

Grid grid_of(const ProductData& d) {
  const auto places = [](std::size_t count, std::size_t most) {
    const std::size_t of = std::min(count, most);
    std::vector<std::size_t> all(of);
    for (std::size_t i = 0; i < of; ++i) all[i] = of == 1 ? 0 : i * (count - 1) / (of - 1);
    return all;
  };
  return {places(d.m, 4), places(d.n, 64)};
}

// Order C of octavo/kernels/gemm/gemm.h by the scalar specification, (rows, cols) of the grid.
std::vector<float> order_c(const ProductKernel& kernel, const ProductData& d, const Grid& grid,
                           const Context& context) {
  const std::size_t blocks = ceil_div(d.k, kBlock);
  const auto rows_of = [](const std::vector<float>& matrix, std::size_t width,
                          const std::vector<std::size_t>& rows, std::size_t step) {
    std::vector<float> result;
    for (const std::size_t row : rows) {
      const float* from = matrix.data() + row / step * width;
      result.insert(result.end(), from, from + width);
    }
    return result;
  };
  const std::vector<float> a = rows_of(d.a, d.k, grid.rows, 1);
  const std::vector<float> w = rows_of(d.w, d.k, grid.cols, 1);
  const std::vector<float> a_scale = rows_of(d.a_scale, blocks, grid.rows, 1);
  const std::vector<float> w_scale = rows_of(d.w_scale, blocks, grid.cols, kBlock);
  ops::Operand rows{{Format::f32, a.data(), grid.rows.size(), d.k, d.k}, {}};
  ops::Operand cols{{Format::f32, w.data(), grid.cols.size(), d.k, d.k}, {}};
  if (kernel.a_scaled) rows.scale = {a_scale.data(), blocks, {1, kBlock}};
  if (kernel.w_scaled) cols.scale = {w_scale.data(), blocks, {1, kBlock}};
  std::vector<float> c(grid.rows.size() * grid.cols.size());
  ops::gemm(rows, cols, {Format::f32, c.data(), grid.cols.size()},
            {.context = &context, .isa = Isa::generic, .force_isa = true});
  return c;
}

struct Difference {
  double value;  // the reference
  double error;  // of c against it
  bool is_allowed;
};

// Another order than C. Products are exact in f32, so that what differs is summation: k - 1
// additions in any order, each with an error of at most u = 2^-24 of its result.
Difference difference_of_sum(const ProductData& d, std::size_t row, std::size_t col, float c) {
  double value = 0, magnitude = 0;
  for (std::size_t i = 0; i < d.k; ++i) {
    const double product = double{d.a[row * d.k + i]} * d.w[col * d.k + i];
    value += product;
    magnitude += std::abs(product);
  }
  const double ku = static_cast<double>(d.k) * 0x1p-24;
  const double error = std::abs(c - value);
  return {value, error, error <= ku / (1 - ku) * magnitude};
}

// The grid's outputs, of the first and the last copy.
Result<double> check(const ProductKernel& kernel, const ProductData& d, const Product& product,
                     std::size_t copies, ThreadPool& pool) {
  const Grid grid = grid_of(d);
  const std::size_t cols = grid.cols.size();
  std::vector<float> expected;
  if (kernel.order_c) expected = order_c(kernel, d, grid, Context{&pool});
  double error = 0, largest = 0;
  for (const std::size_t copy : {std::size_t{0}, copies - 1}) {
    product.run(copy);
    for (std::size_t i = 0; i < grid.rows.size() * cols; ++i) {
      const std::size_t row = grid.rows[i / cols], col = grid.cols[i % cols];
      const float c = product.c[row * d.n + col];
      const Difference found =
          kernel.order_c
              ? Difference{expected[i], std::abs(double{c} - expected[i]), c == expected[i]}
              : difference_of_sum(d, row, col, c);
      if (!found.is_allowed)
        return fail(ErrorCode::bad_file,
                    fmt::format("{}x{}x{} {} by {}: ({}, {}) is {}, expected {}", d.m, d.n, d.k,
                                kernel.formats, kernel.kernel, row, col, c, found.value));
      error = std::max(error, found.error);
      largest = std::max(largest, std::abs(found.value));
    }
  }
  return largest == 0 ? error : error / largest;
}

// ---- Cases ----

Result<PreparedCase> prepare(const ProductKernel& kernel, Against against, std::size_t m,
                             std::size_t n, std::size_t k, int threads, BenchContext& context) {
  const std::size_t weight_bytes = n * k * kernel.weight_bits / 8;
  const std::size_t copies =
      against == Against::arithmetic && m >= kRowsOfOneCopy
          ? 1
          : std::min(ceil_div(context.memory_bytes, weight_bytes), kMostCopies);
  // Packed weights have multiples of 32 rows; values as f32, and once in the operand's format.
  const std::size_t packed_bytes =
      ceil_div(n, kernels::kStrip) * kernels::kStrip * ceil_div(k, 2) * 2 * kernel.weight_bits / 8;
  OCTAVO_CHECK(check_memory(context, 8 * (m * k + n * k) + 4 * m * n + copies * packed_bytes));
  const std::shared_ptr<ProductData> data = make_data(m, n, k);
  ThreadPool& pool = context.pool(threads);
  OCTAVO_TRY(const Product product, kernel.make(*data, copies, pool));

  PreparedCase prepared;
  prepared.check = [=, &pool] { return check(kernel, *data, product, copies, pool); };
  prepared.kernel.run = [product, copies, next = std::size_t{0}]() mutable {
    product.run(next);
    next = (next + 1) % copies;
  };
  // Threads of other libraries spin for a while after a call, and would slow the roof down.
  if (!kernel.order_c && threads > 1)
    prepared.settle = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  if (against == Against::read) {
    prepared.kernel.work = 1e-9 * static_cast<double>(weight_bytes);
    prepared.roof = read_roof(context, threads);
  } else {
    prepared.kernel.work = 2e-9 * static_cast<double>(m) * static_cast<double>(n * k);
    const kernels::RoofKernels& roofs =
        kernel.order_c ? kernels::roof_kernels(context.isa) : kernels::widest_roof_kernels();
    prepared.roof = peak_roof(pool, kernel.uses_dot ? roofs.dot : roofs.fma);
  }
  return prepared;
}

std::vector<BenchCase> cases_of(const BenchContext& context, const char* op, Against against,
                                std::vector<std::size_t> rows) {
  const BenchRequest& request = context.request;
  if (!request.m.empty()) rows = request.m;
  // The scalar reference takes long.
  const bool is_small = request.quick || context.isa == Isa::generic;
  const std::size_t n = request.n != 0 ? request.n : is_small ? 512 : 4096;
  const std::size_t k = request.k != 0 ? request.k : is_small ? 512 : 4096;
  const bool has_dot = kernels::widest_roof_kernels().dot.run != nullptr;
  std::vector<BenchCase> cases;
  for (const std::size_t m : rows) {
    for (const int threads : request.threads) {
      for (ProductKernel& kernel : product_kernels(context, threads, m, n, k)) {
        kernel.uses_dot = kernel.uses_dot && has_dot;
        const bool reads = against == Against::read;
        cases.push_back(
            {op, m, n, k, kernel.formats, threads, kernel.kernel, reads ? "GB/s" : "GFLOP/s",
             reads             ? "read"
             : kernel.uses_dot ? "dot bf16"
                               : "fma f32",
             [=](BenchContext& c) { return prepare(kernel, against, m, n, k, threads, c); }});
      }
    }
  }
  return cases;
}

}  // namespace

std::vector<BenchCase> gemv_cases(const BenchContext& context) {
  return cases_of(context, "gemv", Against::read, {1});
}

std::vector<BenchCase> gemm_cases(const BenchContext& context) {
  const bool is_small = context.request.quick || context.isa == Isa::generic;
  return cases_of(context, "gemm", Against::arithmetic,
                  is_small ? std::vector<std::size_t>{8} : std::vector<std::size_t>{8, 64, 512});
}

}  // namespace octavo::app
