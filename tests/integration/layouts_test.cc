// Every published way to lay scales over codes, dequantized.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

constexpr std::string_view kBlock128 =
    R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";

// How one weight of `slices` matrices is stored, and the block that its scales mean.
struct Layout {
  const char* what;
  const char* weight;
  const char* scale;
  const char* scale_dtype;  // U8: exponent bytes
  Dims shape;
  Dims scale_shape;
  std::uint64_t block_rows;
  std::uint64_t block_cols;
  bool per_slice;  // the scales of each slice are its own
};

std::uint64_t product(const Dims& shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;
  return count;
}

Tensor scale_tensor(const Layout& layout, const std::vector<float>& scales) {
  const std::string dtype = layout.scale_dtype;
  if (dtype != "U8" && dtype != "F8_E8M0") return make_tensor(dtype, layout.scale_shape, scales);
  Tensor tensor = e8m0_tensor(layout.scale_shape, scales);
  tensor.dtype = dtype;
  return tensor;
}

TEST(Layouts, EveryPublishedOneDequantizes) {
  const std::vector<Layout> layouts = {
      {"per tensor, 0-d", "a.weight", "a.weight_scale_inv", "F32", {200, 300}, {}, 200, 300, false},
      {"per tensor, (1)", "a.weight", "a.weight_scale", "BF16", {200, 300}, {1}, 200, 300, false},
      {"per tensor, (1, 1)",
       "a.weight",
       "a.weight_scale",
       "F16",
       {200, 300},
       {1, 1},
       200,
       300,
       false},
      {"per channel", "a.weight", "a.weight_scale", "F32", {200, 300}, {200, 1}, 1, 300, false},
      {"per channel, 1-D", "a.weight", "a.weight_scale", "F32", {200, 300}, {200}, 1, 300, false},
      {"blocks", "a.weight", "a.scale", "F8_E8M0", {200, 300}, {2, 3}, 128, 128, false},
      {"exponent bytes",
       "a.weight",
       "a.weight_scale_inv",
       "U8",
       {200, 320},
       {200, 10},
       1,
       32,
       false},
      {"experts, blocks",
       "x.experts.gate_up_proj",
       "x.experts.gate_up_proj_scale_inv",
       "F32",
       {3, 200, 300},
       {3, 2, 3},
       128,
       128,
       true},
      {"experts, one each",
       "x.experts.down_proj",
       "x.experts.down_proj_scale_inv",
       "F32",
       {3, 200, 300},
       {3, 1, 1},
       200,
       300,
       true},
      {"experts, old plural",
       "x.experts.down_proj",
       "x.experts.down_proj_scales_inv",
       "F32",
       {3, 200, 300},
       {3, 2, 3},
       128,
       128,
       true},
      {"experts, one for all",
       "x.experts.down_proj",
       "x.experts.down_proj_scale_inv",
       "F32",
       {3, 200, 300},
       {},
       200,
       300,
       false},
  };
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.what);
    const Extent matrix{layout.shape[layout.shape.size() - 2], layout.shape.back()};
    const std::uint64_t slices = product(layout.shape) / matrix.count();
    const Extent grid = grid_of(matrix, layout.block_rows, layout.block_cols);
    const std::vector<float> scales = power_of_two_scales(product(layout.scale_shape));
    for (const auto& [dtype, format] :
         std::map<std::string, Fp8>{{"F8_E4M3", Fp8::e4m3fn}, {"F8_E5M2", Fp8::e5m2}}) {
      const Bytes codes = random_codes({slices * matrix.rows, matrix.cols}, format, 1);
      std::vector<float> values;
      for (std::uint64_t s = 0; s < slices; ++s) {
        const std::vector<float> slice = dequantize(
            std::span(codes).subspan(s * matrix.count(), matrix.count()), format, matrix,
            std::span(scales).subspan(layout.per_slice ? s * grid.count() : 0, grid.count()),
            layout.block_rows, layout.block_cols);
        values.insert(values.end(), slice.begin(), slice.end());
      }
      const TempDir dir;
      write_model(dir / "in",
                  {{layout.weight, {dtype, layout.shape, codes}},
                   {layout.scale, scale_tensor(layout, scales)}},
                  kBlock128);
      const Outcome run = run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string()});
      ASSERT_EQ(run.status, 0) << run.err;
      const Tensors out = read_model(dir / "out").tensors;
      EXPECT_EQ(out.size(), 1u);
      EXPECT_TRUE(out.at(layout.weight) == make_tensor("BF16", layout.shape, values)) << dtype;
    }
  }
}

TEST(Layouts, ActivationScalesGoWithTheWeight) {
  const Fp8Weight weight = fp8_weight({256, 256}, 1);
  const Tensor scalar = make_tensor("F32", {}, std::vector{0.5f});
  const TempDir dir;
  write_model(dir / "in",
              {{"a.weight", weight.codes},
               {"a.weight_scale_inv", weight.scales},
               {"a.activation_scale", scalar},
               {"b.activation_scale", scalar}},
              kBlock128);
  const Outcome run = run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string()});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(read_model(dir / "out").tensors,
            (Tensors{{"a.weight", as_bf16(weight)}, {"b.activation_scale", scalar}}));
}

TEST(Layouts, ScalesThatAreNotFiniteStop) {
  const Fp8Weight weight = fp8_weight({256, 256}, 1, std::vector{1.0f, HUGE_VALF, 1.0f, 1.0f});
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", weight.codes}, {"a.weight_scale_inv", weight.scales}},
              kBlock128);
  const Outcome run = run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string()});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(only_line(run).find("a.weight_scale_inv: scale 1 of a.weight is inf"),
            std::string::npos)
      << run.err;
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

}  // namespace
}  // namespace octavo::tests
