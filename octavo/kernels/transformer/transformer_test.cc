// The transformer kernels against evaluations in double with computed bounds, and by hand where
// values are special.
#include <algorithm>
#include <atomic>
#include <thread>

#include "octavo/kernels/transformer/transformer_testing.h"

namespace octavo::kernels::testing {
namespace {

class Transformer : public TransformerKernelsTest {
 protected:
  std::vector<float> exp2(std::vector<float> t) {
    kernels_.exp_row(t.data(), t.size(), 0, t.size(), 1.0f, 0.0f);
    return t;
  }
  std::mt19937 random_{7};
};
OCTAVO_FOR_EACH_ISA(Transformer);

// The last step, fma(r, q, 1), rounds a result of [1/sqrt 2, sqrt 2] by kUnit at most, relatively.
// What q carries, times r / 2^r <= 0.71: its own two last roundings, half of 2^-24 for a value of
// [1/2, 1) and less than as much for the r * (...) inside. The polynomial itself: 2^-28.3.
constexpr double kExp2Error = kUnit + 0.71 * 2 * 0x1p-25 + 0x1p-28;
static_assert(kExp2Error < 0x1p-23);

// Empty, or what is wrong with p as exp2(t).
std::string wrong_exp2(float t, float p) {
  const double exact = std::exp2(static_cast<double>(t));
  const bool right = t < -126.0f   ? p == 0
                     : t >= 128.0f ? p == kInf
                                   : std::abs(p - exact) <= kExp2Error * exact && std::isnormal(p);
  return right ? "" : "exp2(" + std::to_string(t) + ") gave " + std::to_string(p);
}

TEST_P(Transformer, Exp2IsAccurateOverItsRange) {
  constexpr std::size_t kPoints = 1 << 20;
  std::vector<float> t(kPoints);
  for (std::size_t i = 0; i < kPoints; ++i)
    t[i] = static_cast<float>(-130.0 + 260.0 * static_cast<double>(i) / kPoints);
  for (std::size_t i = 0; i < kPoints; i += 2) t[i] /= 256;  // and around 0
  const std::vector<float> p = exp2(t);
  for (std::size_t i = 0; i < kPoints; ++i) ASSERT_EQ(wrong_exp2(t[i], p[i]), "");
}

TEST_P(Transformer, Exp2OfIntegersIsExact) {
  std::vector<float> t;
  for (int n = -126; n < 128; ++n) t.push_back(static_cast<float>(n));
  const std::vector<float> p = exp2(t);
  for (std::size_t i = 0; i < t.size(); ++i) EXPECT_EQ(p[i], std::exp2(t[i])) << t[i];
}

TEST_P(Transformer, Exp2OfSpecialValues) {
  const float below = std::nextafter(-126.0f, -kInf), top = std::nextafter(128.0f, 0.0f);
  const std::vector<float> t = {0.0f, -0.0f,  1e-45f, -1e-45f, below, -kInf, -3e38f,
                                top,  128.0f, 3e38f,  kInf,    kNan,  -kNan};
  const std::vector<float> p = exp2(t);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(p[i], 1.0f) << t[i];
  for (std::size_t i = 4; i < 7; ++i) EXPECT_EQ(bits_of(p[i]), 0u) << t[i];
  EXPECT_LT(p[7], kInf);
  for (std::size_t i = 8; i < 11; ++i) EXPECT_EQ(p[i], kInf) << t[i];
  for (std::size_t i = 11; i < 13; ++i) EXPECT_EQ(bits_of(p[i]), kCanonicalNan);
}

TEST_P(Transformer, RmsNormIsAccurate) {
  for (const std::size_t cols : {1u, 7u, 16u, 64u, 128u, 576u, 2048u, 5000u}) {
    const std::vector<float> x = any_values(cols, Values::ordinary, random_);
    const std::vector<float> weight = any_values(cols, Values::ordinary, random_);
    std::vector<float> y(cols);
    const float eps = 1e-5f;
    kernels_.rms_norm({x.data(), cols, weight.data(), eps, 1, cols, y.data(), cols});
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double exact_inv = 1 / std::sqrt(squares / static_cast<double>(cols) + eps);
    // Under the root, where errors count half: one rounding for each step of a lane, four for the
    // tree, one each for the division and for eps. Then the root, its reciprocal, two products.
    const double roundings = static_cast<double>((cols + 15) / 16 + 4 + 2) / 2 + 4;
    for (std::size_t i = 0; i < cols; ++i) {
      const double exact = x[i] * exact_inv * weight[i];
      ASSERT_LE(std::abs(y[i] - exact), 1.001 * roundings * kUnit * std::abs(exact)) << cols;
    }
  }
}

TEST_P(Transformer, RmsNormKeepsToItsRows) {
  constexpr std::size_t kRows = 3, kCols = 20, kXStride = 23, kYStride = 29;
  const std::vector<float> x = any_values(kRows * kXStride, Values::ordinary, random_);
  const std::vector<float> weight = any_values(kCols, Values::ordinary, random_);
  std::vector<float> y(kRows * kYStride, 77.0f), row(kCols);
  kernels_.rms_norm({x.data(), kXStride, weight.data(), 0.0f, kRows, kCols, y.data(), kYStride});
  for (std::size_t r = 0; r < kRows; ++r) {
    kernels_.rms_norm(
        {&x[r * kXStride], kXStride, weight.data(), 0.0f, 1, kCols, row.data(), kCols});
    for (std::size_t c = 0; c < kYStride; ++c)
      EXPECT_EQ(y[r * kYStride + c], c < kCols ? row[c] : 77.0f) << r << ", " << c;
  }
}

TEST_P(Transformer, RmsNormOfNanIsNanAndOfZerosIsZero) {
  std::vector<float> y(3);
  const float nan[3] = {1, kNan, 2}, zeros[3] = {0, -0.0f, 0}, weight[3] = {1, 1, 1};
  kernels_.rms_norm({nan, 3, weight, 1e-6f, 1, 3, y.data(), 3});
  for (const float v : y) EXPECT_EQ(bits_of(v), kCanonicalNan);
  kernels_.rms_norm({zeros, 3, weight, 1e-6f, 1, 3, y.data(), 3});
  EXPECT_EQ(bits_of(y[0]), 0u);
  EXPECT_EQ(bits_of(y[1]), 0x80000000u);
}

TEST_P(Transformer, RopeRotates) {
  constexpr std::size_t kHeads = 3, kHeadDim = 70, kHalf = 32;
  const std::vector<float> x = any_values(kHeads * kHeadDim, Values::ordinary, random_);
  std::vector<float> y = x, cos(kHalf), sin(kHalf);
  for (std::size_t i = 0; i < kHalf; ++i) {
    cos[i] = std::cos(static_cast<float>(i));
    sin[i] = std::sin(static_cast<float>(i));
  }
  kernels_.rope({y.data(), kHeads, kHeadDim, kHalf, cos.data(), sin.data()});
  for (std::size_t h = 0; h < kHeads; ++h) {
    const float *from = &x[h * kHeadDim], *to = &y[h * kHeadDim];
    for (std::size_t i = 0; i < kHalf; ++i) {
      const double c = cos[i], s = sin[i], low = from[i], high = from[i + kHalf];
      const double first = low * c - high * s, second = high * c + low * s;
      // The product with sin is rounded, then the sum.
      EXPECT_LE(std::abs(to[i] - first), kUnit * (std::abs(high * s) + std::abs(first)) * 1.001);
      EXPECT_LE(std::abs(to[i + kHalf] - second),
                kUnit * (std::abs(low * s) + std::abs(second)) * 1.001);
    }
    for (std::size_t i = 2 * kHalf; i < kHeadDim; ++i) EXPECT_EQ(to[i], from[i]) << "partial";
  }
}

TEST_P(Transformer, AddAndScaleRoundOnce) {
  const std::vector<float> x = any_values(1000, Values::ordinary, random_);
  const std::vector<float> y = any_values(1000, Values::ordinary, random_);
  const float factor = 0.7f;
  std::vector<float> sum = x, scaled = x;
  kernels_.add(sum.data(), y.data(), sum.size());
  kernels_.scale(scaled.data(), factor, scaled.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(sum[i], static_cast<float>(static_cast<double>(x[i]) + y[i]));
    EXPECT_EQ(scaled[i], static_cast<float>(static_cast<double>(x[i]) * factor));
  }
}

// exp, 1 + exp, the division and the product with up; exp has the error of exp2 and what is lost in
// its argument: one rounding of r, at most 1/2, and of d, far smaller.
TEST_P(Transformer, SiluMulIsAccurate) {
  constexpr std::size_t kPoints = 1 << 18;
  std::vector<float> gate(kPoints), up(kPoints), y(kPoints);
  for (std::size_t i = 0; i < kPoints; ++i) {
    gate[i] = static_cast<float>(-88.5 + 177.0 * static_cast<double>(i) / kPoints);
    up[i] = any_value(Values::ordinary, random_);
  }
  kernels_.silu_mul(gate.data(), up.data(), y.data(), kPoints);
  constexpr double kBound = kExp2Error + kUnit / 2 + 3 * kUnit;
  static_assert(kBound < 6 * kUnit);
  for (std::size_t i = 0; i < kPoints; ++i) {
    const double g = gate[i], exact = g / (1 + std::exp(-g)) * up[i];
    ASSERT_LE(std::abs(y[i] - exact), kBound * std::abs(exact)) << g;
  }
}

TEST_P(Transformer, SiluMulOfSpecialValues) {
  const std::vector<float> gate = {-89, -1e30f, -kInf, 0, -0.0f, 200, kInf, kNan, 1, kInf};
  const std::vector<float> up = {1, 1, 1, 1, 1, 2, 1, 1, -kNan, 0};
  std::vector<float> y(gate.size());
  kernels_.silu_mul(gate.data(), up.data(), y.data(), y.size());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(bits_of(y[i]), 0x80000000u) << gate[i];
  EXPECT_EQ(bits_of(y[3]), 0u);
  EXPECT_EQ(bits_of(y[4]), 0x80000000u);
  EXPECT_EQ(y[5], 400);
  EXPECT_EQ(y[6], kInf);
  for (std::size_t i = 7; i < 10; ++i) EXPECT_EQ(bits_of(y[i]), kCanonicalNan) << i;
}

TEST_P(Transformer, RowMaxOfSpecialValues) {
  std::vector<float> x = any_values(100, Values::ordinary, random_);
  EXPECT_EQ(kernels_.row_max(x.data(), 17, 90), *std::max_element(&x[17], &x[90]));
  EXPECT_EQ(kernels_.row_max(x.data(), 33, 33), -kInf);
  EXPECT_EQ(kernels_.row_max(x.data(), 0, 0), -kInf);
  for (const std::size_t at : {17u, 31u, 40u, 89u}) {
    std::vector<float> with_nan = x;
    with_nan[at] = -kNan;
    EXPECT_EQ(bits_of(kernels_.row_max(with_nan.data(), 17, 90)), kCanonicalNan) << at;
  }
  x[16] = x[90] = kNan;
  EXPECT_FALSE(std::isnan(kernels_.row_max(x.data(), 17, 90))) << "NaN outside the range";
}

TEST_P(Transformer, ExpRowZeroesWhatLiesOutside) {
  std::vector<float> x(50, kNan);
  for (std::size_t i = 18; i < 41; ++i) x[i] = 3.0f;
  EXPECT_EQ(kernels_.exp_row(x.data(), 50, 18, 41, kLog2e, 3.0f), 23.0f);
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(bits_of(x[i]), bits_of(18 <= i && i < 41 ? 1.0f : 0.0f)) << i;
  EXPECT_EQ(kernels_.exp_row(x.data(), 50, 20, 20, kLog2e, -kInf), 0.0f);
  EXPECT_EQ(x, std::vector<float>(50, 0.0f));
  x.assign(3, -kInf);
  EXPECT_EQ(bits_of(kernels_.exp_row(x.data(), 3, 0, 3, kLog2e, -kInf)), kCanonicalNan);
}

TEST_P(Transformer, SumExpIsAccurate) {
  for (const std::size_t n : {1u, 15u, 100u, 4096u, 49152u}) {
    const std::vector<float> x = any_values(n, Values::ordinary, random_);
    const float max = *std::max_element(x.begin(), x.end());
    double exact = 0, bound = 0;
    for (const float v : x) {
      const double t = (static_cast<double>(v) - max) * static_cast<double>(kLog2e);
      const double term = std::exp2(t);
      exact += term;
      bound += term * (2 * kUnit * std::abs(t) + kExp2Error);  // two roundings of t, times ln 2 < 1
    }
    bound += exact * static_cast<double>((n + 15) / 16 + 4) * kUnit;
    EXPECT_LE(std::abs(kernels_.sum_exp(x.data(), n, kLog2e, max) - exact), 1.001 * bound) << n;
  }
}

// 2^24 swallows a single 1 but not the sum of two.
TEST_P(Transformer, SumsFollowTheLanes) {
  const auto sum_with_ones_at = [&](std::size_t first, std::size_t second) {
    std::vector<float> x(48, -kInf);
    x[0] = 24;
    x[first] = x[second] = 0;
    return kernels_.sum_exp(x.data(), x.size(), 1.0f, 0.0f);
  };
  EXPECT_EQ(sum_with_ones_at(1, 9), 0x1p24f + 2) << "lane l meets l + 8 first";
  EXPECT_EQ(sum_with_ones_at(2, 6), 0x1p24f + 2) << "then l + 4";
  EXPECT_EQ(sum_with_ones_at(1, 2), 0x1p24f) << "then l + 2";
  EXPECT_EQ(sum_with_ones_at(1, 3), 0x1p24f + 2) << "then l + 1";
  EXPECT_EQ(sum_with_ones_at(17, 33), 0x1p24f + 2) << "element i belongs to lane i % 16";
  EXPECT_EQ(sum_with_ones_at(16, 32), 0x1p24f) << "in ascending order";
}

// Every float of magnitude 2^-26 to 128; what is smaller gives 1.
TEST(SlowTransformer, Exp2OfAllFloats) {
  std::vector<TransformerKernels> levels;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512bf16}) {
    if (is_built(isa) && supports(cpu_features(), isa)) levels.push_back(transformer_kernels(isa));
  }
  constexpr std::uint32_t kChunk = 1 << 16, kFirst = 101u << 23, kLast = 134u << 23;
  std::atomic<std::uint32_t> next = kFirst;
  const auto work = [&] {
    for (std::uint32_t first = next.fetch_add(kChunk); first < kLast;
         first = next.fetch_add(kChunk)) {
      for (const std::uint32_t sign : {0u, 0x80000000u}) {
        std::vector<float> t(kChunk);
        for (std::uint32_t i = 0; i < kChunk; ++i) t[i] = std::bit_cast<float>(sign | (first + i));
        std::vector<float> expected = t;
        levels[0].exp_row(expected.data(), kChunk, 0, kChunk, 1.0f, 0.0f);
        for (std::uint32_t i = 0; i < kChunk; ++i) ASSERT_EQ(wrong_exp2(t[i], expected[i]), "");
        for (std::size_t level = 1; level < levels.size(); ++level) {
          std::vector<float> got = t;
          levels[level].exp_row(got.data(), kChunk, 0, kChunk, 1.0f, 0.0f);
          ASSERT_EQ(got, expected) << levels[level].name << ", from " << t[0];
        }
      }
    }
  };
  std::jthread helper(work);
  work();
}

}  // namespace
}  // namespace octavo::kernels::testing
