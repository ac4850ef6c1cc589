#include "octavo/quant/scale_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octavo {
namespace {

using ::testing::HasSubstr;

constexpr std::nullopt_t kNone = std::nullopt;
constexpr BlockSize k128{128, 128};
constexpr BlockSize k32{32, 32};

struct Case {
  const char* what;
  Shape weight;
  Shape scale;
  std::optional<BlockSize> configured;
  bool exponents;
  std::optional<ScaleLayout> expected;  // none: refused
};

const Case kCases[] = {
    {"DeepSeek kv_a_proj", {576, 7168}, {5, 56}, k128, false, ScaleLayout{k128, 1, 5, 56}},
    {"without a configured block", {576, 7168}, {5, 56}, kNone, false, ScaleLayout{k128, 1, 5, 56}},
    {"128 + 64 rows, not 96 + 96", {192, 128}, {2, 1}, k128, false, ScaleLayout{k128, 1, 2, 1}},
    {"blocks of 32", {96, 64}, {3, 2}, k32, false, ScaleLayout{k32, 1, 3, 2}},
    {"ragged in both directions", {129, 257}, {2, 3}, k128, false, ScaleLayout{k128, 1, 2, 3}},
    {"a block that is not square",
     {64, 96},
     {2, 2},
     BlockSize{32, 64},
     false,
     ScaleLayout{{32, 64}, 1, 2, 2}},

    {"0-d", {576, 7168}, {}, k128, false, ScaleLayout{{576, 7168}, 1, 1, 1}},
    {"(1)", {576, 7168}, {1}, k128, false, ScaleLayout{{576, 7168}, 1, 1, 1}},
    {"(1, 1)", {576, 7168}, {1, 1}, kNone, false, ScaleLayout{{576, 7168}, 1, 1, 1}},
    {"one for all experts", {4, 8, 16}, {1}, kNone, false, ScaleLayout{{8, 16}, 1, 1, 1}},
    {"(1, 1, 1)", {4, 8, 16}, {1, 1, 1}, kNone, false, ScaleLayout{{8, 16}, 1, 1, 1}},

    {"per row", {576, 7168}, {576}, kNone, false, ScaleLayout{{1, 7168}, 1, 576, 1}},
    {"per row, in a column", {576, 7168}, {576, 1}, k128, false, ScaleLayout{{1, 7168}, 1, 576, 1}},
    {"per expert", {4, 8, 16}, {4}, kNone, false, ScaleLayout{{8, 16}, 4, 1, 1}},
    {"(E, 1, 1)", {4, 8, 16}, {4, 1, 1}, k128, false, ScaleLayout{{8, 16}, 4, 1, 1}},
    {"per expert and row", {4, 8, 16}, {4, 8}, kNone, false, ScaleLayout{{1, 16}, 4, 8, 1}},
    {"per expert and row, in a column",
     {4, 8, 16},
     {4, 8, 1},
     kNone,
     false,
     ScaleLayout{{1, 16}, 4, 8, 1}},
    {"blocks of experts", {4, 200, 300}, {4, 2, 3}, k128, false, ScaleLayout{k128, 4, 2, 3}},
    {"4-D", {2, 3, 200, 300}, {2, 3, 2, 3}, k128, false, ScaleLayout{k128, 6, 2, 3}},

    {"MX", {64, 96}, {64, 3}, kNone, true, ScaleLayout{{1, 32}, 1, 64, 3}},
    {"MX, ragged", {64, 100}, {64, 4}, kNone, true, ScaleLayout{{1, 32}, 1, 64, 4}},
    {"MX beside a configured block",
     {256, 256},
     {256, 8},
     k128,
     true,
     ScaleLayout{{1, 32}, 1, 256, 8}},
    {"MX experts", {4, 64, 96}, {4, 64, 3}, kNone, true, ScaleLayout{{1, 32}, 4, 64, 3}},
    {"MX needs exponents", {64, 96}, {64, 3}, kNone, false, kNone},
    {"1x32 floats as configured",
     {64, 96},
     {64, 3},
     BlockSize{1, 32},
     false,
     ScaleLayout{{1, 32}, 1, 64, 3}},

    {"one row of blocks too few", {576, 7168}, {4, 56}, k128, false, kNone},
    {"one too many", {576, 7168}, {6, 56}, k128, false, kNone},
    {"transposed", {576, 7168}, {56, 5}, k128, false, kNone},
    {"another block than the configured", {192, 128}, {2, 2}, k128, false, kNone},
    {"blocks of 96 are never derived", {192, 192}, {2, 2}, k32, false, kNone},
    {"per column", {8, 16}, {16}, kNone, false, kNone},
    {"per column, in a row", {8, 16}, {1, 16}, kNone, false, kNone},
    {"another number of experts", {4, 200, 300}, {3, 2, 3}, k128, false, kNone},
    {"no experts in the scales", {4, 200, 300}, {2, 3}, k128, false, kNone},
    {"a dimension too many", {200, 300}, {1, 2, 3}, k128, false, kNone},
    {"no scales", {200, 300}, {0}, k128, false, kNone},
    {"an empty weight", {0, 256}, {0, 2}, k128, false, ScaleLayout{{1, 128}, 1, 0, 2}},

    // a block is never larger than its matrix
    {"a block of 2^61 columns",
     {256, 100},
     {2, 1},
     BlockSize{128, std::uint64_t{1} << 61},
     false,
     ScaleLayout{{128, 100}, 1, 2, 1}},
    {"a block of 2^64 - 1 rows",
     {100, 256},
     {1, 2},
     BlockSize{~std::uint64_t{0}, 128},
     false,
     ScaleLayout{{100, 128}, 1, 1, 2}},
    {"blocks taller than each expert",
     {4, 8, 256},
     {4, 1, 2},
     k128,
     false,
     ScaleLayout{{8, 128}, 4, 1, 2}},
    {"MX narrower than its group", {64, 2}, {64, 1}, kNone, true, ScaleLayout{{1, 2}, 1, 64, 1}},
    {"no columns", {256, 0}, {2, 0}, k128, false, ScaleLayout{{128, 1}, 1, 2, 0}},
};

TEST(ScaleLayout, Table) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    const Result<ScaleLayout> got = match_scale(c.weight, c.scale, c.configured, c.exponents);
    ASSERT_EQ(got.has_value(), c.expected.has_value());
    if (!got) {
      EXPECT_EQ(got.error().code, ErrorCode::bad_model);
      continue;
    }
    EXPECT_EQ(to_string(got->block), to_string(c.expected->block));
    EXPECT_EQ(got->slices, c.expected->slices);
    EXPECT_EQ(got->grid_rows, c.expected->grid_rows);
    EXPECT_EQ(got->grid_cols, c.expected->grid_cols);
  }
}

TEST(ScaleLayout, RefusalsSayWhatIsThereAndWhatIsNeeded) {
  const Result<ScaleLayout> got = match_scale({576, 7168}, {4, 56}, k128, false);
  ASSERT_FALSE(got);
  for (const char* part : {"[4, 56]", "[576, 7168]", "128x128", "[5, 56]"}) {
    EXPECT_THAT(got.error().message, HasSubstr(part));
  }
  EXPECT_THAT(got.error().message, ::testing::Not(HasSubstr("no weight_block_size")));
  EXPECT_THAT(match_scale({192, 128}, {3, 1}, kNone, false).error().message,
              HasSubstr("no weight_block_size is given"));
}

TEST(ScaleLayout, BlockAsText) { EXPECT_EQ(to_string(BlockSize{1, 32}), "1x32"); }

}  // namespace
}  // namespace octavo
