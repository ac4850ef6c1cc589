#include "octavo/quant/scale_rule.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <limits>

#include "octavo/quant/quant_testing.h"

namespace octavo {
namespace {

using testing::expected_scale;
using testing::ExpectedScale;
using testing::kRules;
using testing::kScaleFormats;

constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr float kFloatMin = std::numeric_limits<float>::min();
constexpr float kDenormMin = std::numeric_limits<float>::denorm_min();

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
float next(float x) { return std::bit_cast<float>(bits(x) + 1); }
float previous(float x) { return std::bit_cast<float>(bits(x) - 1); }

void expect_equal(float amax, ScaleRule rule, ScaleFormat format) {
  const BlockScale got = compute_scale(amax, rule, format);
  const ExpectedScale expected = expected_scale(amax, rule, format);
  ASSERT_EQ(bits(got.scale), bits(expected.scale))
      << std::hexfloat << rule_name(rule) << " amax " << amax;
  ASSERT_EQ(bits(got.factor), bits(expected.factor))
      << std::hexfloat << rule_name(rule) << " amax " << amax;
  ASSERT_EQ(scale_op(rule, format) == kernels::ScaleOp::divide, expected.divide);
}

TEST(ScaleRule, EqualsTheFormulas) {
  std::mt19937 random(1);
  std::uniform_int_distribution<std::uint32_t> finite(0, 0x7F7F'FFFF);
  std::uniform_real_distribution<float> usual(-12, 4);
  for (const ScaleRule rule : kRules) {
    for (const ScaleFormat format : kScaleFormats) {
      for (int i = 0; i < 20'000; ++i) {
        expect_equal(std::bit_cast<float>(finite(random)), rule, format);
        expect_equal(std::exp2(usual(random)), rule, format);
      }
      // All BF16 values, zero and denormals among them.
      for (std::uint32_t x = 0; x < 0x7F80; ++x)
        expect_equal(std::bit_cast<float>(x << 16), rule, format);
      for (const float edge :
           {kDenormMin, kFloatMin, kFloatMax, 448.0f, 1e-4f, 448 / kFloatMax, 448 * kFloatMin}) {
        for (const float x : {previous(edge), edge, next(edge)}) {
          if (std::isfinite(x)) expect_equal(x, rule, format);
        }
      }
    }
  }
}

TEST(ScaleRule, ValuesByHand) {
  EXPECT_EQ(compute_scale(448.0f, ScaleRule::transformers, ScaleFormat::float32).scale, 1.0f);
  EXPECT_EQ(compute_scale(448.0f, ScaleRule::deepseek, ScaleFormat::float32).scale, 1.0f);
  EXPECT_EQ(compute_scale(3.5f, ScaleRule::deepseek, ScaleFormat::float32).scale, 0x1p-7f);
  EXPECT_EQ(compute_scale(3.5f, ScaleRule::transformers, ScaleFormat::float32).factor, 128.0f);
  EXPECT_EQ(compute_scale(3.5f, ScaleRule::transformers, ScaleFormat::ue8m0).scale, 0x1p-7f);
  EXPECT_EQ(compute_scale(next(3.5f), ScaleRule::deepseek, ScaleFormat::ue8m0).scale, 0x1p-6f);
}

TEST(ScaleRule, FollowsTheLargestValueOfTheFormat) {
  constexpr ScaleFormat kFloat = ScaleFormat::float32;
  for (const auto rule : {ScaleRule::transformers, ScaleRule::deepseek, ScaleRule::deepgemm}) {
    for (const float largest : {448.0f, 57344.0f, 240.0f}) {
      EXPECT_EQ(compute_scale(largest, rule, kFloat, largest).scale, 1.0f) << rule_name(rule);
    }
    EXPECT_EQ(compute_scale(7.0f, rule, kFloat, 57344.0f).scale, 0x1p-13f) << rule_name(rule);
    EXPECT_EQ(compute_scale(15.0f, rule, kFloat, 240.0f).scale, 0x1p-4f) << rule_name(rule);
  }
  // 1 / 57344 = 1.7438617e-5 rounded once, by any rule that divides.
  EXPECT_EQ(compute_scale(1.0f, ScaleRule::deepseek, kFloat, 57344.0f).scale, 0x1.24924ap-16f);
}

TEST(ScaleRule, TheRulesDiffer) {
  // A reciprocal, a product and a reciprocal against one division: three roundings of at most one
  // last place each.
  int different = 0;
  for (std::uint32_t x = 0x3F80'0000; x < 0x4000'0000; x += 0x1003) {
    const float amax = std::bit_cast<float>(x);
    const float t = compute_scale(amax, ScaleRule::transformers, ScaleFormat::float32).scale;
    const float d = compute_scale(amax, ScaleRule::deepseek, ScaleFormat::float32).scale;
    EXPECT_LE(std::abs(static_cast<int>(bits(t)) - static_cast<int>(bits(d))), 3);
    different += t != d ? 1 : 0;
  }
  EXPECT_GT(different, 0);
}

TEST(ScaleRule, ABlockOfZeros) {
  for (const ScaleRule rule : {ScaleRule::transformers, ScaleRule::deepseek}) {
    for (const ScaleFormat format : kScaleFormats)
      EXPECT_EQ(compute_scale(0.0f, rule, format).scale, 1.0f);
  }
  EXPECT_EQ(compute_scale(0.0f, ScaleRule::deepgemm, ScaleFormat::float32).scale, 1e-4f / 448.0f);
  EXPECT_EQ(compute_scale(0.0f, ScaleRule::deepgemm, ScaleFormat::ue8m0).scale, 0x1p-22f);
}

TEST(ScaleRule, WhereTheFactorOverflows) {
  // 448 / amax is above the largest float for amax up to 2^-119.19...
  const float largest = 0x1.cp-120f;
  ASSERT_TRUE(std::isinf(448.0f / largest));
  for (const float amax : {kDenormMin, kFloatMin, 0x1p-123f, largest}) {
    for (const ScaleRule rule : {ScaleRule::transformers, ScaleRule::deepseek}) {
      const BlockScale scale = compute_scale(amax, rule, ScaleFormat::float32);
      EXPECT_EQ(scale.scale, 1.0f / kFloatMax) << rule_name(rule);
      EXPECT_EQ(scale.factor, rule == ScaleRule::deepseek ? 1.0f / kFloatMax : kFloatMax)
          << rule_name(rule);
      EXPECT_EQ(compute_scale(amax, rule, ScaleFormat::ue8m0).scale, kFloatMin) << rule_name(rule);
    }
  }
  EXPECT_EQ(compute_scale(next(largest), ScaleRule::deepseek, ScaleFormat::float32).scale,
            next(largest) / 448.0f);
  // Where 1 / amax is infinite already.
  EXPECT_EQ(compute_scale(0x1p-129f, ScaleRule::transformers, ScaleFormat::float32).factor,
            kFloatMax);
}

TEST(ScaleRule, NothingIsInfiniteOrNaN) {
  EXPECT_TRUE(rc::check([] {
    const float amax = std::bit_cast<float>(*rc::gen::inRange<std::uint32_t>(0, 0x7F80'0000));
    for (const ScaleRule rule : kRules) {
      for (const ScaleFormat format : kScaleFormats) {
        const BlockScale scale = compute_scale(amax, rule, format);
        RC_ASSERT(std::isfinite(scale.scale) && scale.scale > 0);
        RC_ASSERT(std::isfinite(scale.factor) && scale.factor > 0);
      }
    }
  }));
}

TEST(Ue8m0, RoundsUpAtEveryExponent) {
  for (int exponent = -126; exponent <= 127; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    const int byte = exponent + 127;
    EXPECT_EQ(ue8m0_round_up(power), byte);
    EXPECT_EQ(ue8m0_round_up(next(power)), std::min(byte + 1, 254))
        << "one last place above 2^" << exponent;
    EXPECT_EQ(ue8m0_round_up(previous(power)), byte) << "one last place below 2^" << exponent;
    EXPECT_EQ(ue8m0_round_up(power * 1.5f), std::min(byte + 1, 254));
  }
}

TEST(Ue8m0, IsClamped) {
  EXPECT_EQ(ue8m0_round_up(0.0f), 1);
  EXPECT_EQ(ue8m0_round_up(kDenormMin), 1);
  EXPECT_EQ(ue8m0_round_up(0x1p-127f), 1);
  EXPECT_EQ(ue8m0_round_up(kFloatMax), 254);
}

TEST(Ue8m0, EqualsTheSmallestPowerOfTwoThatIsNotBelow) {
  EXPECT_TRUE(rc::check([] {
    const float x = std::bit_cast<float>(*rc::gen::inRange<std::uint32_t>(0, 0x7F80'0000));
    RC_ASSERT(ue8m0_round_up(x) == testing::exponent_up(x) + 127);
  }));
}

TEST(Ue8m0, DeepgemmsSmallestByte) {
  for (const float amax : {0.0f, kDenormMin, 5e-5f, 1e-4f}) {
    const float scale = compute_scale(amax, ScaleRule::deepgemm, ScaleFormat::ue8m0).scale;
    EXPECT_EQ(ue8m0_exact(scale), 105) << amax;
  }
}

TEST(Ue8m0, Values) {
  for (int code = 0; code < 255; ++code) {
    const float value = ue8m0_value(static_cast<std::uint8_t>(code));
    EXPECT_EQ(value, std::ldexp(1.0f, code - 127)) << code;
    EXPECT_EQ(ue8m0_exact(value), code);
  }
  EXPECT_TRUE(std::isnan(ue8m0_value(255)));
}

TEST(Ue8m0, NothingIsRoundedWhereExactIsAsked) {
  for (const float x :
       {0.0f, -1.0f, -0x1p-127f, 3.0f, next(1.0f), previous(1.0f), kDenormMin, 0x1p-128f,
        next(0x1p-127f), HUGE_VALF, std::numeric_limits<float>::quiet_NaN(), kFloatMax}) {
    EXPECT_EQ(ue8m0_exact(x), std::nullopt) << std::hexfloat << x;
  }
}

TEST(ScaleNames, BothWays) {
  for (const ScaleRule rule : kRules) EXPECT_EQ(rule_from_name(rule_name(rule)), rule);
  EXPECT_EQ(rule_name(ScaleRule::deepseek), "deepseek");
  for (const ScaleFormat format : kScaleFormats)
    EXPECT_EQ(scale_format_from_name(scale_format_name(format)), format);
  EXPECT_EQ(scale_format_from_name("float"), ScaleFormat::float32);
  EXPECT_EQ(rule_from_name("DeepSeek"), std::nullopt);
  EXPECT_EQ(scale_format_from_name("e8m0"), std::nullopt);
  EXPECT_EQ(scale_format_from_name(""), std::nullopt);
}

}  // namespace
}  // namespace octavo
