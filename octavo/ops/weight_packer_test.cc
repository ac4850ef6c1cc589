#include "octavo/ops/weight_packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/formats/convert.h"
#include "octavo/kernels/select.h"

namespace octavo::ops {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Format kFormats[] = {Format::e4m3fn,   Format::e5m2, Format::e4m3fnuz,
                               Format::e5m2fnuz, Format::bf16, Format::f32};

// Random codes; of the wide formats numbers around 1, some of them tiny.
std::vector<std::uint8_t> random_codes(std::mt19937& random, Format format, std::size_t count) {
  std::vector<std::uint8_t> bytes(count * bytes_per_element(format));
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if (bytes_per_element(format) > 1) {
      const float tiny = random() % 7 == 0 ? 0x1p-41f : 1.0f;
      bits = std::bit_cast<std::uint32_t>(normal(random) * tiny);
      if (format == Format::bf16) bits >>= 16;
    }
    std::memcpy(bytes.data() + i * bytes_per_element(format), &bits, bytes_per_element(format));
  }
  return bytes;
}

std::vector<float> as_f32(Format format, const std::vector<std::uint8_t>& codes) {
  std::vector<float> values(codes.size() / bytes_per_element(format));
  kernels::cast_kernels(Isa::generic)
      .cast({format, codes.data(), Format::f32, values.data(), values.size(), Overflow::special});
  return values;
}

struct Scales {
  BlockSize block;
  Format format;
};

// Layouts of a weight (n, k): none, tensor, row, blocks of several sizes, exponents.
std::vector<std::optional<Scales>> scale_layouts(std::size_t n, std::size_t k) {
  return {std::nullopt,
          Scales{{n, k}, Format::f32},
          Scales{{1, k}, Format::f32},
          Scales{{128, 128}, Format::f32},
          Scales{{128, 128}, Format::e8m0fnu},
          Scales{{1, 32}, Format::e8m0fnu},
          Scales{{48, 64}, Format::f32},
          Scales{{1, 128}, Format::f32},
          Scales{{n, 256}, Format::f32}};
}

struct ScaleMemory {
  std::vector<std::uint8_t> bytes;
  ScaleGrid grid;
  std::vector<float> values;  // (ceil(n / block.rows), ceil(k / block.cols))
};

ScaleMemory make_scales(std::mt19937& random, const std::optional<Scales>& scales, std::size_t n,
                        std::size_t k) {
  ScaleMemory memory;
  if (!scales) return memory;
  const std::size_t cols = ceil_div(k, scales->block.cols);
  const std::size_t count = ceil_div(n, scales->block.rows) * cols;
  for (std::size_t i = 0; i < count; ++i) {
    if (scales->format == Format::e8m0fnu) {
      const auto code = static_cast<std::uint8_t>(100 + random() % 50);
      memory.bytes.push_back(code);
      memory.values.push_back(std::ldexp(1.0f, code - 127));
    } else {
      const float value = 0.001f + static_cast<float>(random() % 1000) * 1e-3f;
      memory.values.push_back(value);
      memory.bytes.resize(memory.bytes.size() + sizeof value);
      std::memcpy(memory.bytes.data() + 4 * i, &value, sizeof value);
    }
  }
  memory.grid = {memory.bytes.data(), cols, scales->block, scales->format};
  return memory;
}

void expect_equal(const PackedWeight& a, const PackedWeight& b) {
  EXPECT_EQ(a.format, b.format);
  EXPECT_EQ(a.n, b.n);
  EXPECT_EQ(a.k, b.k);
  ASSERT_EQ(a.bytes.size(), b.bytes.size());
  EXPECT_EQ(std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()), 0);
  EXPECT_EQ(a.scale.data, b.scale.data);
  EXPECT_EQ(a.scale.width, b.scale.width);
  EXPECT_EQ(a.scale.per_strip, b.scale.per_strip);
  EXPECT_EQ(a.scale.lanes, b.scale.lanes);
}

TEST(WeightPacker, PiecesAreThePackedWhole) {
  std::mt19937 random(3);
  const struct {
    std::size_t n, k;
    std::vector<std::size_t> pieces;
  } cases[] = {{1, 1, {1}},           {128, 33, {128}},  {300, 200, {128, 128, 44}},
               {300, 200, {256, 44}}, {300, 200, {300}}, {384, 7, {128, 256}},
               {129, 130, {128, 1}}};
  for (const Format format : kFormats) {
    for (const auto& c : cases) {
      const std::vector<std::uint8_t> codes = random_codes(random, format, c.n * c.k);
      for (const auto& layout : scale_layouts(c.n, c.k)) {
        const ScaleMemory scales = make_scales(random, layout, c.n, c.k);
        const PackedWeight whole =
            pack_weight({{format, codes.data(), c.n, c.k, c.k}, scales.grid, false});
        for (const int threads : {1, 3}) {
          ThreadPool pool(threads);
          WeightPacker packer(format, c.n, c.k);
          std::size_t row = 0;
          for (const std::size_t rows : c.pieces) {
            packer.add(
                row, {format, codes.data() + row * c.k * bytes_per_element(format), rows, c.k, c.k},
                Context{&pool});
            row += rows;
          }
          expect_equal(packer.finish(scales.grid), whole);
        }
      }
    }
  }
}

TEST(WeightPacker, TakesPiecesInAnyOrder) {
  std::mt19937 random(4);
  constexpr std::size_t kN = 260, kK = 64;
  const std::vector<std::uint8_t> codes = random_codes(random, Format::e4m3fn, kN * kK);
  WeightPacker packer(Format::e4m3fn, kN, kK);
  for (const std::size_t row : {256u, 0u, 128u}) {
    packer.add(row, {Format::e4m3fn, codes.data() + row * kK, std::min<std::size_t>(128, kN - row),
                     kK, kK});
  }
  expect_equal(packer.finish({}),
               pack_weight({{Format::e4m3fn, codes.data(), kN, kK, kK}, {}, false}));
}

TEST(WeightPacker, RefusesPiecesThatDoNotFit) {
  const std::vector<std::uint8_t> codes(300 * 64);
  const auto message = [&](std::size_t row, std::size_t rows, std::size_t cols, Format format) {
    WeightPacker packer(Format::e4m3fn, 300, 64);
    try {
      packer.add(row, {format, codes.data(), rows, cols, cols});
    } catch (const ContractError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(256, 44, 64, Format::e4m3fn), "");
  EXPECT_THAT(message(64, 128, 64, Format::e4m3fn),
              AllOf(StartsWith("WeightPacker::add: given rows 64 to 192"),
                    HasSubstr("whole pieces of 128 rows of (300, 64) in e4m3fn")));
  EXPECT_THAT(message(0, 100, 64, Format::e4m3fn), HasSubstr("rows 0 to 100"));
  EXPECT_THAT(message(256, 45, 64, Format::e4m3fn), HasSubstr("rows 256 to 301"));
  EXPECT_THAT(message(384, 0, 64, Format::e4m3fn), HasSubstr("rows 384 to 384"));
  EXPECT_THAT(message(0, 128, 32, Format::e4m3fn), HasSubstr("of 32 columns"));
  EXPECT_THAT(message(0, 128, 64, Format::e5m2), HasSubstr("in e5m2, expected"));
  EXPECT_THROW(WeightPacker(Format::f16, 1, 1), ContractError);
  EXPECT_THROW(WeightPacker(Format::f32, 1, 0), ContractError);
  EXPECT_THROW(WeightPacker(Format::f32, std::size_t{1} << 40, std::size_t{1} << 40),
               ContractError);
  WeightPacker packer(Format::e4m3fn, 300, 64);
  const float scale = 1;
  EXPECT_THROW(packer.finish({&scale, 2, {1, 48}, Format::f32}), ContractError);
}

TEST(GatherRows, AreCodesTimesScales) {
  std::mt19937 random(5);
  for (const Format format : kFormats) {
    for (const auto& [n, k] : {std::pair<std::size_t, std::size_t>{70, 300}, {300, 33}, {1, 1}}) {
      const std::vector<std::uint8_t> codes = random_codes(random, format, n * k);
      const std::vector<float> values = as_f32(format, codes);
      std::vector<std::int32_t> ids;
      for (std::size_t i = 0; i < 20; ++i) ids.push_back(static_cast<std::int32_t>(random() % n));
      ids.push_back(static_cast<std::int32_t>(n - 1));
      for (const auto& layout : scale_layouts(n, k)) {
        const ScaleMemory scales = make_scales(random, layout, n, k);
        const Operand w{{format, codes.data(), n, k, k}, scales.grid, false};
        const std::size_t stride = k + 3;
        std::vector<float> got(ids.size() * stride, -77.0f);
        std::vector<float> unpacked = got;
        gather_rows(pack_weight(w), ids.data(), ids.size(), got.data(), stride);
        gather_rows(unpacked_weight(w), ids.data(), ids.size(), unpacked.data(), stride);
        ASSERT_EQ(std::memcmp(got.data(), unpacked.data(), got.size() * sizeof(float)), 0);
        for (std::size_t i = 0; i < ids.size(); ++i) {
          const auto row = static_cast<std::size_t>(ids[i]);
          for (std::size_t c = 0; c < stride; ++c) {
            float expected = -77.0f;
            if (c < k) {
              expected = values[row * k + c];
              if (format == Format::bf16 && std::abs(expected) < 0x1p-40f) expected = 0.0f;
              if (layout) {
                expected *= scales.values[row / layout->block.rows * scales.grid.stride +
                                          c / layout->block.cols];
              }
            }
            const float value = got[i * stride + c];
            ASSERT_TRUE(std::isnan(expected) ? std::isnan(value)
                                             : std::bit_cast<std::uint32_t>(value) ==
                                                   std::bit_cast<std::uint32_t>(expected))
                << format_name(format) << " (" << row << ", " << c << "): " << value << ", not "
                << expected;
          }
        }
      }
    }
  }
}

TEST(GatherRows, RefusesRowsThatAreNot) {
  const std::vector<float> x(6);
  const PackedWeight w = pack_weight({{Format::f32, x.data(), 3, 2, 2}, {}, false});
  float row[2];
  for (const std::int32_t id : {-1, 3}) {
    try {
      gather_rows(w, &id, 1, row, 2);
      ADD_FAILURE() << id;
    } catch (const ContractError& error) {
      EXPECT_EQ(std::string(error.what()),
                "gather_rows: given row " + std::to_string(id) + ", expected one below 3");
    }
  }
}

}  // namespace
}  // namespace octavo::ops
