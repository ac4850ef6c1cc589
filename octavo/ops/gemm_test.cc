// ops::gemm against order C on row-major operands, bit for bit, and what must not change a bit.
#include "octavo/ops/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "octavo/formats/convert.h"
#include "octavo/kernels/gemm/order_c_testing.h"
#include "octavo/kernels/select.h"

namespace octavo::ops {
namespace {

using kernels::Arithmetic;
using kernels::GemmShape;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

float value_of(Format format, const std::uint8_t* p) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, p, bytes_per_element(format));
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
    case Format::e8m0fnu:
      return decode<Format::e8m0fnu>(static_cast<std::uint8_t>(bits));
    default:
      return decode<Format::e5m2fnuz>(static_cast<std::uint8_t>(bits));
  }
}

// A matrix with scales, in memory of its own.
struct Matrix {
  Format format;
  std::size_t rows, cols, stride;
  bool transposed;
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> scales;
  ScaleGrid grid;

  Operand operand() const {
    Operand o{{format, bytes.data(), rows, cols, stride}, grid, transposed};
    if (!scales.empty()) o.scale.data = scales.data();
    return o;
  }
  float at(std::size_t r, std::size_t c) const {
    const std::size_t i = transposed ? c * stride + r : r * stride + c;
    return value_of(format, bytes.data() + i * bytes_per_element(format));
  }
  float scale(std::size_t r, std::size_t c) const {
    if (scales.empty()) return 1.0f;
    const std::size_t i = r / grid.block.rows * grid.stride + c / grid.block.cols;
    return value_of(grid.format, scales.data() + i * bytes_per_element(grid.format));
  }
};

// Any codes where `all_codes`, NaN and infinities among them; else finite ones around 1.
Matrix random_matrix(std::mt19937& random, Format format, std::size_t rows, std::size_t cols,
                     bool transposed, std::size_t gap, bool all_codes) {
  Matrix m{format, rows, cols, (transposed ? rows : cols) + gap, transposed, {}, {}, {}};
  const std::size_t count = (transposed ? cols : rows) * m.stride;
  m.bytes.resize(count * bytes_per_element(format));
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if (bytes_per_element(format) > 1) {
      bits = std::bit_cast<std::uint32_t>(normal(random));
      if (format == Format::bf16) bits >>= 16;
    } else if (!all_codes &&
               std::isnan(value_of(format, reinterpret_cast<std::uint8_t*>(&bits)) * 0)) {
      bits = 0x11;
    }
    std::memcpy(m.bytes.data() + i * bytes_per_element(format), &bits, bytes_per_element(format));
  }
  return m;
}

void add_scales(std::mt19937& random, Matrix& m, BlockSize block, Format format, std::size_t gap) {
  const std::size_t grid_rows = (m.rows + block.rows - 1) / block.rows;
  m.grid.block = block;
  m.grid.format = format;
  m.grid.stride = (m.cols + block.cols - 1) / block.cols + gap;
  m.scales.resize(grid_rows * m.grid.stride * bytes_per_element(format));
  for (std::size_t i = 0; i < grid_rows * m.grid.stride; ++i) {
    if (format == Format::e8m0fnu) {
      m.scales[i] = static_cast<std::uint8_t>(random() % 9 == 0 ? random() : 120 + random() % 12);
    } else {
      const float s = 0.01f + static_cast<float>(random() % 1000) * 1e-3f;
      std::memcpy(m.scales.data() + i * 4, &s, 4);
    }
  }
}

// What packing does to an element: none but the flush of small bf16 magnitudes (octavo/ops/gemm.h).
float flushed(float x, float below, bool applies) { return applies && std::abs(x) < below ? 0 : x; }

std::size_t narrow(const Matrix& m) {
  const bool whole = m.scales.empty() || m.grid.block.cols >= m.cols;
  return whole ? 128 : std::min<std::size_t>(128, m.grid.block.cols);
}

// Order C over the operands as packing leaves them.
float order_c(const Matrix& a, const Matrix& w, std::size_t m, std::size_t n, const float* bias) {
  const bool fp8 = bytes_per_element(w.format) == 1;
  const float below = fp8 ? 0x1p-100f : w.format == Format::bf16 ? 0x1p-40f : 0.0f;
  const auto x = [&](std::size_t k) {
    return flushed(a.at(m, k), below, a.format == Format::bf16);
  };
  const auto y = [&](std::size_t k) {
    return flushed(w.at(n, k), 0x1p-40f, w.format == Format::bf16);
  };
  const std::size_t block = std::min(narrow(a), narrow(w));
  float tot = kernels::testing::order_c(a.cols, block, x, y, [&](std::size_t kb) {
    return w.scale(n, kb * block) * a.scale(m, kb * block);
  });
  if (bias != nullptr) tot += bias[n];
  return std::isnan(tot) ? std::numeric_limits<float>::quiet_NaN() : tot;
}

struct Result {
  Format format;
  std::size_t stride;
  std::vector<std::uint8_t> bytes;
  bool operator==(const Result&) const = default;
};

Result run(const Matrix& a, const Matrix& w, const PackedWeight* packed, Format c_format,
           std::size_t gap, const GemmOptions& options) {
  Result c{c_format, w.rows + gap, {}};
  c.bytes.assign(a.rows * c.stride * bytes_per_element(c_format), 0xA5);
  const Output output{c_format, c.bytes.data(), c.stride};
  if (packed != nullptr) {
    gemm(a.operand(), *packed, output, options);
  } else {
    gemm(a.operand(), w.operand(), output, options);
  }
  return c;
}

Result expected(const Matrix& a, const Matrix& w, Format c_format, std::size_t gap,
                const float* bias) {
  Result c{c_format, w.rows + gap, {}};
  c.bytes.assign(a.rows * c.stride * bytes_per_element(c_format), 0xA5);
  for (std::size_t m = 0; m < a.rows; ++m) {
    for (std::size_t n = 0; n < w.rows; ++n) {
      auto bits = std::bit_cast<std::uint32_t>(order_c(a, w, m, n, bias));
      if (c_format == Format::bf16) {
        bits = encode<Format::bf16>(std::bit_cast<float>(bits), Rounding::nearest_even,
                                    Overflow::special);
      }
      std::memcpy(c.bytes.data() + (m * c.stride + n) * bytes_per_element(c_format), &bits,
                  bytes_per_element(c_format));
    }
  }
  return c;
}

constexpr Format kOperands[] = {Format::e4m3fn,   Format::e5m2, Format::e4m3fnuz,
                                Format::e5m2fnuz, Format::bf16, Format::f32};

std::vector<Isa> levels() {
  std::vector<Isa> found;
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    if (kernels::is_built(isa) && supports(cpu_features(), isa)) found.push_back(isa);
  }
  return found;
}

// Every way to compute a product on this machine: levels, shapes, arithmetics.
std::vector<GemmOptions> all_ways(Format a, Format w) {
  static const GemmShape kShapes[] = {GemmShape::fused, GemmShape::tiled};
  static const Arithmetic kFma = Arithmetic::fma, kDot = Arithmetic::dot;
  std::vector<GemmOptions> ways;
  for (const Isa isa : levels()) {
    if (isa == Isa::generic) {
      ways.push_back({.isa = isa, .force_isa = true});
      continue;
    }
    for (const GemmShape& shape : kShapes) {
      ways.push_back({.shape = &shape, .arithmetic = &kFma, .isa = isa, .force_isa = true});
      if (isa == Isa::avx512bf16 && a != Format::f32 && w != Format::f32) {
        ways.push_back({.shape = &shape, .arithmetic = &kDot, .isa = isa, .force_isa = true});
      }
    }
  }
  return ways;
}

Matrix any_operand(std::mt19937& random, std::size_t rows, std::size_t k) {
  const Format format =
      *rc::gen::elementOf(std::vector<Format>(std::begin(kOperands), std::end(kOperands)));
  Matrix m = random_matrix(random, format, rows, k, *rc::gen::arbitrary<bool>(),
                           *rc::gen::element<std::size_t>(0, 0, 3), *rc::gen::arbitrary<bool>());
  if (*rc::gen::inRange(0, 5) != 0) {
    const std::size_t block_rows =
        *rc::gen::elementOf(std::vector<std::size_t>{1, rows, 32, 64, 100, 128});
    const std::size_t block_cols =
        *rc::gen::elementOf(std::vector<std::size_t>{k, 32, 64, 128, 256, 1024});
    add_scales(random, m, {block_rows, block_cols}, *rc::gen::element(Format::f32, Format::e8m0fnu),
               *rc::gen::element<std::size_t>(0, 2));
  }
  return m;
}

TEST(Gemm, EqualsOrderCInEveryWay) {
  const bool fine = rc::check("any operands, every way", [] {
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    const std::size_t k = *rc::gen::inRange<std::size_t>(1, 400);
    const Matrix a = any_operand(random, *rc::gen::inRange<std::size_t>(1, 30), k);
    const Matrix w = any_operand(random, *rc::gen::inRange<std::size_t>(1, 150), k);
    const Format c_format = *rc::gen::element(Format::f32, Format::bf16);
    const std::size_t gap = *rc::gen::element<std::size_t>(0, 5);
    std::vector<float> bias(w.rows);
    for (float& b : bias) b = static_cast<float>(random() % 100) / 50 - 1;
    const float* given = *rc::gen::arbitrary<bool>() ? bias.data() : nullptr;
    const Result model = expected(a, w, c_format, gap, given);
    const PackedWeight packed = pack_weight(w.operand());
    for (GemmOptions way : all_ways(a.format, w.format)) {
      way.bias = given;
      RC_ASSERT(run(a, w, &packed, c_format, gap, way) == model);
      RC_ASSERT(run(a, w, nullptr, c_format, gap, way) == model);
    }
  });
  EXPECT_TRUE(fine);
}

TEST(Gemm, OfBackwardProducts) {
  std::mt19937 random(2);
  const std::size_t tokens = 150, in = 70, out = 90;
  const Matrix x = random_matrix(random, Format::e4m3fn, tokens, in, false, 0, false);
  const Matrix w = random_matrix(random, Format::e4m3fn, out, in, false, 0, false);
  const Matrix g = random_matrix(random, Format::e5m2, tokens, out, false, 0, false);
  const auto turned = [](Matrix m) {
    std::swap(m.rows, m.cols);
    m.transposed = true;
    return m;
  };
  for (const auto& [a, b] : {std::pair{g, turned(w)}, std::pair{turned(g), turned(x)}}) {
    const Result model = expected(a, b, Format::f32, 0, nullptr);
    const PackedWeight packed = pack_weight(b.operand());
    for (const GemmOptions& way : all_ways(a.format, b.format)) {
      EXPECT_EQ(run(a, b, &packed, Format::f32, 0, way), model);
      EXPECT_EQ(run(a, b, nullptr, Format::f32, 0, way), model);
    }
  }
}

// The bits of a row do not depend on how many rows there are, on where it stands among them, on
// the pool or on the way.
void compare_rows(const std::vector<std::size_t>& row_counts, std::size_t n, std::size_t k,
                  std::size_t at_least) {
  std::mt19937 random(3);
  std::size_t most = 0;
  for (const std::size_t m : row_counts) most = std::max(most, m);
  Matrix all = random_matrix(random, Format::e4m3fn, most, k, false, 0, false);
  add_scales(random, all, {1, 128}, Format::f32, 0);
  Matrix w = random_matrix(random, Format::e4m3fn, n, k, false, 0, false);
  add_scales(random, w, {128, 128}, Format::f32, 0);
  const PackedWeight packed = pack_weight(w.operand());
  const Result whole = run(all, w, &packed, Format::f32, 0, {});
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3), ThreadPool(7)};
  std::vector<GemmOptions> ways = {{}};
  for (const GemmOptions& way : all_ways(all.format, w.format)) {
    if (way.isa != Isa::generic) ways.push_back(way);
  }
  std::size_t compared = 0, calls = 0;
  for (std::size_t i = 0; compared < at_least; i = (i + 1) % (ways.size() * row_counts.size())) {
    const std::size_t m = row_counts[i / ways.size()], first = random() % (most - m + 1);
    GemmOptions& way = ways[i % ways.size()];
    Matrix part = all;
    part.rows = m;
    part.bytes.erase(part.bytes.begin(),
                     part.bytes.begin() + static_cast<std::ptrdiff_t>(first * k));
    part.scales.erase(part.scales.begin(), part.scales.begin() + static_cast<std::ptrdiff_t>(
                                                                     first * all.grid.stride * 4));
    const Context context{&pools[calls++ % std::size(pools)]};
    way.context = &context;
    const Result c = run(part, w, &packed, Format::f32, 0, way);
    ASSERT_EQ(std::memcmp(c.bytes.data(), whole.bytes.data() + first * n * 4, c.bytes.size()), 0)
        << m << " rows from " << first << ", way " << i % ways.size();
    compared += m * n;
  }
}

TEST(Gemm, RowsDoNotKnowOneAnother) {
  compare_rows({1, 2, 5, 12, 49, 130, 512, 530, 1100}, 100, 130, 1'600'000);
}

TEST(GemmSlow, RowsDoNotKnowOneAnother) {
  std::vector<std::size_t> rows;
  for (std::size_t m = 1; m <= 64; ++m) rows.push_back(m);
  for (const std::size_t m : {96u, 127u, 128u, 129u, 200u, 256u, 384u, 511u, 512u, 700u}) {
    rows.push_back(m);
  }
  compare_rows(rows, 800, 1003, 20'000'000);
  compare_rows(rows, 257, 4096, 7'000'000);
}

// |C - exact| <= what the roundings of order C can add up to: each of the k products and of the
// blocks' sums is rounded with a relative error of 2^-24, twice for the scale.
TEST(Gemm, StaysWithinTheBoundOfItsRoundings) {
  std::mt19937 random(4);
  for (const std::size_t k : {1u, 127u, 128u, 1000u}) {
    Matrix a = random_matrix(random, Format::e4m3fn, 9, k, false, 0, false);
    Matrix w = random_matrix(random, Format::e4m3fn, 40, k, false, 0, false);
    add_scales(random, a, {1, 128}, Format::f32, 0);
    add_scales(random, w, {128, 128}, Format::f32, 0);
    const Result c = run(a, w, nullptr, Format::f32, 0, {});
    for (std::size_t m = 0; m < a.rows; ++m) {
      for (std::size_t n = 0; n < w.rows; ++n) {
        double exact = 0, magnitude = 0;
        for (std::size_t i = 0; i < k; ++i) {
          const double p = double{a.at(m, i)} * w.at(n, i) * a.scale(m, i) * w.scale(n, i);
          exact += p;
          magnitude += std::abs(p);
        }
        const double steps = static_cast<double>(std::min<std::size_t>(k, 128) + k / 128 + 3);
        const double bound = 1.01 * steps * 0x1p-24 * magnitude;
        float got;
        std::memcpy(&got, c.bytes.data() + (m * c.stride + n) * 4, 4);
        ASSERT_LE(std::abs(got - exact), bound) << k << ": " << m << ", " << n;
      }
    }
  }
}

TEST(Gemm, ZeroWeightsGivePlusZeroAndNanGoesWhereItReaches) {
  const std::size_t k = 200;
  Matrix w{Format::e4m3fn, 3, k, k, false, std::vector<std::uint8_t>(3 * k, 0x00), {}, {}};
  for (std::size_t i = 0; i < k; ++i) w.bytes[k + i] = 0x80;  // -0
  w.bytes[2 * k + 131] = 0x7F;                                // NaN
  std::vector<std::uint8_t> ones(2 * k, 0x38);
  const Matrix a{Format::e4m3fn, 2, k, k, false, ones, {}, {}};
  for (const GemmOptions& way : all_ways(a.format, w.format)) {
    const Result c = run(a, w, nullptr, Format::f32, 0, way);
    for (std::size_t m = 0; m < 2; ++m) {
      std::uint32_t bits[3];
      std::memcpy(bits, c.bytes.data() + m * 12, 12);
      EXPECT_EQ(bits[0], 0u);
      EXPECT_EQ(bits[1], 0u);
      EXPECT_EQ(bits[2], 0x7FC00000u);
    }
  }
}

TEST(Gemm, UnpackingGivesTheCodesBack) {
  std::mt19937 random(5);
  for (const bool transposed : {false, true}) {
    const Matrix w = random_matrix(random, Format::e4m3fn, 77, 131, transposed, 2, true);
    const PackedWeight packed = pack_weight(w.operand());
    std::vector<std::uint8_t> codes(77 * 140, 0xEE);
    unpack_weight(packed, codes.data(), 140);
    for (std::size_t n = 0; n < 77; ++n) {
      for (std::size_t i = 0; i < 131; ++i) {
        ASSERT_EQ(codes[n * 140 + i], w.bytes[transposed ? i * w.stride + n : n * w.stride + i]);
      }
      for (std::size_t i = 131; i < 140; ++i) ASSERT_EQ(codes[n * 140 + i], 0xEE);
    }
  }
}

TEST(Gemm, TwoCallersAtOnce) {
  std::mt19937 random(6);
  const Matrix a = random_matrix(random, Format::bf16, 60, 300, false, 0, false);
  const Matrix w = random_matrix(random, Format::e4m3fn, 200, 300, false, 0, false);
  const Result model = expected(a, w, Format::f32, 0, nullptr);
  const auto work = [&] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(run(a, w, nullptr, Format::f32, 0, {}), model);
    }
  };
  std::thread other(work);
  work();
  other.join();
}

TEST(Gemm, RefusesWithOperationGivenAndExpected) {
  std::vector<float> c(64), scale(8, 1.0f);
  std::vector<std::uint8_t> codes(4096, 0x38);
  const Operand a{{Format::e4m3fn, codes.data(), 2, 96, 96}, {}, false};
  const Operand w{{Format::e4m3fn, codes.data(), 4, 96, 96}, {}, false};
  const Output output{Format::f32, c.data(), 4};
  const auto refused = [&](Operand left, Operand right, Output to, const char* words) {
    try {
      gemm(left, right, to);
      ADD_FAILURE() << "not refused: " << words;
    } catch (const ContractError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(StartsWith("gemm: given "), HasSubstr("expected"), HasSubstr(words)));
    }
    std::fill(c.begin(), c.end(), 0.0f);
  };
  const auto with = [](Operand operand, auto&& change) {
    change(operand);
    return operand;
  };
  refused(with(a, [](Operand& o) { o.matrix.data = nullptr; }), w, output, "a with data null");
  refused(a, with(w, [](Operand& o) { o.matrix.data = nullptr; }), output, "w with data null");
  refused(with(a, [](Operand& o) { o.matrix.cols = 64; }), w, output, "one K");
  refused(with(a, [](Operand& o) { o.matrix.cols = 0; }), w, output, "K = 0");
  refused(with(a, [](Operand& o) { o.matrix.stride = 95; }), w, output, "stride 95");
  refused(a,
          with(w,
               [](Operand& o) {
                 o.transposed = true;
                 o.matrix.stride = 3;
               }),
          output, "stride 3");
  for (const Format format : {Format::f16, Format::e2m1fn, Format::e8m0fnu}) {
    refused(with(a, [&](Operand& o) { o.matrix.format = format; }), w, output, "elements in");
    refused(a, with(w, [&](Operand& o) { o.matrix.format = format; }), output, "elements in");
  }
  refused(with(a,
               [&](Operand& o) {
                 o.matrix.format = Format::bf16;
                 o.matrix.data = codes.data() + 1;
               }),
          w, output, "misaligned bf16");
  const auto scaled = [&](BlockSize block, std::size_t stride, Format format) {
    return with(w, [&](Operand& o) { o.scale = {scale.data(), stride, block, format}; });
  };
  refused(a, scaled({128, 48}, 2, Format::f32), output, "128 x 48");
  refused(a, scaled({0, 128}, 2, Format::f32), output, "0 x 128");
  refused(a, scaled({1, 32}, 2, Format::f32), output, "stride 2");
  refused(a, scaled({1, 32}, 3, Format::bf16), output, "scales in bf16");
  refused(a, w, {Format::f16, c.data(), 4}, "c in f16");
  refused(a, w, {Format::f32, nullptr, 4}, "c null");
  refused(a, w, {Format::f32, c.data(), 3}, "stride 3");
  refused(a, w, {Format::f32, reinterpret_cast<std::uint8_t*>(c.data()) + 2, 4}, "aligned");
  EXPECT_THROW(pack_weight(with(w, [](Operand& o) { o.matrix.data = nullptr; })), ContractError);
  EXPECT_THROW(unpack_weight(pack_weight(w), nullptr, 96), ContractError);
  EXPECT_THROW(unpack_weight(pack_weight(w), codes.data(), 95), ContractError);
}

// Sizes and offsets that no memory has: refused, not wrapped around.
TEST(Gemm, RefusesSizesBeyondMemory) {
  constexpr std::size_t kMost = SIZE_MAX;
  std::vector<float> c(64), scale(8, 1.0f);
  std::vector<std::uint8_t> codes(4096, 0x38);
  const Operand w{{Format::e4m3fn, codes.data(), 4, 96, 96}, {}, false};
  const PackedWeight packed = pack_weight(w);
  const Output output{Format::f32, c.data(), 4};
  struct Sizes {
    std::size_t rows, cols, stride;
    bool transposed;
  };
  for (const auto& [rows, cols, stride, transposed] :
       {Sizes{kMost, 96, 96, false}, Sizes{std::size_t{1} << 57, 128, 128, false},
        Sizes{1, kMost, kMost, false}, Sizes{1, std::size_t{1} << 61, 0, false},
        Sizes{2, 96, kMost, false}, Sizes{4, kMost, 4, true}, Sizes{4, 2, kMost, true}}) {
    const Operand big{{Format::e4m3fn, codes.data(), rows, cols, stride}, {}, transposed};
    EXPECT_THROW(pack_weight(big), ContractError) << rows << " x " << cols;
    EXPECT_THROW(gemm(big, big, output), ContractError) << rows << " x " << cols;
    EXPECT_THROW(gemm(big, packed, output), ContractError) << rows << " x " << cols;
  }
  EXPECT_THROW(gemm(w, packed, {Format::f32, c.data(), kMost}), ContractError);
  Operand scaled = w;
  scaled.scale = {scale.data(), kMost, {1, 96}, Format::f32};
  EXPECT_THROW(gemm(scaled, packed, output), ContractError);
  scaled.scale = {scale.data(), 0, {1, kMost}, Format::f32};  // a scale per row, none apart
  EXPECT_THROW(gemm(scaled, packed, output), ContractError);
}

TEST(Gemm, RefusesPackedWeightsThatAreNotWhole) {
  std::vector<float> c(64);
  std::vector<std::uint8_t> codes(4096, 0x38);
  const Operand a{{Format::e4m3fn, codes.data(), 2, 96, 96}, {}, false};
  const Operand w{{Format::e4m3fn, codes.data(), 4, 96, 96}, {}, false};
  const auto refused = [&](auto&& change) {
    PackedWeight packed = pack_weight(w);
    change(packed);
    EXPECT_THROW(gemm(a, packed, {Format::f32, c.data(), 4}), ContractError);
    EXPECT_THROW(unpack_weight(packed, codes.data(), 96), ContractError);
  };
  PackedWeight taken = pack_weight(w);
  refused([&](PackedWeight& p) { taken = std::move(p); });
  EXPECT_EQ(taken.bytes.size(), 32u * 96);
  refused([](PackedWeight& p) { p.format = Format::f32; });
  refused([](PackedWeight& p) { p.format = Format::f16; });
  refused([](PackedWeight& p) { p.n = 33; });
  refused([](PackedWeight& p) { p.k = 0; });
  refused([](PackedWeight& p) { p.scale.data.clear(); });
  refused([](PackedWeight& p) { p.scale.lanes = true; });
}

TEST(Gemm, RefusesAContextWithoutAPool) {
  std::vector<float> c(64);
  std::vector<std::uint8_t> codes(4096, 0x38);
  const Operand w{{Format::e4m3fn, codes.data(), 4, 96, 96}, {}, false};
  const Context none{nullptr};
  EXPECT_THROW(pack_weight(w, none), ContractError);
  EXPECT_THROW(unpack_weight(pack_weight(w), codes.data(), 96, none), ContractError);
  EXPECT_THROW(gemm(w, w, {Format::f32, c.data(), 4}, {.context = &none}), ContractError);
}

TEST(Gemm, NothingToDo) {
  std::vector<std::uint8_t> codes(96, 0x38);
  const Operand none{{Format::e4m3fn, nullptr, 0, 96, 96}, {}, false};
  const Operand one{{Format::e4m3fn, codes.data(), 1, 96, 96}, {}, false};
  gemm(none, one, {Format::f32, nullptr, 1});
  gemm(one, none, {Format::f32, nullptr, 0});
  gemm(one, pack_weight(none), {Format::f32, nullptr, 0});
}

}  // namespace
}  // namespace octavo::ops
