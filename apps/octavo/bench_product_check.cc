// What `octavo bench` holds products against.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench_product.h"
#include "octavo/base/ceil_div.h"
#include "octavo/kernels/gemm/pack.h"
#include "octavo/kernels/select.h"

namespace octavo::app {
namespace {

constexpr std::size_t kBlock = 128;

// Up to `most` of [0, count), the first and the last among them.
std::vector<std::size_t> places(std::size_t count, std::size_t most) {
  std::vector<std::size_t> all(std::min(count, most));
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = all.size() == 1 ? 0 : i * (count - 1) / (all.size() - 1);
  return all;
}

std::vector<float> gather(const std::vector<float>& matrix, std::size_t cols,
                          const std::vector<std::size_t>& rows) {
  std::vector<float> result;
  for (const std::size_t row : rows) {
    const auto first = matrix.begin() + static_cast<std::ptrdiff_t>(row * cols);
    result.insert(result.end(), first, first + static_cast<std::ptrdiff_t>(cols));
  }
  return result;
}

// The rows and columns of the reference alone, as f32, by the scalar specification.
std::vector<float> order_c(const ProductKernel& kernel, const ProductData& d,
                           const std::vector<std::size_t>& rows,
                           const std::vector<std::size_t>& cols) {
  const std::size_t m = rows.size(), n = cols.size(), blocks = ceil_div(d.k, kBlock);
  const std::size_t strips = ceil_div(n, kernels::kStrip), panel = kernels::panel_rows(m);
  const std::vector<float> a = gather(d.a, d.k, rows), w = gather(d.w, d.k, cols);
  AlignedBytes packed_w(kernels::packed_weight_bytes(Format::f32, n, d.k));
  AlignedBytes packed_a(kernels::packed_activation_bytes(kernels::Arithmetic::fma, m, d.k));
  const kernels::PackKernels& pack = kernels::pack_kernels(Isa::generic);
  pack.pack_weights({Format::f32, w.data(), d.k, false, n, d.k, 0, strips, packed_w.data(), false});
  pack.pack_activations({Format::f32, a.data(), d.k, false, m, d.k, kernels::Arithmetic::fma, 0, 0,
                         blocks, 0, ceil_div(m, panel), packed_a.data()});

  std::vector<float> a_scale(m * blocks, 1), w_scale(strips * blocks * kernels::kStrip, 1);
  if (kernel.a_scaled) a_scale = gather(d.a_scale, blocks, rows);
  for (std::size_t i = 0; kernel.w_scaled && i < n; ++i) {  // a scale of its own for each column
    for (std::size_t b = 0; b < blocks; ++b)
      w_scale[(i / kernels::kStrip * blocks + b) * kernels::kStrip + i % kernels::kStrip] =
          d.w_scale[cols[i] / kBlock * blocks + b];
  }
  const kernels::GemmPlan plan = kernels::plan_gemm({m, n, d.k, Format::f32, Format::f32},
                                                    kernels::gemm_machine(Isa::generic, 1));
  AlignedBytes scratch(kernels::gemm_scratch_floats(m, 1) * sizeof(float));
  std::vector<float> c(m * n);
  kernels::gemm_kernel(plan)({m,
                              n,
                              d.k,
                              kBlock,
                              Format::f32,
                              packed_w.data(),
                              {w_scale.data(), blocks * kernels::kStrip, kernels::kStrip, 1, true},
                              packed_a.data(),
                              panel,
                              {a_scale.data(), blocks, 1, 1, false},
                              Format::f32,
                              c.data(),
                              n,
                              nullptr,
                              0,
                              strips,
                              reinterpret_cast<float*>(scratch.data()),
                              1});
  return c;
}

}  // namespace

ProductReference product_reference(const ProductKernel& kernel, const ProductData& d) {
  ProductReference reference{d.n, places(d.m, 4), places(d.n, 64), {}, {}};
  if (kernel.order_c) {
    const std::vector<float> c = order_c(kernel, d, reference.rows, reference.cols);
    reference.values.assign(c.begin(), c.end());
    reference.bounds.assign(c.size(), 0);
    return reference;
  }
  // Products are exact in f32, so that what differs is summation: k - 1 additions in any order,
  // each with an error of at most u = 2^-24 of its result.
  const double ku = static_cast<double>(d.k) * 0x1p-24;
  for (const std::size_t row : reference.rows) {
    for (const std::size_t col : reference.cols) {
      double value = 0, magnitude = 0;
      for (std::size_t i = 0; i < d.k; ++i) {
        const double product = double{d.a[row * d.k + i]} * d.w[col * d.k + i];
        value += product;
        magnitude += std::abs(product);
      }
      reference.values.push_back(value);
      reference.bounds.push_back(ku / (1 - ku) * magnitude);
    }
  }
  return reference;
}

Checked compare(const ProductReference& reference, const float* c) {
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < reference.values.size(); ++i) {
    const std::size_t row = reference.rows[i / reference.cols.size()];
    const std::size_t col = reference.cols[i % reference.cols.size()];
    const float got = c[row * reference.n + col];
    const double value = reference.values[i], difference = std::abs(got - value);
    if (!(difference <= reference.bounds[i]))
      return std::unexpected(fmt::format("({}, {}) is {}, expected {}", row, col, got, value));
    error = std::max(error, difference);
    largest = std::max(largest, std::abs(value));
  }
  return largest == 0 ? error : error / largest;
}

void poison(const ProductData& data, const Product& product) {
  std::fill_n(product.c, data.m * data.n, std::numeric_limits<float>::quiet_NaN());
}

Checked check_product(const ProductReference& reference, const ProductData& data,
                      const Product& product, std::size_t copies) {
  Checked checked = 0.0;
  for (const std::size_t copy : {std::size_t{0}, copies - 1}) {
    poison(data, product);
    product.run(copy);
    const Checked of_copy = compare(reference, product.c);
    if (!of_copy) return of_copy;
    checked = std::max(*checked, *of_copy);
  }
  return checked;
}

}  // namespace octavo::app
