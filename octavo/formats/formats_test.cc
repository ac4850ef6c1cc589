#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "octavo/formats/convert.h"
#include "octavo/formats/search_testing.h"
#include "octavo/formats/values.h"

namespace octavo {
namespace {

using testing::Search;
using testing::value_of;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Rounding kRoundings[] = {Rounding::nearest_even, Rounding::toward_zero,
                                   Rounding::away_from_zero};
constexpr Overflow kOverflows[] = {Overflow::saturate, Overflow::special};

template <Format F>
constexpr Code<F> saturated(double x) {
  return encode<F>(x, Rounding::nearest_even, Overflow::saturate);
}
template <Format F>
constexpr Code<F> unsaturated(double x) {
  return encode<F>(x, Rounding::nearest_even, Overflow::special);
}

// Conversions are constant expressions.
static_assert(saturated<Format::e4m3fn>(449) == 0x7E);
static_assert(unsaturated<Format::e4m3fn>(-465) == 0xFF);
static_assert(unsaturated<Format::e5m2>(61440) == 0x7C);
static_assert(decode<Format::e4m3fn>(0x01) == 0x1p-9f);
static_assert(decode<Format::e8m0fnu>(0) == 0x1p-127f);
static_assert(decode<Format::e4m3fnuz>(0x7F) == 240);
static_assert(E2m1fn::from_bits(0xD).to_float() == -3);
static_assert(E4m3fn::rounded(0.3, Rounding::nearest_even, Overflow::saturate).to_float() ==
              0.3125f);
static_assert(sizeof(E4m3fn) == 1 && sizeof(Bf16) == 2);

template <Format F>
struct Of {
  static constexpr Format kFormat = F;
};
template <class T>
class FormatsSearch : public ::testing::Test {};
using SearchedFormats =
    ::testing::Types<Of<Format::bf16>, Of<Format::f16>, Of<Format::e4m3fn>, Of<Format::e5m2>,
                     Of<Format::e4m3fnuz>, Of<Format::e5m2fnuz>, Of<Format::e2m1fn>>;
TYPED_TEST_SUITE(FormatsSearch, SearchedFormats);

TYPED_TEST(FormatsSearch, DecodesEveryCode) {
  constexpr Format kFormat = TypeParam::kFormat;
  for (std::uint32_t code = 0; code < 1u << bits_per_element(kFormat); ++code) {
    const float got = decode<kFormat>(static_cast<Code<kFormat>>(code));
    const auto expected = value_of(kFormat, code);
    ASSERT_EQ(std::isnan(got), !expected) << std::hex << code;
    ASSERT_EQ(traits(kFormat).is_nan(code), !expected) << std::hex << code;
    if (expected) {
      ASSERT_EQ(got, *expected) << std::hex << code;
      ASSERT_EQ(std::signbit(got), std::signbit(*expected)) << std::hex << code;
    } else {
      const bool negative = (code & traits(kFormat).sign_bit()) != 0;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got), negative ? 0xFFC00000u : 0x7FC00000u)
          << std::hex << code;
    }
  }
}

TYPED_TEST(FormatsSearch, EncodesEveryValueToItsCode) {
  constexpr Format kFormat = TypeParam::kFormat;
  const FormatTraits& t = traits(kFormat);
  for (std::uint32_t code = 0; code < 1u << bits_per_element(kFormat); ++code) {
    const float value = decode<kFormat>(static_cast<Code<kFormat>>(code));
    std::uint32_t expected = code;
    if (t.is_nan(code)) expected = t.nan_code | (code & t.sign_bit());  // canonical
    for (const Rounding rounding : kRoundings) {
      ASSERT_EQ(encode<kFormat>(value, rounding, Overflow::special), expected) << std::hex << code;
    }
  }
}

TYPED_TEST(FormatsSearch, RoundsEvery16BitInput) {
  constexpr Format kFormat = TypeParam::kFormat;
  const Search search(kFormat);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    for (const float x : {decode<Format::bf16>(static_cast<std::uint16_t>(i)),
                          decode<Format::f16>(static_cast<std::uint16_t>(i))}) {
      for (const Rounding rounding : kRoundings) {
        for (const Overflow overflow : kOverflows) {
          ASSERT_EQ(encode<kFormat>(x, rounding, overflow), search.encode(x, rounding, overflow))
              << std::hexfloat << x << " rounding " << static_cast<int>(rounding);
        }
      }
    }
  }
}

// Doubles on and next to every tie and every value: what is rounded twice on its way fails here.
TYPED_TEST(FormatsSearch, RoundsOnceFromDouble) {
  constexpr Format kFormat = TypeParam::kFormat;
  const Search search(kFormat);
  for (std::uint32_t code = 0; code <= search.largest_code(); ++code) {
    const double value = search.value(code);
    const double next = code == search.largest_code() ? search.beyond() : search.value(code + 1);
    for (const double at : {value, (value + next) / 2, next}) {
      for (const double x : {std::nextafter(at, -kInf), at, std::nextafter(at, kInf)}) {
        for (const double signed_x : {x, -x}) {
          for (const Rounding rounding : kRoundings) {
            for (const Overflow overflow : kOverflows) {
              ASSERT_EQ(encode<kFormat>(signed_x, rounding, overflow),
                        search.encode(signed_x, rounding, overflow))
                  << std::hexfloat << signed_x << " rounding " << static_cast<int>(rounding);
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(FormatsSearch, TraitsAreThoseOfTheValues) {
  constexpr Format kFormat = TypeParam::kFormat;
  const FormatTraits& t = traits(kFormat);
  const Search search(kFormat);
  const testing::Definition d = testing::definition(kFormat);
  EXPECT_EQ(t.largest_code, search.largest_code());
  EXPECT_EQ(t.largest, search.value(search.largest_code()));
  EXPECT_EQ(t.smallest(), search.value(1));
  EXPECT_EQ(t.smallest_normal, search.value(1u << d.mantissa_bits));
  EXPECT_EQ(t.bits, d.bits());
  EXPECT_EQ(t.has_infinity(), d.specials == testing::Specials::ieee);
  EXPECT_EQ(t.has_unsigned_zero(), d.specials == testing::Specials::fnuz);
  EXPECT_EQ(t.has_nan(), d.specials != testing::Specials::none);
}

// The table of the published formats (OCP OFP8 and MX, ml_dtypes), by hand.
TEST(Formats, TraitsByHand) {
  EXPECT_EQ(largest_finite(Format::e4m3fn), 448);
  EXPECT_EQ(largest_finite(Format::e5m2), 57344);
  EXPECT_EQ(largest_finite(Format::e4m3fnuz), 240);
  EXPECT_EQ(largest_finite(Format::e5m2fnuz), 57344);
  EXPECT_EQ(largest_finite(Format::e8m0fnu), 0x1p127);
  EXPECT_EQ(largest_finite(Format::e2m1fn), 6);
  EXPECT_EQ(traits(Format::e4m3fn).smallest(), 0.001953125);
  EXPECT_EQ(traits(Format::e5m2).smallest(), 1.52587890625e-5);
  EXPECT_EQ(traits(Format::e4m3fnuz).smallest_normal, 0.0078125);
  EXPECT_EQ(traits(Format::e5m2fnuz).smallest(), 7.62939453125e-6);
  EXPECT_EQ(traits(Format::e5m2).nan_code, 0x7Eu);
  EXPECT_EQ(bits_per_element(Format::e2m1fn), 4);
  EXPECT_STREQ(format_name(Format::f32), "f32");
  EXPECT_STREQ(format_name(Format::e4m3fnuz), "e4m3fnuz");
  EXPECT_STREQ(format_name(Format::e2m1fn), "e2m1fn");
}

TEST(Formats, ThresholdsOfOverflow) {
  EXPECT_EQ(unsaturated<Format::e4m3fn>(464), 0x7E);
  EXPECT_EQ(unsaturated<Format::e4m3fn>(std::nextafter(464.0, kInf)), 0x7F);
  EXPECT_EQ(unsaturated<Format::e4m3fn>(-kInf), 0xFF);
  EXPECT_EQ(unsaturated<Format::e5m2>(std::nextafter(61440.0, 0.0)), 0x7B);
  EXPECT_EQ(unsaturated<Format::e5m2>(61440), 0x7C);
  EXPECT_EQ(unsaturated<Format::e4m3fnuz>(std::nextafter(248.0, 0.0)), 0x7F);
  EXPECT_EQ(unsaturated<Format::e4m3fnuz>(248), 0x80);
  EXPECT_EQ(unsaturated<Format::e5m2fnuz>(std::nextafter(61440.0, 0.0)), 0x7F);
  EXPECT_EQ(unsaturated<Format::e5m2fnuz>(61440), 0x80);
  EXPECT_EQ(unsaturated<Format::e2m1fn>(kInf), 0x7);
  EXPECT_EQ(unsaturated<Format::f16>(65519.99), 0x7BFF);
  EXPECT_EQ(unsaturated<Format::f16>(65520), 0x7C00);
}

TEST(Formats, UnderflowIsGradual) {
  EXPECT_EQ(saturated<Format::e4m3fn>(0x1p-10), 0x00) << "a tie, to even";
  EXPECT_EQ(saturated<Format::e4m3fn>(std::nextafter(0x1p-10, 1.0)), 0x01);
  EXPECT_EQ(saturated<Format::e4m3fn>(0x1.8p-9), 0x02);
  EXPECT_EQ(saturated<Format::e4m3fn>(-0x1p-300), 0x80) << "keeps its sign";
  EXPECT_EQ(saturated<Format::e4m3fnuz>(-0x1p-300), 0x00) << "has no minus zero";
  EXPECT_EQ(saturated<Format::e4m3fn>(std::numeric_limits<double>::denorm_min()), 0x00);
}

TEST(Formats, NanIsCanonicalAndKeepsItsSign) {
  EXPECT_EQ(saturated<Format::e4m3fn>(-kNan), 0xFF);
  EXPECT_EQ(saturated<Format::e5m2>(kNan), 0x7E);
  EXPECT_EQ(saturated<Format::e5m2>(-kNan), 0xFE);
  EXPECT_EQ(saturated<Format::e4m3fnuz>(kNan), 0x80);
  EXPECT_EQ(saturated<Format::bf16>(-kNan), 0xFFC0);
  EXPECT_EQ(saturated<Format::f16>(kNan), 0x7E00);
  EXPECT_EQ(saturated<Format::f32>(-kNan), 0xFFC00000u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(decode<Format::f32>(0xFF812345u)), 0xFFC00000u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(decode<Format::f16>(0x7C01)), 0x7FC00000u);
  EXPECT_EQ(unsaturated<Format::e2m1fn>(kNan), 0x8) << "as ml_dtypes";
  EXPECT_EQ(unsaturated<Format::e2m1fn>(-kNan), 0x0) << "as ml_dtypes";
  EXPECT_EQ(saturated<Format::e2m1fn>(-kNan), 0x7) << "as NVIDIA's conversion";
}

TEST(Formats, InfinitySaturates) {
  EXPECT_EQ(saturated<Format::e4m3fn>(kInf), 0x7E);
  EXPECT_EQ(saturated<Format::e5m2>(-kInf), 0xFB);
  EXPECT_EQ(saturated<Format::e5m2fnuz>(-kInf), 0xFF);
  EXPECT_EQ(saturated<Format::bf16>(kInf), 0x7F7F);
  EXPECT_EQ(saturated<Format::f32>(-kInf), 0xFF7FFFFFu);
}

TEST(Formats, F32RoundsLikeTheMachine) {
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const double x = std::ldexp(1.0 + i / 997.0, static_cast<int>(i % 290) - 150);
    EXPECT_EQ(saturated<Format::f32>(x),
              std::bit_cast<std::uint32_t>(static_cast<float>(std::min(x, 0x1.fffffep127))));
  }
  for (const std::uint32_t bits :
       {0u, 1u, 0x7FFFFFu, 0x800000u, 0x3F800001u, 0x7F7FFFFFu, 0x80000000u, 0xFF800000u}) {
    EXPECT_EQ(unsaturated<Format::f32>(decode<Format::f32>(bits)), bits);
  }
}

// Casts at scale 1 after clipping (the Flax specification's table): value, then e4m3fn, e5m2,
// e4m3fnuz, e5m2fnuz.
TEST(Formats, FlaxTableOfCasts) {
  const double rows[][5] = {
      {1.0625, 1, 1, 1, 1},
      {1.125, 1.125, 1, 1.125, 1},
      {1.1875, 1.25, 1.25, 1.25, 1.25},
      {0.3, 0.3125, 0.3125, 0.3125, 0.3125},
      {-0.3, -0.3125, -0.3125, -0.3125, -0.3125},
      {3.14159265, 3.25, 3, 3.25, 3},
      {17, 16, 16, 16, 16},
      {18, 18, 16, 18, 16},
      {19, 20, 20, 20, 20},
      {100, 96, 96, 96, 96},
      {0.001, 0.001953125, 0.0009765625, 0.0009765625, 0.0009765625},
      {0x1p-10, 0, 0x1p-10, 0x1p-10, 0x1p-10},
      {3 * 0x1p-10, 0x1p-8, 3 * 0x1p-10, 3 * 0x1p-10, 3 * 0x1p-10},
      {1e-6, 0, 0, 0, 0},
      {449, 448, 448, 240, 448},
      {1e9, 448, 57344, 240, 57344},
      {-1e9, -448, -57344, -240, -57344},
      {kInf, 448, 57344, 240, 57344},
      {-kInf, -448, -57344, -240, -57344},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(decode<Format::e4m3fn>(saturated<Format::e4m3fn>(row[0])), row[1]) << row[0];
    EXPECT_EQ(decode<Format::e5m2>(saturated<Format::e5m2>(row[0])), row[2]) << row[0];
    EXPECT_EQ(decode<Format::e4m3fnuz>(saturated<Format::e4m3fnuz>(row[0])), row[3]) << row[0];
    EXPECT_EQ(decode<Format::e5m2fnuz>(saturated<Format::e5m2fnuz>(row[0])), row[4]) << row[0];
  }
}

// e8m0fnu by its own search: the values are 2^-127 to 2^127.
TEST(E8m0fnu, RoundsPositiveNumbers) {
  for (int code = 0; code < 254; ++code) {
    const double value = std::ldexp(1.0, code - 127), next = 2 * value;
    EXPECT_EQ(decode<Format::e8m0fnu>(static_cast<std::uint8_t>(code)), value);
    for (const double x :
         {value, std::nextafter(value, kInf), 1.25 * value, std::nextafter(1.5 * value, 0.0),
          1.5 * value, std::nextafter(next, 0.0)}) {
      const int nearest = x - value < next - x ? code : code + 1;  // ties go up
      EXPECT_EQ(encode<Format::e8m0fnu>(x, Rounding::nearest_even, Overflow::special), nearest)
          << std::hexfloat << x;
      EXPECT_EQ(encode<Format::e8m0fnu>(x, Rounding::toward_zero, Overflow::special), code)
          << std::hexfloat << x;
      EXPECT_EQ(encode<Format::e8m0fnu>(x, Rounding::away_from_zero, Overflow::special),
                x == value ? code : code + 1)
          << std::hexfloat << x;
    }
  }
}

TEST(E8m0fnu, TinyNumbersBecomeTheSmallest) {
  for (const double x :
       {0x1p-128, 0x1p-149, 0x1.fp-128, std::numeric_limits<double>::denorm_min()}) {
    for (const Rounding rounding :
         {Rounding::nearest_even, Rounding::toward_zero, Rounding::away_from_zero}) {
      EXPECT_EQ(encode<Format::e8m0fnu>(x, rounding, Overflow::special), 0x00) << x;
    }
  }
}

TEST(E8m0fnu, WhatIsNotPositiveAndFinite) {
  const auto special = [](double x) {
    return encode<Format::e8m0fnu>(x, Rounding::nearest_even, Overflow::special);
  };
  const auto clamped = [](double x) {
    return encode<Format::e8m0fnu>(x, Rounding::nearest_even, Overflow::saturate);
  };
  for (const double x : {0.0, -0.0, -1.0, kInf, -kInf, kNan, 0x1.8p127})
    EXPECT_EQ(special(x), 0xFF) << x;
  EXPECT_EQ(special(0x1.7ffffep127), 0xFE);
  for (const double x : {0.0, -0.0, -1.0, -kInf}) EXPECT_EQ(clamped(x), 0x00) << x;
  for (const double x : {kInf, 0x1.8p127}) EXPECT_EQ(clamped(x), 0xFE) << x;
  EXPECT_EQ(clamped(kNan), 0xFF);
  EXPECT_EQ(encode<Format::e8m0fnu>(0x1.000002p127, Rounding::away_from_zero, Overflow::special),
            0xFF);
  EXPECT_TRUE(std::isnan(decode<Format::e8m0fnu>(0xFF)));
}

TEST(Num01, NineCodesOfE4m3fnUnderBothRules) {
  const double inputs[9] = {0, 448, 464, 465, 480, 1000, kInf, -kInf, kNan};
  const std::uint8_t saturate[9] = {0x00, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F};
  const std::uint8_t special[9] = {0x00, 0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0x7F, 0xFF, 0x7F};
  for (int i = 0; i < 9; ++i) {
    std::printf("%g: saturate 0x%02X, special 0x%02X\n", inputs[i],
                saturated<Format::e4m3fn>(inputs[i]), unsaturated<Format::e4m3fn>(inputs[i]));
    EXPECT_EQ(saturated<Format::e4m3fn>(inputs[i]), saturate[i]) << inputs[i];
    EXPECT_EQ(unsaturated<Format::e4m3fn>(inputs[i]), special[i]) << inputs[i];
  }
}

TEST(Num02, TopBinadeOfE4m3fnIsFinite) {
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(decode<Format::e4m3fn>(static_cast<std::uint8_t>(0x78 + i)), 256 + 32 * i);
  for (int code = 0; code < 256; ++code) {
    const bool nan = std::isnan(decode<Format::e4m3fn>(static_cast<std::uint8_t>(code)));
    EXPECT_EQ(nan, code == 0x7F || code == 0xFF) << code;
  }
  EXPECT_EQ(decode<Format::e4m3fn>(0x01), 0x1p-9f);
}

TEST(Num03, FnuzHasOneNanAndHalfTheValues) {
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    const float fnuz = decode<Format::e4m3fnuz>(code), fn = decode<Format::e4m3fn>(code);
    EXPECT_EQ(std::isnan(fnuz), code == 0x80);
    if (code != 0x80 && code != 0x7F && code != 0xFF) {
      EXPECT_EQ(fnuz, fn / 2) << i;
    }
  }
}

}  // namespace
}  // namespace octavo
