// Products, every line of gemm_manifest.inc to the bit against order C on row-major operands.
#include "octavo/kernels/gemm/gemm_testing.h"

#include <numeric>
#include <span>

namespace octavo::kernels::testing {
namespace {

class Gemm : public GemmKernelsTest {};
class GemmSlow : public GemmKernelsTest {};
OCTAVO_FOR_EACH_GEMM_KERNEL(Gemm);
OCTAVO_FOR_EACH_GEMM_KERNEL(GemmSlow);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::size_t any_size(std::size_t first, std::size_t last) {
  return *rc::gen::inRange<std::size_t>(first, last + 1);
}

float any_scale(std::mt19937& random) {
  return std::normal_distribution<float>(0.0f, 1.0f)(random);
}

// Finite patterns: all codes of 8-bit formats, other numbers of magnitudes around 1 and, one in 16,
// of any. `specials`: three elements are any pattern, infinities and NaN among them.
void fill(Format format, std::vector<std::uint8_t>& elements, std::mt19937& random, bool specials) {
  const std::size_t count = elements.size() / bytes_of(format);
  const std::uint32_t all = traits(format).all_bits();
  for (std::size_t i = 0; i < count; ++i) {
    auto bits = static_cast<std::uint32_t>(random()) & all;
    if (bytes_of(format) > 1 && random() % 16 != 0) {
      bits = std::bit_cast<std::uint32_t>(any_scale(random)) >> (32 - bits_per_element(format));
    }
    if (!std::isfinite(value_of(format, bits))) bits = 1;
    set_bits(format, elements, i, bits);
  }
  for (int i = 0; specials && i < 3; ++i) {
    const auto bits = static_cast<std::uint32_t>(random()) & all;
    const std::uint32_t extreme = traits(format).nan_code - (random() % 2);
    set_bits(format, elements, random() % count, i == 0 ? extreme & all : bits);
  }
}

void fill(Product& p, std::mt19937& random, bool specials) {
  fill(p.weight_format, p.weights, random, specials);
  fill(p.activation_format, p.activations, random, specials);
}

// Scales shared by all, or one each by index, by block or by both, index or block innermost, with
// gaps between them.
TestScales any_scales(std::size_t count, std::size_t k_blocks, bool lanes, std::mt19937& random,
                      bool specials) {
  TestScales s;
  s.lanes = lanes;
  const std::size_t unit = (lanes ? kStrip : 1) + *rc::gen::element<std::size_t>(0, 0, 3);
  const std::size_t gap = *rc::gen::element<std::size_t>(0, 0, 1, 7);
  s.blocks = *rc::gen::element<std::size_t>(1, 1, 2, 3);
  switch (*rc::gen::inRange(0, 5)) {
    case 0:
      break;
    case 1:
      s.index_stride = unit;
      break;
    case 2:
      s.block_stride = unit;
      break;
    case 3:
      s.index_stride = unit, s.block_stride = count * unit + gap;
      break;
    default:
      s.block_stride = unit, s.index_stride = k_blocks * unit + gap;
      break;
  }
  s.reach(count, k_blocks);
  for (float& x : s.data)
    x = specials && random() % 64 == 0 ? any_float(random) : any_scale(random);
  return s;
}

// Random shapes up to `largest` multiply-adds, formats that `kernel` takes, layouts and ranges.
Product any_product(const GemmKernel& kernel, std::size_t largest) {
  Product p;
  p.weight_format = *rc::gen::elementOf(std::vector<Format>(kWeights, std::end(kWeights)));
  p.activation_format = *rc::gen::element(Format::f32, Format::bf16, Format::bf16, Format::e4m3fn,
                                          Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz);
  RC_PRE(takes(kernel, p.activation_format, p.weight_format));
  p.c_format = *rc::gen::element(Format::f32, Format::bf16);
  p.k_block = *rc::gen::element<std::size_t>(32, 64, 128);
  const std::size_t m = any_size(0, 7) == 0   ? any_size(71, 200)
                        : any_size(0, 1) == 0 ? any_size(1, 12)
                                              : any_size(13, 70);
  const std::size_t n = any_size(1, 200), k = any_size(1, 700);
  p.resize(m, n, std::min(k, largest / (m * n) + 1));

  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const bool specials = *rc::gen::arbitrary<bool>();
  fill(p, random, specials);
  p.weight_scale =
      any_scales(p.strips(), p.k_blocks(), *rc::gen::arbitrary<bool>(), random, specials);
  p.activation_scale = any_scales(p.m, p.k_blocks(), false, random, specials);
  if (*rc::gen::arbitrary<bool>()) {
    p.bias.resize(n);
    for (float& x : p.bias) x = specials ? any_float(random) : any_scale(random);
  }
  p.c_stride = n + *rc::gen::element<std::size_t>(0, 0, 1, 9);
  const std::size_t begin = any_size(0, p.strips() - 1);
  p.cuts = any_size(0, 1) == 0 ? std::vector<std::size_t>{0, p.strips()}
                               : std::vector<std::size_t>{begin, any_size(begin, p.strips())};
  p.group = any_size(1, 5);
  return p;
}

TEST_P(Gemm, RandomProductsAreOrderC) {
  const std::size_t largest = is_specification() ? 200'000 : 1'500'000;
  EXPECT_TRUE(rc::check([&] {
    const Product p = any_product(kernel(), largest);
    RC_LOG() << p;
    RC_ASSERT(difference(p, run(kernel(), p), Model(p).c()) == "");
  }));
}

// Every code of one format times every code of the other, as the even and as the odd k of a pair,
// with columns in any order so that codes visit all lanes.
TEST_P(Gemm, AllPairsOfCodes) {
  std::mt19937 random(1);
  for (const Format weights : kCodes) {
    for (const Format activations : kCodes) {
      for (const std::size_t k : {0, 1}) {
        for (const bool lanes : {false, true}) {
          Product p;
          p.weight_format = weights, p.activation_format = activations;
          p.c_format = lanes ? Format::bf16 : Format::f32;
          p.resize(256, 256, k + 1);
          std::vector<std::uint32_t> codes(256);
          std::iota(codes.begin(), codes.end(), 0u);
          std::ranges::shuffle(codes, random);
          for (std::uint32_t i = 0; i < 256; ++i) {
            set_bits(weights, p.weights, i * p.k + k, codes[i]);
            set_bits(activations, p.activations, i * p.k + k, i);
          }
          p.weight_scale.lanes = lanes, p.weight_scale.index_stride = lanes ? kStrip : 1;
          p.weight_scale.reach(p.strips(), 1);
          p.activation_scale.index_stride = 1;
          p.activation_scale.reach(p.m, 1);
          for (float& x : p.weight_scale.data) x = any_scale(random);
          for (float& x : p.activation_scale.data) x = any_scale(random);
          ASSERT_EQ(difference(p, run(kernel(), p), Model(p).c()), "") << p << ", k = " << k;
        }
      }
    }
  }
}

TEST_P(Gemm, IsWithinTheBoundOfAnExactEvaluation) {
  std::mt19937 random(2);
  for (const Format weights : kWeights) {
    for (const Format activations : {Format::f32, Format::bf16, Format::e4m3fn, Format::e5m2}) {
      if (!takes(kernel(), activations, weights)) continue;
      for (const Format c_format : {Format::f32, Format::bf16}) {
        Product p;
        p.weight_format = weights, p.activation_format = activations, p.c_format = c_format;
        p.k_block = 64;
        p.resize(5, 40, 333);
        p.bias.assign(p.n, any_scale(random));
        // Magnitudes around 1, so that no sum overflows.
        const auto near_one = [&](Format format, std::vector<std::uint8_t>& elements) {
          for (std::size_t i = 0; i < elements.size() / bytes_of(format); ++i) {
            std::uint32_t bits = std::bit_cast<std::uint32_t>(any_scale(random));
            if (bytes_of(format) == 2) bits >>= 16;
            if (bytes_of(format) == 1) {
              do bits = static_cast<std::uint32_t>(random()) & 0xFF;
              while (!(std::abs(value_of(format, bits)) <= 16.0f));
            }
            set_bits(format, elements, i, bits);
          }
        };
        near_one(weights, p.weights);
        near_one(activations, p.activations);
        p.weight_scale = {{}, p.k_blocks(), 1, 1, false};
        p.weight_scale.reach(p.strips(), p.k_blocks());
        for (float& x : p.weight_scale.data) x = any_scale(random);
        const Model model(p);
        const std::vector<std::uint8_t> c = run(kernel(), p);
        for (std::size_t i = 0; i < p.m * p.n; ++i) {
          const Exact exact = model.exact(i / p.n, i % p.n);
          const double modelled =
              static_cast<double>(value_of(c_format, model.stored(model.output(i / p.n, i % p.n))));
          const double got = static_cast<double>(value_of(c_format, bits_at(c_format, c, i)));
          ASSERT_LE(std::abs(modelled - exact.value), exact.bound) << p << ", output " << i;
          ASSERT_LE(std::abs(got - exact.value), exact.bound) << p << ", output " << i;
        }
      }
    }
  }
}

// Weights and activations 1 but for what a test sets.
Product all_ones(Format weights, std::size_t m, std::size_t n, std::size_t k) {
  const auto one = [](Format format) -> std::uint32_t {
    for (std::uint32_t bits = 0; bits < 256; ++bits) {
      if (value_of(format, bits) == 1.0f) return bits;
    }
    return format == Format::bf16 ? 0x3F80 : 0x3F800000;
  };
  Product p;
  p.weight_format = weights, p.activation_format = Format::e5m2;
  p.k_block = 32;
  p.resize(m, n, k);
  for (std::size_t i = 0; i < n * k; ++i) set_bits(weights, p.weights, i, one(weights));
  for (std::size_t i = 0; i < m * k; ++i) set_bits(Format::e5m2, p.activations, i, 0x3C);
  return p;
}

// Every output of column `column` (of row `row`) is `special`, every other one is K. Negative:
// column or row is none.
void expect_only(const GemmKernel& kernel, const Product& p, std::ptrdiff_t row,
                 std::ptrdiff_t column, std::uint32_t special) {
  const std::vector<std::uint8_t> c = run(kernel, p);
  for (std::size_t i = 0; i < p.m * p.n; ++i) {
    const bool reached = std::cmp_equal(i / p.n, row) || std::cmp_equal(i % p.n, column);
    const float expected = reached ? std::bit_cast<float>(special) : static_cast<float>(p.k);
    ASSERT_EQ(bits_at(Format::f32, c, i), std::bit_cast<std::uint32_t>(expected))
        << p << ", output (" << i / p.n << ", " << i % p.n << ")";
  }
}

TEST_P(Gemm, SpecialCodesReachTheirRowOrColumnOnly) {
  constexpr std::uint32_t kNanBits = 0x7FC00000, kInf = 0x7F800000;
  struct Case {
    Format weights;
    std::uint32_t code, result;
  };
  const Case cases[] = {{Format::e4m3fn, 0x7F, kNanBits},   {Format::e4m3fn, 0xFF, kNanBits},
                        {Format::e5m2, 0x7D, kNanBits},     {Format::e5m2, 0xFE, kNanBits},
                        {Format::e5m2, 0x7F, kNanBits},     {Format::e5m2, 0x7C, kInf},
                        {Format::e5m2, 0xFC, 0xFF800000},   {Format::e4m3fnuz, 0x80, kNanBits},
                        {Format::e5m2fnuz, 0x80, kNanBits}, {Format::bf16, 0xFF81, kNanBits},
                        {Format::bf16, 0x7F80, kInf},       {Format::f32, 0xFF800001, kNanBits},
                        {Format::f32, 0x7F800000, kInf}};
  for (const Case& c : cases) {
    if (!takes(kernel(), Format::e5m2, c.weights)) continue;
    for (const std::size_t m : {1, 5, 50}) {
      for (const auto& [k, n] : {std::pair{0, 39}, std::pair{1, 13}, std::pair{70, 0}}) {
        Product p = all_ones(c.weights, m, 40, 71);
        set_bits(c.weights, p.weights, static_cast<std::size_t>(n) * p.k + k, c.code);
        expect_only(kernel(), p, -1, n, c.result);
        p = all_ones(c.weights, m, 40, 71);
        set_bits(Format::e5m2, p.activations, (m - 1) * p.k + k, 0xFE);
        expect_only(kernel(), p, static_cast<std::ptrdiff_t>(m) - 1, -1, kNanBits);
      }
    }
  }
}

// Where a kernel that multiplies by another power of two on the way would overflow or round
// differently, or leaves the range in which it may do so.
TEST_P(Gemm, AtTheEndsOfTheExponentRange) {
  if (!takes(kernel(), Format::f32, Format::e4m3fn)) {
    GTEST_SKIP() << kernel().name << " takes no f32 activations";
  }
  std::mt19937 random(4);
  for (const Format weights : kWeights) {
    for (int exponent = -149; exponent<128; exponent += exponent> - 95 && exponent < 95 ? 9 : 1) {
      Product p;
      p.weight_format = weights, p.activation_format = Format::f32;
      p.resize(1 + random() % 7, 33, 66);
      fill(weights, p.weights, random, false);
      const float unit = std::ldexp(1.0f, exponent);
      for (std::size_t i = 0; i < p.m * p.k; ++i) {
        const float a = (1.0f + static_cast<float>(random() % 0x1000000) * 0x1p-24f) * unit;
        set_bits(Format::f32, p.activations, i,
                 std::bit_cast<std::uint32_t>(random() % 2 == 0 ? a : -a));
      }
      // Brings the results into the middle of the range.
      p.weight_scale.data = {std::ldexp(1.0f, std::clamp(-exponent, -126, 120))};
      ASSERT_EQ(difference(p, run(kernel(), p), Model(p).c()), "") << p << ", 2^" << exponent;
    }
  }
}

TEST_P(Gemm, InfinityTimesZeroIsNan) {
  Product p = all_ones(Format::e5m2, 2, 40, 70);
  set_bits(Format::e5m2, p.weights, 7 * p.k + 3, 0x7C);
  set_bits(Format::e5m2, p.activations, 0 * p.k + 3, 0x00);
  set_bits(Format::e5m2, p.activations, 1 * p.k + 3, 0x80);
  const std::vector<std::uint8_t> c = run(kernel(), p);
  EXPECT_EQ(bits_at(Format::f32, c, 7), 0x7FC00000u);
  EXPECT_EQ(bits_at(Format::f32, c, 40 + 7), 0x7FC00000u);
}

// A chain that starts with +0 never ends as -0 unless a product underflows, which those of codes
// cannot.
TEST_P(Gemm, ZerosOfEitherSignGivePlusZero) {
  for (const Format weights : kWeights) {
    if (!takes(kernel(), Format::e5m2, weights)) continue;
    const bool has_minus_zero = !traits(weights).has_unsigned_zero();
    const std::uint32_t minus_zero = has_minus_zero ? traits(weights).sign_bit() : 0;
    for (const std::uint32_t weight : {0u, minus_zero}) {
      for (const std::uint32_t activation : {0x00u, 0x80u, 0x3Cu, 0xBCu}) {
        Product p = all_ones(weights, 7, 33, 66);
        for (std::size_t i = 0; i < p.n * p.k; ++i) set_bits(weights, p.weights, i, weight);
        for (std::size_t i = 0; i < p.m * p.k; ++i)
          set_bits(Format::e5m2, p.activations, i, activation);
        p.weight_scale.data = {-2.0f};
        // acc = +0 times a negative scale is -0, and tot = +0 + -0 is +0.
        const std::vector<std::uint8_t> c = run(kernel(), p);
        ASSERT_EQ(c, std::vector<std::uint8_t>(c.size(), 0)) << p;
      }
    }
  }
}

TEST_P(Gemm, BiasAndRoundingToBf16) {
  Product p = all_ones(Format::e4m3fn, 3, 33, 1);
  p.c_format = Format::bf16;
  p.bias.assign(p.n, 0.0f);
  p.bias[0] = -1.0f;            // 0
  p.bias[1] = 0x1p-8f;          // tie to even, down
  p.bias[2] = 0x1.8p-7f;        // tie to even, up
  p.bias[3] = 0x1.fffffep127f;  // rounds to infinity
  p.bias[32] = kNan;
  const std::vector<std::uint8_t> c = run(kernel(), p);
  for (std::size_t m = 0; m < p.m; ++m) {
    const auto at = [&](std::size_t n) { return bits_at(Format::bf16, c, m * p.n + n); };
    EXPECT_EQ(at(0), 0x0000u);
    EXPECT_EQ(at(1), 0x3F80u);
    EXPECT_EQ(at(2), 0x3F82u);
    EXPECT_EQ(at(3), 0x7F80u);
    EXPECT_EQ(at(4), 0x3F80u);
    EXPECT_EQ(at(32), 0x7FC0u);
  }
  p.bias.assign(p.n, 0.0f);
  p.weight_scale.data = {0x1.8p-133f};  // denormal results are kept
  EXPECT_EQ(bits_at(Format::bf16, run(kernel(), p), 5), 0x0002u);
}

// Rows [first, first + rows) of `pool`, as a product of its own.
Product some_rows(const Product& pool, std::size_t first, std::size_t rows) {
  Product p = pool;
  p.m = rows;
  const std::size_t row_bytes = pool.k * bytes_of(pool.activation_format);
  p.activations.assign(
      pool.activations.begin() + static_cast<std::ptrdiff_t>(first * row_bytes),
      pool.activations.begin() + static_cast<std::ptrdiff_t>((first + rows) * row_bytes));
  p.activation_scale.data.assign(
      pool.activation_scale.data.begin() +
          static_cast<std::ptrdiff_t>(first * pool.activation_scale.index_stride),
      pool.activation_scale.data.begin() +
          static_cast<std::ptrdiff_t>((first + rows) * pool.activation_scale.index_stride));
  return p;
}

// Computes a pool of 512 rows at once, then the same rows in calls of 1 to 512 rows from any
// position, with the strips split anywhere and in groups of any size, until `outputs` outputs were
// compared; all must have the bits of the first. Two rows of the pool are held against the model.
void expect_same_bits(const GemmKernel& kernel, std::span<const std::size_t> depths,
                      std::size_t outputs) {
  std::mt19937 random(3);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  constexpr std::size_t kRows[] = {1,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,  11,  12,  13,
                                   16, 17, 22, 31, 33, 47, 48, 49, 64, 97, 128, 200, 300, 512};
  std::size_t compared = 0;
  for (std::size_t round = 0; compared < outputs; ++round) {
    Product pool;
    pool.weight_format = kWeights[round % std::size(kWeights)];
    pool.activation_format =
        kernel.arithmetic == Arithmetic::fma && round % 2 == 0 ? Format::f32 : Format::bf16;
    if (!takes(kernel, pool.activation_format, pool.weight_format)) continue;
    const std::size_t n = std::vector<std::size_t>{256, 200, 33}[below(3)];
    pool.k_block = std::vector<std::size_t>{128, 64, 32}[below(3)];
    pool.resize(512, n, depths[round % depths.size()]);
    fill(pool, random, false);
    pool.activation_scale.index_stride = pool.k_blocks(), pool.activation_scale.block_stride = 1;
    pool.activation_scale.reach(pool.m, pool.k_blocks());
    for (float& x : pool.activation_scale.data) x = any_scale(random);
    const auto weights = packed_weights(pool);
    const std::vector<std::uint8_t> whole = run(kernel, pool, *weights);
    const Model model(pool);
    for (const std::size_t row : {below(512), below(512)}) {
      for (std::size_t column = 0; column < n; ++column) {
        ASSERT_EQ(bits_at(Format::f32, whole, row * n + column),
                  model.stored(model.output(row, column)))
            << pool << ", output (" << row << ", " << column << ")";
      }
    }
    for (const std::size_t rows : kRows) {
      const std::size_t first = below(512 - rows + 1);
      Product part = some_rows(pool, first, rows);
      part.cuts = {0, below(part.strips() + 1), part.strips()};
      part.group = 1 + below(8);
      const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(first * n * sizeof(float));
      const std::vector<std::uint8_t> expected(
          begin, begin + static_cast<std::ptrdiff_t>(rows * n * sizeof(float)));
      ASSERT_EQ(difference(part, run(kernel, part, *weights), expected), "")
          << part << ", rows from " << first;
      compared += rows * n;
    }
  }
  ::testing::Test::RecordProperty("outputs", std::to_string(compared));
}

TEST_P(Gemm, SameBitsWhateverTheBatchThePositionAndTheSplit) {
  constexpr std::size_t kDepths[] = {2, 35, 129, 1, 100, 130};
  expect_same_bits(kernel(), std::span(kDepths, is_specification() ? 1 : 6),
                   is_specification() ? 100'000 : 1'000'000);
}

TEST_P(GemmSlow, SameBitsInTwentyMillionOutputs) {
  constexpr std::size_t kDepths[] = {1, 2, 35, 100, 129, 1003, 1022, 4096};
  expect_same_bits(kernel(), std::span(kDepths, is_specification() ? 3 : std::size(kDepths)),
                   20'000'000);
}

TEST_P(GemmSlow, ManyRandomProductsAreOrderC) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(rc::check([&] {
      const Product p = any_product(kernel(), is_specification() ? 1'000'000 : 10'000'000);
      RC_LOG() << p;
      RC_ASSERT(difference(p, run(kernel(), p), Model(p).c()) == "");
    }));
  }
}

}  // namespace
}  // namespace octavo::kernels::testing
