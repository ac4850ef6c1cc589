// Results do not depend on the floating-point mode that a calling thread is in.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "octavo/ops/gemm_testing.h"

namespace octavo::ops {
namespace {

constexpr std::size_t kM = 20, kN = 64, kK = 130;

// Activations and weights whose products and sums are denormal, made in whatever mode first.
std::vector<float> small_numbers(std::size_t count, float size) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-size, size);
  std::vector<float> x(count);
  for (float& value : x) value = uniform(random);
  return x;
}

std::vector<float> product_of_small_numbers() {
  static const std::vector<float> a = small_numbers(kM * kK, 0x1p-70f);
  static const std::vector<float> w = small_numbers(kN * kK, 0x1p-62f);
  std::vector<float> c(kM * kN);
  const PackedWeight packed = pack_weight({{Format::f32, w.data(), kN, kK, kK}, {}, false});
  gemm({{Format::f32, a.data(), kM, kK, kK}, {}, false}, packed, {Format::f32, c.data(), kN});
  return c;
}

// Subnormal codes, and denormals in bf16 and f32, are neither packed nor multiplied as zero.
std::vector<std::uint8_t> products_of_every_format() {
  using namespace octavo::ops::testing;
  std::mt19937 random(3);
  std::vector<std::uint8_t> all;
  for (const Format format : kFormats) {
    const Matrix a = random_matrix(random, format, kM, kK, Codes::all);
    const Matrix w = random_matrix(random, format, kN, kK, Codes::all);
    const PackedWeight packed = pack_weight(w.operand());
    for (const Way& way : all_ways(format, format)) {
      const Product c = multiply(a, packed, Format::bf16, 0, way.options());
      all.insert(all.end(), c.bytes.begin(), c.bytes.end());
    }
  }
  return all;
}

TEST(FloatMode, OfTheCallerDoesNotMatterAndComesBack) {
  const std::vector<float> expected = product_of_small_numbers();
  const std::vector<std::uint8_t> products = products_of_every_format();
  bool any_denormal = false;
  for (const float x : expected) any_denormal |= x != 0.0f && std::abs(x) < 0x1p-126f;
  EXPECT_TRUE(any_denormal);
  std::fesetround(FE_UPWARD);
  const std::vector<float> upward = product_of_small_numbers();
  const std::vector<std::uint8_t> upward_products = products_of_every_format();
  const int rounding = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(rounding, FE_UPWARD);
  EXPECT_TRUE(upward_products == products);
  EXPECT_EQ(std::memcmp(upward.data(), expected.data(), expected.size() * sizeof(float)), 0);
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | kFlushToZero | kDenormalsAreZero);
  const std::vector<float> flushed = product_of_small_numbers();
  const std::vector<std::uint8_t> flushed_products = products_of_every_format();
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(mode & (kFlushToZero | kDenormalsAreZero), kFlushToZero | kDenormalsAreZero);
  EXPECT_TRUE(flushed_products == products);
  EXPECT_EQ(std::memcmp(flushed.data(), expected.data(), expected.size() * sizeof(float)), 0);
#endif
}

}  // namespace
}  // namespace octavo::ops
