// The bound of `rounded` against every way that codes are computed, and runs against plain sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "octavo/checkpoint/compare_values_internal.h"
#include "octavo/formats/convert.h"

namespace octavo {
namespace {

bool within(const RoundingGrid& grid, double x, double y) {
  return std::fabs(x - y) <= rounding_bound<double>(grid, x, y);
}

// x / s as quantizers compute it, in f32. `inv_scale`: the q that s is the reciprocal of, if any.
std::vector<float> quotients(float x, float s, float inv_scale) {
  return {x / s, x * (1.0f / s), x * inv_scale};
}

template <Format F>
void check_scaled(float scale, float inv_scale, std::mt19937_64& random) {
  constexpr FormatTraits kFormat = traits(F);
  const RoundingGrid grid = scaled_grid(F, scale);
  const auto value = [&](int code) {
    return static_cast<double>(decode<F>(static_cast<Code<F>>(code)) * scale);
  };
  std::vector<float> inputs;
  for (int code = 0; code < static_cast<int>(kFormat.largest_code); ++code) {
    // Codes, the midpoints behind them, and what f32 has beside those.
    const double low = decode<F>(static_cast<Code<F>>(code));
    const double high = decode<F>(static_cast<Code<F>>(code + 1));
    for (const double at : {low, (low + high) / 2, low + (high - low) * 0.3}) {
      const auto x = static_cast<float>(at * scale);
      inputs.insert(inputs.end(), {x, std::nextafter(x, HUGE_VALF), std::nextafter(x, -HUGE_VALF)});
    }
  }
  std::uniform_real_distribution<double> uniform(0, kFormat.largest);
  for (int i = 0; i < 1000; ++i) inputs.push_back(static_cast<float>(uniform(random) * scale));
  for (const float x : inputs) {
    for (const float t : quotients(x, scale, inv_scale)) {
      if (!std::isfinite(t)) continue;  // 1 / s overflowed: no quantizer can use this scale so
      const int code = encode<F>(t, Rounding::nearest_even, Overflow::saturate);
      EXPECT_TRUE(within(grid, x, value(code))) << kFormat.name << " " << x << " x " << scale;
      EXPECT_TRUE(within(grid, -x, -value(code))) << kFormat.name << " " << x << " x " << scale;
    }
    // The other codes are not: unless x is as near to both as the slack is wide.
    if (scale < 0x1p-100f) continue;  // subnormal products: the slack is as wide as a step
    const double t = std::fabs(static_cast<double>(x) / scale);
    const int code = encode<F>(t, Rounding::nearest_even, Overflow::saturate);
    for (const int other : {code - 1, code + 1}) {
      if (other < 0 || other > static_cast<int>(kFormat.largest_code)) continue;
      const double near = decode<F>(static_cast<Code<F>>(code));
      const double far = decode<F>(static_cast<Code<F>>(other));
      const double margin = std::fabs(t - (near + far) / 2);
      // Slack of 3 u and a product that is off by u: beyond 4 u, and 5 in double, nothing passes.
      if (margin <= 5 * 0x1p-24 * std::max(t, far)) continue;
      EXPECT_FALSE(within(grid, x, value(other))) << kFormat.name << " " << x << " x " << scale;
    }
  }
}

TEST(CompareValues, WhateverAQuantizerRoundsIsWithinTheBoundAndOtherCodesAreNot) {
  std::mt19937_64 random(1);
  for (const float inv_scale : {1.0f, 2.0f, 0.3f, 448 / 0.0721f, 1e30f, 1e-30f, 3.3e37f,
                                std::numeric_limits<float>::max()}) {
    const float scale = 1.0f / inv_scale;  // subnormal for the last one
    check_scaled<Format::e4m3fn>(scale, inv_scale, random);
    check_scaled<Format::e5m2>(scale, inv_scale, random);
    check_scaled<Format::e4m3fnuz>(scale, inv_scale, random);
    check_scaled<Format::e5m2fnuz>(scale, inv_scale, random);
    check_scaled<Format::e2m1fn>(scale, inv_scale, random);
  }
}

template <Format F>
void check_plain(DType dtype) {
  const RoundingGrid grid = plain_grid(dtype);
  const auto value = [](std::uint32_t code) {
    return static_cast<double>(decode<F>(static_cast<Code<F>>(code)));
  };
  for (std::uint32_t code = 0; code < traits(F).largest_code; ++code) {
    const double low = value(code);
    const double high = value(code + 1);
    EXPECT_FALSE(within(grid, low, high)) << low;
    EXPECT_FALSE(within(grid, -low, -high)) << low;
    const double middle = (low + high) / 2;
    EXPECT_TRUE(within(grid, middle, low)) << low;
    EXPECT_TRUE(within(grid, middle, high)) << low;
    EXPECT_FALSE(within(grid, middle * (1 + 0x1p-40), low)) << low;
    EXPECT_FALSE(within(grid, middle * (1 - 0x1p-40), high)) << low;
  }
}

TEST(CompareValues, PlainFormatsHaveNoSlack) {
  check_plain<Format::bf16>(DType::bf16);
  check_plain<Format::f16>(DType::f16);
  check_plain<Format::e4m3fn>(DType::f8_e4m3);
  check_plain<Format::e5m2>(DType::f8_e5m2);
  for (const double at : {0.0, 1.0, 77.0, 1e15}) {
    EXPECT_TRUE(within(plain_grid(DType::i64), at + 0.5, at));
    EXPECT_FALSE(within(plain_grid(DType::i64), at + 0.75, at));
  }
}

TEST(CompareValues, AScaleThatIsNoNumberAllowsNothing) {
  for (const float scale : {0.0f, -0.0f, HUGE_VALF, std::nanf("")}) {
    EXPECT_EQ(rounding_bound<double>(scaled_grid(Format::e4m3fn, scale), 1.0, 2.0), 0.0) << scale;
  }
  EXPECT_EQ(rounding_bound<double>(scaled_grid(Format::e4m3fn, -0.5f), 1.0, 2.0),
            rounding_bound<double>(scaled_grid(Format::e4m3fn, 0.5f), 1.0, 2.0));
}

// Lengths around those of lanes and runs, with and without elements that are not finite.
TEST(CompareValues, RunsAreThePlainSums) {
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal;
  const RoundingGrid none = scaled_grid(Format::e4m3fn, 0);
  for (const std::size_t count : {1, 2, 3, 4, 5, 31, 1023, 1024, 1025, 5000}) {
    for (const bool special : {false, true}) {
      std::vector<float> a(count);
      std::vector<float> b(count);
      for (std::size_t i = 0; i < count; ++i) {
        a[i] = normal(random);
        b[i] = i % 3 == 0 ? a[i] : normal(random);
      }
      const std::size_t odd = count / 2;
      if (special) a[odd] = std::nanf("");
      ValueSums sums;
      compare_run(std::span<const float>(a), b, none, none, 100, sums);
      ValueSums wide;
      const std::vector<long double> wide_a(a.begin(), a.end());
      const std::vector<long double> wide_b(b.begin(), b.end());
      compare_run(std::span<const long double>(wide_a), wide_b, none, none, 100, wide);

      long double aa = 0;
      long double dd = 0;
      std::uint64_t differing = 0;
      std::size_t worst = 0;
      double largest = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (special && i == odd) continue;
        const double d = static_cast<double>(a[i]) - b[i];
        aa += static_cast<long double>(a[i]) * a[i];
        dd += static_cast<long double>(d) * d;
        if (d != 0) ++differing;
        if (std::fabs(d) > largest) {
          largest = std::fabs(d);
          worst = i;
        }
      }
      if (special) worst = odd;
      const double relative = static_cast<double>(count + 1) * 0x1p-53;
      for (const ValueSums& got : {sums, wide}) {
        EXPECT_NEAR(static_cast<double>(got.aa), static_cast<double>(aa),
                    static_cast<double>(aa) * relative);
        EXPECT_NEAR(static_cast<double>(got.dd), static_cast<double>(dd),
                    static_cast<double>(dd) * relative);
        EXPECT_EQ(static_cast<double>(got.max_abs), largest) << count;
        EXPECT_EQ(got.differing, differing + (special ? 1 : 0)) << count;
        EXPECT_EQ(got.non_finite, special ? 1u : 0u) << count;
        EXPECT_EQ(got.beyond_rounding, differing > 0 || special) << count;
        EXPECT_EQ(got.worst.has_value(), largest > 0 || special) << count;
        if (got.worst) {
          EXPECT_EQ(got.worst->index, 100 + worst) << count << special;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo
