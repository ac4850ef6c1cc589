// Against the host conversions of the CUDA toolkit's headers, where they are installed.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "octavo/formats/convert.h"

#ifdef OCTAVO_HAS_CUDA_CONVERSIONS
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#endif

namespace octavo {
namespace {

#ifdef OCTAVO_HAS_CUDA_CONVERSIONS

template <Format F>
constexpr __nv_fp8_interpretation_t kCuda = F == Format::e4m3fn ? __NV_E4M3 : __NV_E5M2;

template <Format F>
void check_fp8(float x) {
  for (const Overflow overflow : {Overflow::saturate, Overflow::special}) {
    const std::uint32_t got = encode<F>(x, Rounding::nearest_even, overflow);
    const std::uint32_t cuda = __nv_cvt_float_to_fp8(
        x, overflow == Overflow::saturate ? __NV_SATFINITE : __NV_NOSAT, kCuda<F>);
    if (traits(F).is_nan(cuda)) {  // CUDA's NaN has no sign
      ASSERT_TRUE(traits(F).is_nan(got)) << std::hexfloat << x;
    } else {
      ASSERT_EQ(got, cuda) << format_name(F) << " of " << std::hexfloat << x;
    }
  }
}

void check_fp4(float x) {
  ASSERT_EQ(encode<Format::e2m1fn>(x, Rounding::nearest_even, Overflow::saturate),
            __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest))
      << std::hexfloat << x;
}

// CUDA encodes the magnitude of negative numbers, and drops mantissa bits below bf16's smallest; so
// only what is positive and at least 2^-127 is compared.
void check_e8m0(float x) {
  if (!(x >= 0x1p-127f)) return;
  for (const Overflow overflow : {Overflow::saturate, Overflow::special}) {
    const auto saturate = overflow == Overflow::saturate ? __NV_SATFINITE : __NV_NOSAT;
    ASSERT_EQ(encode<Format::e8m0fnu>(x, Rounding::toward_zero, overflow),
              __nv_cvt_float_to_e8m0(x, saturate, cudaRoundZero))
        << std::hexfloat << x;
    ASSERT_EQ(encode<Format::e8m0fnu>(x, Rounding::away_from_zero, overflow),
              __nv_cvt_float_to_e8m0(x, saturate, cudaRoundPosInf))
        << std::hexfloat << x;
  }
}

// All upper halves, with lower halves on, above and below ties.
template <class Check>
void for_each_float(const Check& check) {
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      check(std::bit_cast<float>(high << 16 | low));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(FormatsCuda, E4m3fn) { for_each_float(check_fp8<Format::e4m3fn>); }
TEST(FormatsCuda, E5m2) { for_each_float(check_fp8<Format::e5m2>); }
TEST(FormatsCuda, E2m1fn) { for_each_float(check_fp4); }
TEST(FormatsCuda, E8m0fnu) { for_each_float(check_e8m0); }

#else

TEST(FormatsCuda, Conversions) {
  GTEST_SKIP() << "cuda_fp4.h was not found when this was configured";
}

#endif

}  // namespace
}  // namespace octavo
