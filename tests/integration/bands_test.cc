// Tensors and blocks that do not fit in a band, windows that cut a source block, and the memory
// that all of it takes.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "octavo/base/machine.h"
#include "octavo/checkpoint/bands_internal.h"
#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

Tensors converted(const TempDir& dir, const char* command, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {command, (dir / "in").string(), (dir / "out").string(),
                                        "--overwrite"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome run = run_octavo(arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  return read_model(dir / "out").tensors;
}

void expect_quantized(const Tensors& out, const std::string& name, const Tensor& wide,
                      const Recipe& recipe) {
  const QuantizedTensors expected = expected_quantized(wide, recipe);
  EXPECT_TRUE(out.at(name) == expected.codes) << name;
  EXPECT_TRUE(out.at(name + "_scale_inv") == expected.scales) << name;
}

// Uniform BF16 values, quickly.
Tensor uniform_weight(const Extent& matrix, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor tensor{"BF16", {matrix.rows, matrix.cols}, {}};
  tensor.bytes.reserve(2 * matrix.count());
  for (std::uint64_t i = 0; i < matrix.count(); ++i) {
    const std::uint64_t word = random();
    // Any fraction and sign, exponents 2^-7 to 2^0.
    const auto bits = static_cast<std::uint16_t>((word & 0x80FF) | (120 + (word >> 32) % 8) << 7);
    tensor.bytes.push_back(static_cast<std::uint8_t>(bits & 0xFF));
    tensor.bytes.push_back(static_cast<std::uint8_t>(bits >> 8));
  }
  return tensor;
}

TEST(Bands, BlockLargerThanABand) {
  const TempDir dir;
  const Extent matrix{4096, 3000};
  ASSERT_GT(matrix.count(), kMaxBandElements);
  const Tensor weight = uniform_weight(matrix, 1);
  write_model(dir / "in", {{"a.weight", weight}}, kPlainConfig);
  const Tensors out = converted(dir, "quantize", {"--weight-block-size", "4096,4096"});
  EXPECT_EQ(out.at("a.weight_scale_inv").shape, (Dims{1, 1}));
  expect_quantized(out, "a.weight", weight, {.block_rows = 4096, .block_cols = 4096});
}

TEST(Bands, SeveralBlocksLargerThanABand) {
  const TempDir dir;
  const Tensor weight = uniform_weight({1500, 3400}, 2);
  write_model(dir / "in", {{"a.weight", weight}}, kPlainConfig);
  const Recipe recipe{.block_rows = 1400,
                      .block_cols = 1600};  // 2.24 million elements, and ragged ones beside them
  ASSERT_GT(recipe.block_rows * recipe.block_cols, kMaxBandElements);
  expect_quantized(converted(dir, "quantize", {"--weight-block-size", "1400,1600"}), "a.weight",
                   weight, recipe);
}

TEST(Bands, MatrixWiderThanABand) {
  const TempDir dir;
  const Extent matrix{2, 3'000'000};
  ASSERT_GT(matrix.cols, kMaxBandElements);
  const Tensor weight = uniform_weight(matrix, 3);
  write_model(dir / "in", {{"a.weight", weight}}, kPlainConfig);
  const Tensors out = converted(dir, "quantize");
  expect_quantized(out, "a.weight", weight, {});

  fs::rename(dir / "out", dir / "narrow");
  fs::remove_all(dir / "in");
  fs::rename(dir / "narrow", dir / "in");
  const std::vector<float> values = dequantize(out.at("a.weight").bytes, Fp8::e4m3fn, matrix,
                                               values_of(out.at("a.weight_scale_inv")), 128, 128);
  EXPECT_TRUE(converted(dir, "dequantize").at("a.weight") ==
              make_tensor("BF16", weight.shape, values));
}

TEST(Bands, OneScaleForAWideMatrix) {
  const Extent matrix{3, 2'500'000};
  const Bytes codes = random_codes(matrix, Fp8::e4m3fn, 4);
  const std::vector<float> scale = {0.0123f};
  const std::vector<float> values =
      dequantize(codes, Fp8::e4m3fn, matrix, scale, matrix.rows, matrix.cols);
  const TempDir dir;
  write_model(dir / "in",
              {{"a.weight", {"F8_E4M3", {3, 2'500'000}, codes}},
               {"a.weight_scale", make_tensor("F32", {}, scale)}},
              R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": null}})");
  EXPECT_TRUE(converted(dir, "dequantize").at("a.weight") ==
              make_tensor("BF16", {3, 2'500'000}, values));
}

// A source whose blocks do not lie as the new ones do: values through the source's own scales,
// quantized anew.
struct SourceLayout {
  const char* what;
  Dims scale_shape;
  std::uint64_t block_rows;
  std::uint64_t block_cols;
};

TEST(Requantize, FromOtherScales) {
  const Extent matrix{1024, 1280};
  const std::vector<SourceLayout> layouts = {{"per channel", {1024, 1}, 1, 1280},
                                             {"per channel, 1-D", {1024}, 1, 1280},
                                             {"per tensor, 0-d", {}, 1024, 1280},
                                             {"per tensor, 1x1", {1, 1}, 1024, 1280},
                                             {"blocks of 96x160", {11, 8}, 96, 160}};
  const Bytes codes = random_codes(matrix, Fp8::e4m3fn, 5);
  for (const SourceLayout& layout : layouts) {
    SCOPED_TRACE(layout.what);
    std::uint64_t count = 1;
    for (const std::uint64_t extent : layout.scale_shape) count *= extent;
    const std::vector<float> scales = distinct_scales(count);
    const std::vector<float> values =
        dequantize(codes, Fp8::e4m3fn, matrix, scales, layout.block_rows, layout.block_cols);
    const TempDir dir;
    write_model(
        dir / "in",
        {{"a.weight", {"F8_E4M3", {1024, 1280}, codes}},
         {"a.weight_scale", make_tensor("F32", layout.scale_shape, scales)}},
        R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [96, 160]}})");
    const Tensor wide = make_tensor("F32", {1024, 1280}, values);
    expect_quantized(converted(dir, "quantize", {"--requantize"}), "a.weight", wide, {});
    // 100 and 96, 72 and 160: windows begin inside a source block, in both directions.
    expect_quantized(converted(dir, "quantize", {"--requantize", "--weight-block-size", "100,72"}),
                     "a.weight", wide, {.block_rows = 100, .block_cols = 72});
  }
}

TEST(Requantize, WideWindowsBeginInsideASourceBlock) {
  // Rows of 600,000 and blocks 8 high: a band holds 43 blocks of 6,100 columns, so it begins where
  // no source block does.
  const Extent matrix{8, 600'000};
  const std::uint64_t source_cols = 1000;
  const Bytes codes = random_codes(matrix, Fp8::e4m3fn, 6);
  const Extent grid = grid_of(matrix, 8, source_cols);
  const std::vector<float> scales = distinct_scales(grid.count());
  const std::vector<float> values = dequantize(codes, Fp8::e4m3fn, matrix, scales, 8, source_cols);
  const TempDir dir;
  write_model(
      dir / "in",
      {{"a.weight", {"F8_E4M3", {8, 600'000}, codes}},
       {"a.weight_scale_inv", make_tensor("F32", {grid.rows, grid.cols}, scales)}},
      R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 1000]}})");
  expect_quantized(converted(dir, "quantize", {"--requantize", "--weight-block-size", "8,6100"}),
                   "a.weight", make_tensor("F32", {8, 600'000}, values),
                   {.block_rows = 8, .block_cols = 6100});
}

// Packed FP4: two codes a byte, the low nibble first, a scale for each row and 32 columns.
struct Fp4Weight {
  Tensor codes;
  Tensor scales;
  std::vector<float> values;
};

Fp4Weight fp4_weight(const Extent& matrix, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const Extent grid{matrix.rows, matrix.cols / 32};
  const std::vector<float> scales = power_of_two_scales(grid.count());
  Fp4Weight weight{
      {"I8", {matrix.rows, matrix.cols / 2}, {}}, e8m0_tensor({grid.rows, grid.cols}, scales), {}};
  for (std::uint64_t i = 0; i < matrix.count() / 2; ++i) {
    const auto byte = static_cast<std::uint8_t>(random() & 0xFF);
    weight.codes.bytes.push_back(byte);
    const float scale = scales[2 * i / matrix.cols * grid.cols + 2 * i % matrix.cols / 32];
    weight.values.push_back(static_cast<float>(decode_e2m1(byte & 15)) * scale);
    weight.values.push_back(static_cast<float>(decode_e2m1(byte >> 4)) * scale);
  }
  return weight;
}

TEST(Fp4, DequantizedAndRequantized) {
  const TempDir dir;
  const Extent matrix{256, 4096};
  const Fp4Weight weight = fp4_weight(matrix, 7);
  const std::string name = "layers.0.ffn.experts.0.w1.weight";
  write_model(
      dir / "in", {{name, weight.codes}, {"layers.0.ffn.experts.0.w1.scale", weight.scales}},
      R"({"expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})");
  const Tensors wide = converted(dir, "dequantize");
  EXPECT_EQ(wide.size(), 1u);
  EXPECT_TRUE(wide.at(name) == make_tensor("BF16", {256, 4096}, weight.values));
  EXPECT_FALSE(read_model(dir / "out").config.contains("expert_dtype"));

  const Tensor values = make_tensor("F32", {256, 4096}, weight.values);
  expect_quantized(converted(dir, "quantize", {"--requantize"}), name, values, {});
  expect_quantized(converted(dir, "quantize", {"--requantize", "--weight-block-size", "50,70"}),
                   name, values, {.block_rows = 50, .block_cols = 70});
  EXPECT_FALSE(read_model(dir / "out").config.contains("expert_dtype"))
      << "the experts are FP8 now";
}

TEST(Fp4, OddBlocksAreRefused) {
  const TempDir dir;
  const Fp4Weight weight = fp4_weight({64, 64}, 8);
  write_model(dir / "in", {{"a.weight", weight.codes}, {"a.scale", weight.scales}}, kPlainConfig);
  const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string(),
                                  "--requantize", "--weight-block-size", "3,5"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(only_line(run).find("a.weight"), std::string::npos);
  EXPECT_FALSE(fs::exists(dir / "out"));
}

// What a run reports of its memory, within what the help promises; the system grants it no more
// (private writable memory, stacks included).
void expect_bounded(const std::vector<std::string>& arguments) {
  constexpr std::uint64_t kPerThread = 64'000'000;
  constexpr std::uint64_t kConstant = 32'000'000;  // the program, its libraries and headers
  constexpr std::uint64_t kStack = 8 << 20;
  const auto allowed = static_cast<std::uint64_t>(allowed_threads().threads);
  const std::uint64_t limit = (allowed * (kPerThread + kStack) + kConstant) / 1024;
  const Outcome run = run_octavo(arguments, "ulimit -d " + std::to_string(limit) + "; ");
  ASSERT_EQ(run.status, 0) << run.err;
  const std::uint64_t bytes = run.json().at("peak_bytes");
  std::printf("%s: peak %.0f MB, %d threads\n", arguments[0].c_str(),
              static_cast<double>(bytes) / 1e6, static_cast<int>(allowed));
  EXPECT_EQ(run.json().at("threads"), allowed);
  EXPECT_LE(bytes, allowed * kPerThread + kConstant);
  EXPECT_GT(bytes, 0u);
}

class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (built_with_sanitizers()) GTEST_SKIP() << "sanitizers take memory of their own";
    if (fs::space(dir_ / "").available < (std::uint64_t{2} << 30))
      GTEST_SKIP() << "2 GiB of free disk are needed";
  }
  TempDir dir_;
  std::string in_ = (dir_ / "in").string();
  std::string out_ = (dir_ / "out").string();
};

TEST_F(Memory, BoundedWhateverTheSize) {
  const Bytes start = make_tensor("BF16", {1, 2}, std::vector{1.0f, -2.0f}).bytes;
  // 768 MB each: long rows, and few rows that are wider than a band.
  write_sparse_file(dir_ / "in" / "model.safetensors",
                    {{"a.up_proj.weight", "BF16", {24'576, 15'625}, start},
                     {"a.down_proj.weight", "BF16", {96, 4'000'000}, start}});
  expect_bounded({"quantize", in_, out_, "--json"});
}

TEST_F(Memory, BoundedWithAScaleForEveryElement) {
  // Codes, two sets of scales, and the copies that measure the error: all buffers at their largest.
  const Dims shape = {4, 4'200'000};
  ASSERT_GT(shape[1], 2 * kMaxBandElements);
  write_sparse_file(dir_ / "in" / "model.safetensors",
                    {{"a.weight_scale_inv", "F32", shape, {}}, {"a.weight", "F8_E4M3", shape, {}}});
  write_string(dir_ / "in" / "config.json",
               R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [1, 1]}})");
  expect_bounded({"quantize", in_, out_, "--requantize", "--weight-block-size", "1,1",
                  "--measure-error", "--json"});
  expect_bounded({"quantize", in_, out_, "--requantize", "--weight-block-size", "4,4000000",
                  "--measure-error", "--json", "--overwrite"});
  expect_bounded({"dequantize", in_, out_, "--dtype", "f32", "--json", "--overwrite"});
}

}  // namespace
}  // namespace octavo::tests
