// What the tests of ops::gemm share: operands in memory of their own, order C and an f64 evaluation
// on them in plain scalar code (no packed layout in it), and every way to compute a product here.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "octavo/formats/convert.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/gemm.h"

namespace octavo::ops::testing {

using kernels::Arithmetic;
using kernels::GemmShape;

inline constexpr Format kFormats[] = {Format::e4m3fn,   Format::e5m2, Format::e4m3fnuz,
                                      Format::e5m2fnuz, Format::bf16, Format::f32};

inline float value_of(Format format, std::uint32_t bits) {
  const auto code = static_cast<std::uint8_t>(bits);
  switch (format) {
    case Format::f32:
      return std::bit_cast<float>(bits);
    case Format::bf16:
      return std::bit_cast<float>(bits << 16);
    case Format::e4m3fn:
      return decode<Format::e4m3fn>(code);
    case Format::e5m2:
      return decode<Format::e5m2>(code);
    case Format::e4m3fnuz:
      return decode<Format::e4m3fnuz>(code);
    case Format::e5m2fnuz:
      return decode<Format::e5m2fnuz>(code);
    default:
      return decode<Format::e8m0fnu>(code);
  }
}

// A matrix with its scales.
struct Matrix {
  Format format;
  std::size_t rows, cols, stride;
  bool transposed;
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> scales;  // empty: none
  ScaleGrid grid;

  Operand operand() const {
    Operand o{{format, bytes.data(), rows, cols, stride}, grid, transposed};
    if (!scales.empty()) o.scale.data = scales.data();
    return o;
  }
  std::size_t index(std::size_t r, std::size_t c) const {
    return transposed ? c * stride + r : r * stride + c;
  }
  std::uint32_t bits(std::size_t r, std::size_t c) const {
    std::uint32_t x = 0;
    std::memcpy(&x, bytes.data() + index(r, c) * bytes_per_element(format),
                bytes_per_element(format));
    return x;
  }
  void set(std::size_t r, std::size_t c, std::uint32_t x) {
    std::memcpy(bytes.data() + index(r, c) * bytes_per_element(format), &x,
                bytes_per_element(format));
  }
  float at(std::size_t r, std::size_t c) const { return value_of(format, bits(r, c)); }
  float scale(std::size_t r, std::size_t c) const {
    if (scales.empty()) return 1.0f;
    const std::size_t i = r / grid.block.rows * grid.stride + c / grid.block.cols;
    std::uint32_t x = 0;
    std::memcpy(&x, scales.data() + i * bytes_per_element(grid.format),
                bytes_per_element(grid.format));
    return value_of(grid.format, x);
  }
  // The k that share a block of order C, by this operand's scales.
  std::size_t block() const {
    const bool whole = scales.empty() || grid.block.cols >= cols;
    return whole ? 128 : std::min<std::size_t>(128, grid.block.cols);
  }
  // The same memory seen as the transposed matrix.
  Matrix turned() const {
    Matrix m = *this;
    std::swap(m.rows, m.cols);
    m.transposed = !transposed;
    return m;
  }
};

enum class Codes {
  finite,  // 8-bit codes without NaN and infinity, bf16 and f32 around 1
  all,     // any bits at all: NaN, infinities, denormals
};

inline Matrix random_matrix(std::mt19937& random, Format format, std::size_t rows, std::size_t cols,
                            Codes codes = Codes::finite, bool transposed = false,
                            std::size_t gap = 0) {
  Matrix m{format, rows, cols, (transposed ? rows : cols) + gap, transposed, {}, {}, {}};
  const std::size_t count = (transposed ? cols : rows) * m.stride;
  m.bytes.resize(count * bytes_per_element(format));
  for (std::size_t i = 0; i < count; ++i) {
    auto bits = static_cast<std::uint32_t>(random());
    if (codes == Codes::finite && bytes_per_element(format) > 1) {
      // A sign, an exponent from 2^-4 to 2^3, any mantissa. No function of a maths library, so that
      // the numbers are the same on every processor.
      bits = (bits & 0x807F'FFFFu) | (123u + (bits >> 23 & 7u)) << 23;
    } else if (codes == Codes::finite && !std::isfinite(value_of(format, bits & 0xFFu))) {
      bits = 0x11;
    }
    if (format == Format::bf16) bits >>= 16;
    std::memcpy(m.bytes.data() + i * bytes_per_element(format), &bits, bytes_per_element(format));
  }
  return m;
}

// f32 from 0.01 to 1; e8m0fnu from 2^-7 to 2^4 or, with Codes::all, any code now and then, among
// them 0 (2^-127), 254 (2^127) and 255 (NaN).
inline void add_scales(std::mt19937& random, Matrix& m, BlockSize block, Format format,
                       Codes codes = Codes::finite, std::size_t gap = 0) {
  const std::size_t grid_rows = (m.rows + block.rows - 1) / block.rows;
  m.grid.block = block;
  m.grid.format = format;
  m.grid.stride = (m.cols + block.cols - 1) / block.cols + gap;
  m.scales.resize(grid_rows * m.grid.stride * bytes_per_element(format));
  constexpr std::uint8_t kEnds[] = {0, 254, 255};
  for (std::size_t i = 0; i < grid_rows * m.grid.stride; ++i) {
    if (format == Format::e8m0fnu) {
      const bool any = codes == Codes::all && random() % 8 == 0;
      m.scales[i] = static_cast<std::uint8_t>(
          any ? (random() % 2 == 0 ? random() : kEnds[random() % 3]) : 120 + random() % 12);
    } else {
      const float s = static_cast<float>(10 + random() % 1000) * 0x1p-10f;
      std::memcpy(m.scales.data() + i * 4, &s, 4);
    }
  }
}

// The values of C = A W^T. What order C makes of small bf16 magnitudes: octavo/ops/gemm.h.
class Model {
 public:
  Model(const Matrix& a, const Matrix& w, const float* bias = nullptr)
      : a_(a), w_(w), bias_(bias), block_(std::min(a.block(), w.block())) {
    const float against = bytes_per_element(w.format) == 1 ? 0x1p-100f
                          : w.format == Format::bf16       ? 0x1p-40f
                                                           : 0.0f;
    a_values_ = values(a, a.format == Format::bf16 ? against : 0.0f);
    w_values_ = values(w, w.format == Format::bf16 ? 0x1p-40f : 0.0f);
  }

  float output(std::size_t m, std::size_t n) const {
    const float *a = &a_values_[m * stride()], *w = &w_values_[n * stride()];
    float tot = 0;
    for (std::size_t first = 0; first < a_.cols; first += block_) {
      float acc = 0;
      for (std::size_t k = first; k < std::min(a_.cols, first + block_); k += 2) {
        acc = std::fma(a[k], w[k], std::fma(a[k + 1], w[k + 1], acc));
      }
      tot = std::fma(acc, w_.scale(n, first) * a_.scale(m, first), tot);
    }
    return bias_ == nullptr ? tot : tot + bias_[n];
  }

  // An f64 evaluation, and how far order C may be from the exact sum. With u = 2^-24, each product
  // passes at most block / 2 * 2 roundings of its block, one of the scale and one for each of the B
  // blocks and the bias; and u for the f64 sum's own 2^-53 K. Codes::finite operands and f32 scales
  // stay far above denormals.
  struct Exact {
    double value, bound;
  };
  Exact exact(std::size_t m, std::size_t n) const {
    const float *a = &a_values_[m * stride()], *w = &w_values_[n * stride()];
    double sum = bias_ == nullptr ? 0.0 : bias_[n], magnitude = std::abs(sum);
    for (std::size_t k = 0; k < a_.cols; ++k) {
      const double product = double{a[k]} * w[k] * w_.scale(n, k) * a_.scale(m, k);
      sum += product;
      magnitude += std::abs(product);
    }
    const std::size_t blocks = (a_.cols + block_ - 1) / block_;
    const double u = 0x1p-24;
    const double steps = static_cast<double>(std::min(a_.cols + 1, block_) + blocks + 2);
    const double f64 = 0x1p-53 * static_cast<double>(a_.cols + 4);
    return {sum, magnitude * (steps * u / (1 - steps * u) + f64)};
  }

 private:
  std::size_t stride() const { return a_.cols + a_.cols % 2; }

  // Row-major, an odd K filled up with a zero.
  std::vector<float> values(const Matrix& m, float flush_below) const {
    std::vector<float> result(m.rows * stride());
    for (std::size_t r = 0; r < m.rows; ++r) {
      for (std::size_t c = 0; c < m.cols; ++c) {
        const float x = m.at(r, c);
        result[r * stride() + c] = std::abs(x) < flush_below ? 0.0f : x;
      }
    }
    return result;
  }

  const Matrix& a_;
  const Matrix& w_;
  const float* bias_;
  std::size_t block_;
  std::vector<float> a_values_, w_values_;
};

// All bytes of C, 0xA5 in the gaps between rows.
struct Product {
  Format format;
  std::size_t rows, cols, stride;
  std::vector<std::uint8_t> bytes;

  Product(Format f, std::size_t m, std::size_t n, std::size_t gap = 0)
      : format(f),
        rows(m),
        cols(n),
        stride(n + gap),
        bytes(m * stride * bytes_per_element(f), 0xA5) {}

  Output output() { return {format, bytes.data(), stride}; }
  std::uint32_t bits(std::size_t m, std::size_t n) const {
    std::uint32_t x = 0;
    std::memcpy(&x, bytes.data() + (m * stride + n) * bytes_per_element(format),
                bytes_per_element(format));
    return x;
  }
  void set(std::size_t m, std::size_t n, std::uint32_t x) {
    std::memcpy(bytes.data() + (m * stride + n) * bytes_per_element(format), &x,
                bytes_per_element(format));
  }
  float at(std::size_t m, std::size_t n) const { return value_of(format, bits(m, n)); }
};

inline Product expected(const Matrix& a, const Matrix& w, Format c_format = Format::f32,
                        std::size_t gap = 0, const float* bias = nullptr) {
  Product c(c_format, a.rows, w.rows, gap);
  const Model model(a, w, bias);
  for (std::size_t m = 0; m < a.rows; ++m) {
    for (std::size_t n = 0; n < w.rows; ++n) {
      const float x = model.output(m, n);
      std::uint32_t bits = std::isnan(x) ? 0x7FC0'0000u : std::bit_cast<std::uint32_t>(x);
      if (c_format == Format::bf16) {
        bits = std::isnan(x) ? 0x7FC0u
                             : encode<Format::bf16>(x, Rounding::nearest_even, Overflow::special);
      }
      c.set(m, n, bits);
    }
  }
  return c;
}

// Empty where all bytes are equal; else the first output that differs.
inline std::string difference(const Product& got, const Product& model) {
  if (got.bytes == model.bytes) return "";
  for (std::size_t m = 0; m < got.rows; ++m) {
    for (std::size_t n = 0; n < got.cols; ++n) {
      if (got.bits(m, n) == model.bits(m, n)) continue;
      char text[100];
      std::snprintf(text, sizeof text, "output (%zu, %zu) is 0x%x, expected 0x%x", m, n,
                    got.bits(m, n), model.bits(m, n));
      return text;
    }
  }
  return "something was written between rows";
}

// A level with a shape and an arithmetic, all forced.
struct Way {
  Isa isa;
  GemmShape shape;
  Arithmetic arithmetic;

  GemmOptions options(const Context* context = nullptr, std::span<const float> bias = {}) const {
    return {bias, context, shape, arithmetic, isa};
  }
  std::string name() const {
    kernels::GemmPlan plan{};
    plan.isa = isa, plan.shape = shape, plan.arithmetic = arithmetic;
    return kernels::kernel_name(plan);
  }
};

// Every way to multiply these formats that this machine and this build have.
inline std::vector<Way> all_ways(Format a, Format w) {
  std::vector<Way> ways = {{Isa::generic, GemmShape::plain, Arithmetic::fma}};
  for (const Isa isa : {Isa::avx2, Isa::avx512bf16}) {
    if (!kernels::is_built(isa) || !supports(cpu_features(), isa)) continue;
    for (const GemmShape shape : {GemmShape::fused, GemmShape::tiled}) {
      ways.push_back({isa, shape, Arithmetic::fma});
      if (isa == Isa::avx512bf16 && a != Format::f32 && w != Format::f32) {
        ways.push_back({isa, shape, Arithmetic::dot});
      }
    }
  }
  return ways;
}

inline Product multiply(const Matrix& a, const PackedWeight& w, Format c_format, std::size_t gap,
                        const GemmOptions& options) {
  Product c(c_format, a.rows, w.n, gap);
  gemm(a.operand(), w, c.output(), options);
  return c;
}

inline Product multiply(const Matrix& a, const Matrix& w, Format c_format, std::size_t gap,
                        const GemmOptions& options) {
  Product c(c_format, a.rows, w.rows, gap);
  gemm(a.operand(), w.operand(), c.output(), options);
  return c;
}

}  // namespace octavo::ops::testing
