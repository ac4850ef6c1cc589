#include <atomic>
#include <limits>
#include <thread>

#include "octavo/formats/convert.h"
#include "octavo/kernels/cast/cast_testing.h"

namespace octavo::kernels::testing {
namespace {

constexpr Format kFormats[] = {Format::f32,      Format::bf16,    Format::f16,
                               Format::e4m3fn,   Format::e5m2,    Format::e4m3fnuz,
                               Format::e5m2fnuz, Format::e8m0fnu, Format::e2m1fn};

class Cast : public CastKernelsTest {};
class CastEquality : public CastKernelsTest {};
OCTAVO_FOR_EACH_ISA(Cast);
OCTAVO_FOR_EACH_OTHER_ISA(CastEquality);

std::vector<std::uint8_t> cast_by(void (*kernel)(const CastArgs&), Format from, const void* src,
                                  Format to, std::size_t count, Overflow overflow) {
  std::vector<std::uint8_t> dst(count * bytes_of(to));
  kernel({from, src, to, dst.data(), count, overflow});
  return dst;
}

// Every pair of formats, all inputs of up to 16 bits; of f32, all patterns of the upper half with
// lower halves that lie on, above and below ties.
TEST_P(CastEquality, AllPairsOfFormats) {
  for (const Format from : kFormats) {
    std::vector<std::uint8_t> src;
    const auto append = [&](std::uint32_t bits) {
      for (std::size_t k = 0; k < bytes_of(from); ++k)
        src.push_back(static_cast<std::uint8_t>(bits >> 8 * k));
    };
    const std::uint32_t patterns = from == Format::f32 ? 65536 : 1u << bits_per_element(from);
    for (std::uint32_t i = 0; i < patterns; ++i) {
      if (from != Format::f32) append(i);
      if (from == Format::f32) {
        for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
          append(i << 16 | low);
      }
    }
    const std::size_t count = src.size() / bytes_of(from);
    for (const Format to : kFormats) {
      for (const Overflow overflow : {Overflow::saturate, Overflow::special}) {
        ASSERT_EQ(cast_by(kernels_.cast, from, src.data(), to, count, overflow),
                  cast_by(generic::cast, from, src.data(), to, count, overflow))
            << format_name(from) << " -> " << format_name(to);
      }
    }
  }
}

TEST_P(CastEquality, OnAnyLengthAndAlignment) {
  EXPECT_TRUE(check_often([this] {
    const auto format =
        rc::gen::elementOf(std::vector<Format>(std::begin(kFormats), std::end(kFormats)));
    const Format from = *format, to = *format;
    const Overflow overflow = *rc::gen::element(Overflow::saturate, Overflow::special);
    const auto count = *rc::gen::inRange<std::size_t>(0, 200);
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    const bool at_start = *rc::gen::arbitrary<bool>();
    GuardedBytes src(count * bytes_of(from), at_start), got(count * bytes_of(to), at_start);
    fill_bytes(src, random);
    kernels_.cast({from, src.data(), to, got.data(), count, overflow});
    const auto expected = cast_by(generic::cast, from, src.data(), to, count, overflow);
    RC_ASSERT(std::vector<std::uint8_t>(got.data(), got.data() + got.size()) == expected);
  }));
}

TEST_P(Cast, Num01OverflowIsANamedOption) {
  const float inf = std::numeric_limits<float>::infinity();
  const float src[9] = {
      0, 448, 464, 465, 480, 1000, inf, -inf, std::numeric_limits<float>::quiet_NaN()};
  const std::vector<std::uint8_t> saturated = {0x00, 0x7E, 0x7E, 0x7E, 0x7E,
                                               0x7E, 0x7E, 0xFE, 0x7F};
  const std::vector<std::uint8_t> special = {0x00, 0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0x7F, 0xFF, 0x7F};
  EXPECT_EQ(cast_by(kernels_.cast, Format::f32, src, Format::e4m3fn, 9, Overflow::saturate),
            saturated);
  EXPECT_EQ(cast_by(kernels_.cast, Format::f32, src, Format::e4m3fn, 9, Overflow::special),
            special);
}

// All 2^32 floats, on all levels at once because the reference takes most of the time. The
// reference itself is held against another oracle in formats_slow_test.cc.
TEST(SlowCast, AllFloatsToCodesAndBf16) {
  std::vector<CastKernels> levels;
  for (const Isa isa : {Isa::avx2, Isa::avx512bf16}) {
    if (is_built(isa) && supports(cpu_features(), isa)) levels.push_back(cast_kernels(isa));
  }
  if (levels.empty()) GTEST_SKIP() << "nothing to compare: only the reference runs here";

  constexpr std::uint32_t kChunk = 1 << 20;
  std::atomic<std::uint64_t> next = 0;
  const auto work = [&] {
    std::vector<std::uint32_t> src(kChunk);
    for (std::uint64_t first = next.fetch_add(kChunk); first < 1ull << 32;
         first = next.fetch_add(kChunk)) {
      for (std::uint32_t i = 0; i < kChunk; ++i) src[i] = static_cast<std::uint32_t>(first) + i;
      for (const auto& [to, overflow] :
           {std::pair{Format::e4m3fn, Overflow::saturate},
            std::pair{Format::e4m3fn, Overflow::special},
            std::pair{Format::e5m2, Overflow::saturate}, std::pair{Format::e5m2, Overflow::special},
            std::pair{Format::bf16, Overflow::special}}) {
        const auto expected = cast_by(generic::cast, Format::f32, src.data(), to, kChunk, overflow);
        for (const CastKernels& level : levels) {
          ASSERT_EQ(cast_by(level.cast, Format::f32, src.data(), to, kChunk, overflow), expected)
              << level.name << " to " << format_name(to) << ", among the floats from 0x" << std::hex
              << first;
        }
      }
    }
  };
  std::jthread helper(work);
  work();
}

}  // namespace
}  // namespace octavo::kernels::testing
