// What the tests of products share: row-major operands with their scales, order C on them in plain
// scalar code (no packed layout in it), and how a kernel is run on guarded memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "octavo/formats/convert.h"
#include "octavo/kernels/cast/cast_testing.h"
#include "octavo/kernels/gemm/gemm_internal.h"
#include "octavo/kernels/gemm/order_c_reference.h"

namespace octavo::kernels::testing {

struct GemmKernel {
  const char* name;
  Isa isa;
  Arithmetic arithmetic;
  GemmFunction run;
};

inline constexpr GemmKernel kGemmKernels[] = {
#define OCTAVO_GEMM_KERNEL(level, shape, how) \
  {#level "_" #shape "_" #how, Isa::level, Arithmetic::how, level::gemm_##shape##_##how},
#include "octavo/kernels/gemm/gemm_manifest.inc"
#undef OCTAVO_GEMM_KERNEL
};

// A suite over all lines of the manifest; those that cannot run here are skipped with the reason.
class GemmKernelsTest : public ::testing::TestWithParam<GemmKernel> {
 protected:
  void SetUp() override {
    if (!supports(cpu_features(), kernel().isa)) {
      GTEST_SKIP() << kernel().name << ": " << isa_name(kernel().isa) << " is not on this machine";
    }
  }
  static const GemmKernel& kernel() { return GetParam(); }
  static bool is_specification() { return kernel().run == generic::gemm_plain_fma; }
};

inline std::string kernel_name(const ::testing::TestParamInfo<GemmKernel>& info) {
  return info.param.name;
}

inline void PrintTo(const GemmKernel& kernel, std::ostream* out) { *out << kernel.name; }

#define OCTAVO_FOR_EACH_GEMM_KERNEL(suite) \
  INSTANTIATE_TEST_SUITE_P(Kernels, suite, ::testing::ValuesIn(kGemmKernels), kernel_name)

inline constexpr Format kCodes[] = {Format::e4m3fn, Format::e5m2, Format::e4m3fnuz,
                                    Format::e5m2fnuz};
inline constexpr Format kWeights[] = {Format::e4m3fn,   Format::e5m2, Format::e4m3fnuz,
                                      Format::e5m2fnuz, Format::bf16, Format::f32};

// What `dot` cannot take, gemm.h leaves to `fma`.
inline bool takes(const GemmKernel& kernel, Format activations, Format weights) {
  return kernel.arithmetic == Arithmetic::fma ||
         (activations != Format::f32 && weights != Format::f32);
}

inline std::uint32_t bits_at(Format format, const std::vector<std::uint8_t>& elements,
                             std::size_t i) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, elements.data() + i * bytes_of(format), bytes_of(format));
  return bits;
}

inline void set_bits(Format format, std::vector<std::uint8_t>& elements, std::size_t i,
                     std::uint32_t bits) {
  std::memcpy(elements.data() + i * bytes_of(format), &bits, bytes_of(format));
}

inline float value_of(Format format, std::uint32_t bits) {
  switch (format) {
    case Format::f32:
      return std::bit_cast<float>(bits);
    case Format::bf16:
      return std::bit_cast<float>(bits << 16);
    case Format::e4m3fn:
      return decode<Format::e4m3fn>(static_cast<std::uint8_t>(bits));
    case Format::e5m2:
      return decode<Format::e5m2>(static_cast<std::uint8_t>(bits));
    case Format::e4m3fnuz:
      return decode<Format::e4m3fnuz>(static_cast<std::uint8_t>(bits));
    default:
      return decode<Format::e5m2fnuz>(static_cast<std::uint8_t>(bits));
  }
}

// The values of a scale for `count` rows or strips and `blocks` blocks, and what the kernel sees of
// it.
struct TestScales {
  std::vector<float> data = {1.0f};
  std::size_t index_stride = 0, block_stride = 0, blocks = 1;
  bool lanes = false;

  float at(std::size_t index, std::size_t kb, std::size_t lane) const {
    return data[index * index_stride + kb / blocks * block_stride + (lanes ? lane : 0)];
  }
  // Sizes data to exactly what the strides reach.
  void reach(std::size_t count, std::size_t k_blocks) {
    const std::size_t last = (count - 1) * index_stride + (k_blocks - 1) / blocks * block_stride;
    data.assign(last + (lanes ? kStrip : 1), std::numeric_limits<float>::quiet_NaN());
  }
};

// C = A W^T with row-major operands.
struct Product {
  std::size_t m = 1, n = 1, k = 1, k_block = 128;
  Format weight_format = Format::e4m3fn, activation_format = Format::e4m3fn;
  std::vector<std::uint8_t> weights, activations;  // (n, k) and (m, k)
  TestScales weight_scale, activation_scale;       // per strip, per row
  std::vector<float> bias;                         // (n), or empty
  Format c_format = Format::f32;
  std::size_t c_stride = 1;
  std::vector<std::size_t> cuts = {0, 1};  // a call for each two neighbours: a range of strips
  std::size_t group = 1;

  std::size_t k_blocks() const { return (k + k_block - 1) / k_block; }
  std::size_t strips() const { return (n + kStrip - 1) / kStrip; }
  std::size_t c_bytes() const { return ((m - 1) * c_stride + n) * bytes_of(c_format); }
  std::size_t first_column() const { return cuts.front() * kStrip; }
  std::size_t last_column() const { return std::min(n, cuts.back() * kStrip); }

  // All-zero operands, scales 1, all strips in one call, C without gaps.
  void resize(std::size_t rows, std::size_t columns, std::size_t depth) {
    m = rows, n = columns, k = depth;
    weights.assign(n * k * bytes_of(weight_format), 0);
    activations.assign(m * k * bytes_of(activation_format), 0);
    c_stride = n;
    cuts = {0, strips()};
  }
};

inline std::ostream& operator<<(std::ostream& out, const Product& p) {
  return out << p.m << " x " << p.n << " x " << p.k << ", blocks of " << p.k_block << ", "
             << format_name(p.activation_format) << " x " << format_name(p.weight_format) << " to "
             << format_name(p.c_format) << ", strips " << p.cuts.front() << " to " << p.cuts.back()
             << ", group " << p.group;
}

// bf16 magnitudes below these count as +0 (gemm.h, kFlush...).
inline float weight_flush(const Product& p) {
  return p.weight_format == Format::bf16 ? 0x1p-40f : 0.0f;
}
inline float activation_flush(const Product& p) {
  if (p.activation_format != Format::bf16 || p.weight_format == Format::f32) return 0.0f;
  return p.weight_format == Format::bf16 ? 0x1p-40f : 0x1p-100f;
}

inline std::vector<float> values(Format format, const std::vector<std::uint8_t>& elements,
                                 float flush_below) {
  std::vector<float> result(elements.size() / bytes_of(format));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const float value = value_of(format, bits_at(format, elements, i));
    result[i] = std::abs(value) < flush_below ? 0.0f : value;
  }
  return result;
}

// An exact evaluation (in f64, of products that f64 holds exactly) and how far order C may be away.
struct Exact {
  double value, bound;
};

// Order C and its f64 counterpart over values of row-major operands.
class Model {
 public:
  explicit Model(const Product& p)
      : p_(p),
        a_(values(p.activation_format, p.activations, activation_flush(p))),
        w_(values(p.weight_format, p.weights, weight_flush(p))) {}

  float output(std::size_t m, std::size_t n) const {
    const float tot = order_c(
        p_.k, p_.k_block, [&](std::size_t k) { return a(m, k); },
        [&](std::size_t k) { return w(n, k); }, [&](std::size_t kb) { return scale(m, n, kb); });
    return p_.bias.empty() ? tot : tot + p_.bias[n];
  }

  // With u = 2^-24: a product within a block of L passes at most L roundings, the rounding of the
  // scale, and one for each of B blocks, one of the bias and one of the output; each is a factor
  // within 1 +- u and, in the denormal range, an absolute 2^-150, which a scale can enlarge. The
  // f64 sum itself is off by at most (K + 2 B + 1) 2^-53 of the same magnitudes.
  Exact exact(std::size_t m, std::size_t n) const {
    double sum = 0, magnitude = 0, underflow = 0;
    for (std::size_t kb = 0; kb < p_.k_blocks(); ++kb) {
      const double s =
          static_cast<double>(p_.weight_scale.at(n / kStrip, kb, n % kStrip)) * row_scale(m, kb);
      double block = 0, block_magnitude = 0;
      for (std::size_t k = kb * p_.k_block; k < std::min(p_.k, (kb + 1) * p_.k_block); ++k) {
        block += static_cast<double>(a(m, k)) * w(n, k);
        block_magnitude += std::abs(static_cast<double>(a(m, k)) * w(n, k));
      }
      sum += block * s;
      magnitude += block_magnitude * std::abs(s);
      underflow += 0x1p-149 * static_cast<double>(p_.k_block) * std::abs(s) + 0x1p-149 +
                   0x1p-149 * block_magnitude;
    }
    const double bias = p_.bias.empty() ? 0.0 : static_cast<double>(p_.bias[n]);
    const double roundings = static_cast<double>(p_.k_block + p_.k_blocks() + 3);
    const double f64_roundings = static_cast<double>(p_.k + 2 * p_.k_blocks() + 1);
    const double u = p_.c_format == Format::bf16 ? 0x1p-8 + 0x1p-24 + 0x1p-32 : 0x1p-24;
    const double sum_error =
        magnitude * (roundings * 0x1p-24 / (1 - roundings * 0x1p-24) + f64_roundings * 0x1p-53) +
        underflow;
    const double store_error = u * (std::abs(sum + bias) + sum_error) + 0x1p-133;
    return {sum + bias, sum_error + store_error};
  }

  // All bytes of C as a kernel should leave them, where they were 0xA5 before.
  std::vector<std::uint8_t> c() const {
    std::vector<std::uint8_t> result(p_.c_bytes(), 0xA5);
    for (std::size_t m = 0; m < p_.m; ++m) {
      for (std::size_t n = p_.first_column(); n < p_.last_column(); ++n) {
        set_bits(p_.c_format, result, m * p_.c_stride + n, stored(output(m, n)));
      }
    }
    return result;
  }

  std::uint32_t stored(float value) const {
    if (p_.c_format == Format::bf16) {
      return std::isnan(value)
                 ? 0x7FC0
                 : encode<Format::bf16>(value, Rounding::nearest_even, Overflow::special);
    }
    return std::isnan(value) ? 0x7FC00000 : std::bit_cast<std::uint32_t>(value);
  }

 private:
  float a(std::size_t m, std::size_t k) const { return a_[m * p_.k + k]; }
  float w(std::size_t n, std::size_t k) const { return w_[n * p_.k + k]; }
  float row_scale(std::size_t m, std::size_t kb) const { return p_.activation_scale.at(m, kb, 0); }
  float scale(std::size_t m, std::size_t n, std::size_t kb) const {
    return p_.weight_scale.at(n / kStrip, kb, n % kStrip) * row_scale(m, kb);
  }

  const Product& p_;
  std::vector<float> a_, w_;
};

// Arrays end where their last element does, so that a guard page follows.
template <class T>
std::unique_ptr<GuardedBytes> guarded(const std::vector<T>& elements) {
  auto bytes = std::make_unique<GuardedBytes>(elements.size() * sizeof(T));
  if (!elements.empty()) std::memcpy(bytes->data(), elements.data(), bytes->size());
  return bytes;
}

inline std::unique_ptr<GuardedBytes> packed_weights(const Product& p) {
  auto packed = std::make_unique<GuardedBytes>(packed_weight_bytes(p.weight_format, p.n, p.k));
  generic::pack_weights({p.weight_format, p.weights.data(), p.k, false, p.n, p.k, 0, p.strips(),
                         packed->data(), false});
  return packed;
}

inline std::unique_ptr<GuardedBytes> packed_activations(const Product& p, Arithmetic arithmetic) {
  auto packed = std::make_unique<GuardedBytes>(packed_activation_bytes(arithmetic, p.m, p.k));
  const std::size_t rows = panel_rows(p.m);
  generic::pack_activations({p.activation_format, p.activations.data(), p.k, false, p.m, p.k,
                             arithmetic, activation_flush(p), 0, (p.k + kChunk - 1) / kChunk, 0,
                             (p.m + rows - 1) / rows, packed->data()});
  return packed;
}

// All bytes of C, 0xA5 where the kernel wrote nothing. `packed` is packed_weights(p).
inline std::vector<std::uint8_t> run(const GemmKernel& kernel, const Product& p,
                                     const GuardedBytes& packed) {
  const auto activations = packed_activations(p, kernel.arithmetic);
  const auto weight_scale = guarded(p.weight_scale.data);
  const auto activation_scale = guarded(p.activation_scale.data);
  const auto bias = guarded(p.bias);
  GuardedBytes c(p.c_bytes());
  c.fill(0xA5);
  // Scratch is a whole number of cache lines, so that its end can be guarded and aligned.
  GuardedBytes scratch(gemm_scratch_floats(p.m, p.group) * sizeof(float));
  EXPECT_EQ(scratch.size() % 64, 0u);
  const auto scales = [](const TestScales& s, const GuardedBytes& data) {
    return Scales{reinterpret_cast<const float*>(data.data()), s.index_stride, s.block_stride,
                  s.blocks, s.lanes};
  };
  for (std::size_t i = 0; i + 1 < p.cuts.size(); ++i) {
    scratch.fill(0xFF);  // NaN
    kernel.run({p.m, p.n, p.k, p.k_block, p.weight_format, packed.data(),
                scales(p.weight_scale, *weight_scale), activations->data(), panel_rows(p.m),
                scales(p.activation_scale, *activation_scale), p.c_format, c.data(), p.c_stride,
                p.bias.empty() ? nullptr : reinterpret_cast<const float*>(bias->data()), p.cuts[i],
                p.cuts[i + 1], reinterpret_cast<float*>(scratch.data()), p.group});
  }
  return {c.data(), c.data() + c.size()};
}

inline std::vector<std::uint8_t> run(const GemmKernel& kernel, const Product& p) {
  return run(kernel, p, *packed_weights(p));
}

// Empty where the bytes are equal; else the first output that differs.
inline std::string difference(const Product& p, const std::vector<std::uint8_t>& got,
                              const std::vector<std::uint8_t>& expected) {
  const auto at = std::ranges::mismatch(got, expected).in1 - got.begin();
  if (at == std::ssize(got)) return "";
  const std::size_t i = static_cast<std::size_t>(at) / bytes_of(p.c_format);
  char text[128];
  std::snprintf(text, sizeof text, "output (%zu, %zu) is 0x%x, expected 0x%x", i / p.c_stride,
                i % p.c_stride, bits_at(p.c_format, got, i), bits_at(p.c_format, expected, i));
  return text;
}

}  // namespace octavo::kernels::testing
