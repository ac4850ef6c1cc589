// All 2^32 floats into every narrow format, against thresholds that come from searching the values
// of all codes.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#include "octavo/formats/convert.h"
#include "octavo/formats/search_testing.h"

namespace octavo {
namespace {

using testing::Search;

// As x grows, its code steps up where x passes the middle of two values (reaches it, where the
// upper code is even).
class Steps {
 public:
  explicit Steps(Format format) : search_(format) {}

  // The code of x as if there were one more than the largest; x must not be below earlier ones.
  std::uint32_t advance(double x) {
    while (code_ <= search_.largest_code()) {
      const double next =
          code_ == search_.largest_code() ? search_.beyond() : search_.value(code_ + 1);
      const double middle = (search_.value(code_) + next) / 2;
      if (x < middle || (x == middle && code_ % 2 == 0)) break;
      ++code_;
    }
    return code_;
  }

 private:
  Search search_;
  std::uint32_t code_ = 0;
};

// One eighth of the finite magnitudes, both signs. Returns the bits of the first float that
// differs, or 0xFFFFFFFF.
template <Format F>
std::uint32_t first_difference(std::uint32_t first, std::uint32_t last) {
  const Search search(F);
  Steps steps(F);
  const std::uint32_t beyond = search.largest_code() + 1;
  const std::uint32_t overflow_code = search.encode(std::numeric_limits<double>::infinity(),
                                                    Rounding::nearest_even, Overflow::special);
  for (std::uint32_t bits = first; bits < last; ++bits) {
    const float x = std::bit_cast<float>(bits);
    const std::uint32_t code = steps.advance(x);
    const std::uint32_t clamped = code == beyond ? search.largest_code() : code;
    const std::uint32_t special = code == beyond ? overflow_code : code;
    const std::uint32_t sign = traits(F).sign_bit();
    const std::uint32_t minus = traits(F).has_unsigned_zero() && clamped == 0 ? 0 : sign;
    const bool equal =
        encode<F>(x, Rounding::nearest_even, Overflow::saturate) == clamped &&
        encode<F>(x, Rounding::nearest_even, Overflow::special) == special &&
        encode<F>(-x, Rounding::nearest_even, Overflow::saturate) == (clamped | minus) &&
        encode<F>(-x, Rounding::nearest_even, Overflow::special) == (special | minus);
    if (!equal) return bits;
  }
  return 0xFFFFFFFF;
}

template <Format F>
void check_all_floats() {
  constexpr std::uint32_t kInfinity = 0x7F800000, kPieces = 8;
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<std::uint32_t> next_piece = 0, difference = 0xFFFFFFFF;
  std::vector<std::jthread> workers;
  for (unsigned t = 0; t < threads; ++t) {
    workers.emplace_back([&] {
      for (std::uint32_t piece = next_piece++; piece < kPieces; piece = next_piece++) {
        const std::uint32_t found =
            first_difference<F>(kInfinity / kPieces * piece, kInfinity / kPieces * (piece + 1));
        std::uint32_t known = difference;
        while (found < known && !difference.compare_exchange_weak(known, found)) {
        }
      }
    });
  }
  workers.clear();
  EXPECT_EQ(difference, 0xFFFFFFFF) << format_name(F) << " of f32 0x" << std::hex << difference;
  // Infinities and NaN, which have no order: every pattern.
  const Search search(F);
  for (const std::uint32_t sign : {0u, 0x80000000u}) {
    const double nan = sign != 0 ? -std::numeric_limits<double>::quiet_NaN()
                                 : std::numeric_limits<double>::quiet_NaN();
    const std::uint32_t expected = search.encode(nan, Rounding::nearest_even, Overflow::special);
    for (std::uint32_t bits = kInfinity + 1; bits < 0x80000000u; ++bits) {
      ASSERT_EQ(
          encode<F>(std::bit_cast<float>(sign | bits), Rounding::nearest_even, Overflow::special),
          expected);
    }
  }
}

TEST(FormatsSlow, AllFloatsToE4m3fn) { check_all_floats<Format::e4m3fn>(); }
TEST(FormatsSlow, AllFloatsToE5m2) { check_all_floats<Format::e5m2>(); }
TEST(FormatsSlow, AllFloatsToE4m3fnuz) { check_all_floats<Format::e4m3fnuz>(); }
TEST(FormatsSlow, AllFloatsToE5m2fnuz) { check_all_floats<Format::e5m2fnuz>(); }
TEST(FormatsSlow, AllFloatsToE2m1fn) { check_all_floats<Format::e2m1fn>(); }
TEST(FormatsSlow, AllFloatsToBf16) { check_all_floats<Format::bf16>(); }
TEST(FormatsSlow, AllFloatsToF16) { check_all_floats<Format::f16>(); }

}  // namespace
}  // namespace octavo
