// QNT cases about the numbers: zero blocks, ragged edges, small weights, scales that change, values
// that are not finite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Extent kSquare{256, 256};

// Quantizes `tensors` into dir / "out"; the run must succeed.
Tensors quantized(const TempDir& dir, const Tensors& tensors, std::vector<std::string> more = {},
                  std::string_view config = kPlainConfig) {
  write_model(dir / "in", tensors, config);
  std::vector<std::string> arguments = {"quantize", (dir / "in").string(), (dir / "out").string(),
                                        "--overwrite"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome run = run_octavo(arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  return read_model(dir / "out").tensors;
}

Tensors dequantized(const TempDir& dir, const char* dtype) {
  const Outcome run = run_octavo({"dequantize", (dir / "out").string(), (dir / "back").string(),
                                  "--dtype", dtype, "--overwrite"});
  EXPECT_EQ(run.status, 0) << run.err;
  return read_model(dir / "back").tensors;
}

TEST(Qnt01, ZeroBlocks) {
  std::vector<float> values(kSquare.count(), 0.0f);
  values[0] = 1.0f;
  const Tensors source = {{"a.weight", make_tensor("BF16", {256, 256}, values)}};
  for (const Rule rule : kAllRules) {
    for (const bool ue8m0 : {false, true}) {
      SCOPED_TRACE(std::string(rule_name(rule)) + (ue8m0 ? " ue8m0" : " float"));
      const TempDir dir;
      const Tensors out = quantized(
          dir, source, {"--rule", rule_name(rule), "--scale-fmt", ue8m0 ? "ue8m0" : "float"});
      const QuantizedTensors expected =
          expected_quantized(source.at("a.weight"), {.rule = rule, .ue8m0 = ue8m0});
      EXPECT_EQ(out.at("a.weight"), expected.codes);
      EXPECT_EQ(out.at("a.weight_scale_inv"), expected.scales);
      for (const std::uint8_t code : out.at("a.weight").bytes) ASSERT_NE(code & 0x7F, 0x7F);
      for (const float scale : values_of(out.at("a.weight_scale_inv"))) {
        EXPECT_TRUE(std::isfinite(scale) && scale > 0) << scale;
      }
      EXPECT_EQ(dequantized(dir, "bf16").at("a.weight"), source.at("a.weight"));
    }
  }
}

TEST(Qnt02, RaggedShapes) {
  const std::vector<Extent> shapes = {{4544, 768}, {192, 320}, {127, 129}, {1, 1}, {96, 7168}};
  Tensors source;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    source["layers." + std::to_string(i) + ".proj.weight"] = bf16_weight(shapes[i], 200 + i);
  }
  const TempDir dir;
  const Tensors out =
      quantized(dir, source);  // the reader refuses padding between and after tensors
  EXPECT_EQ(out.size(), 2 * shapes.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::string name = "layers." + std::to_string(i) + ".proj.weight";
    const QuantizedTensors expected = expected_quantized(source.at(name), {});
    EXPECT_EQ(out.at(name + "_scale_inv").shape,
              (Dims{(shapes[i].rows + 127) / 128, (shapes[i].cols + 127) / 128}));
    EXPECT_TRUE(out.at(name) == expected.codes) << name;
    EXPECT_TRUE(out.at(name + "_scale_inv") == expected.scales) << name;
  }
}

TEST(Qnt03, SmallWeightsKeepTheirPrecision) {
  std::vector<float> values = gaussian(kSquare, 31);
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  for (float& value : values) value = bf16_value(bf16_bits(value / largest * 1e-4f));
  const Tensors source = {{"a.weight", make_tensor("BF16", {256, 256}, values)}};
  for (const Rule rule :
       {Rule::transformers, Rule::deepseek}) {  // deepgemm has a floor at 1e-4, on purpose
    const TempDir dir;
    const Tensors out = quantized(dir, source, {"--rule", rule_name(rule)});
    const std::vector<float> scales = values_of(out.at("a.weight_scale_inv"));
    const std::vector<float> back = values_of(dequantized(dir, "f32").at("a.weight"));
    double energy = 0;
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      const double scale = scales[i / 256 / 128 * 2 + i % 256 / 128];
      // Half a step of E4M3: 2^-4 of the value where it is normal, 2^-10 of the scale below; then
      // at most three f32 roundings (scale, quotient, product).
      const double bound = std::max(std::fabs(values[i]) * 0x1p-4, scale * 0x1p-10) +
                           std::fabs(values[i]) * 3 * 0x1p-23;
      ASSERT_LE(std::fabs(static_cast<double>(back[i]) - values[i]), bound) << i;
      energy += std::fabs(back[i]);
    }
    EXPECT_GT(energy, 0);
  }
}

TEST(Qnt06, QuantizedSourceIsRefusedOrRequantized) {
  const TempDir dir;
  const Fp8Weight weight = fp8_weight(kSquare, 61);
  write_model(dir / "in", {{"a.weight", weight.codes}, {"a.weight_scale_inv", weight.scales}},
              kFp8Config);
  const Outcome refused = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(only_line(refused), AllOf(HasSubstr("quantized already"), HasSubstr("a.weight"),
                                        HasSubstr("--requantize")));
  EXPECT_FALSE(fs::exists(dir / "out"));

  const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string(),
                                  "--requantize", "--weight-block-size", "64,32"});
  ASSERT_EQ(run.status, 0) << run.err;
  const QuantizedTensors expected = expected_quantized(
      make_tensor("F32", {256, 256}, weight.values), {.block_rows = 64, .block_cols = 32});
  const Model model = read_model(dir / "out");
  EXPECT_EQ(model.tensors,
            (Tensors{{"a.weight", expected.codes}, {"a.weight_scale_inv", expected.scales}}));
  EXPECT_EQ(model.config.at("quantization_config").at("weight_block_size"),
            (nlohmann::json{64, 32}));

  // Reloads: the new block is used.
  const std::vector<float> values =
      dequantize(expected.codes.bytes, Fp8::e4m3fn, kSquare, values_of(expected.scales), 64, 32);
  EXPECT_EQ(dequantized(dir, "f32").at("a.weight"), make_tensor("F32", {256, 256}, values));
}

TEST(Qnt06, WideWeightsUnderAnFp8Config) {
  const TempDir dir;
  const Tensor weight = bf16_weight(kSquare, 62);
  write_model(dir / "in", {{"a.weight", weight}}, kFp8Config);
  const Outcome run = run_octavo(
      {"quantize", (dir / "in").string(), (dir / "out").string(), "--scale-fmt", "ue8m0"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(only_line(run), AllOf(HasSubstr("warning"), HasSubstr("config")));
  const QuantizedTensors expected = expected_quantized(weight, {.ue8m0 = true});
  const Model model = read_model(dir / "out");
  EXPECT_EQ(model.tensors,
            (Tensors{{"a.weight", expected.codes}, {"a.weight_scale_inv", expected.scales}}));
  EXPECT_EQ(model.config.at("quantization_config").at("scale_fmt"), "ue8m0");
  EXPECT_EQ(dequantized(dir, "bf16").size(), 1u);
}

TEST(Qnt07, PowerOfTwoScalesComeWithNewCodes) {
  const TempDir dir;
  const Extent matrix{128, 128};
  const Fp8Weight weight = fp8_weight(matrix, 71, std::vector{0.0123f});
  for (const char* scale_dtype : {"e8m0", "f32"}) {
    write_model(dir / "in", {{"a.weight", weight.codes}, {"a.weight_scale_inv", weight.scales}},
                kFp8Config);
    const Outcome run =
        run_octavo({"quantize", (dir / "in").string(), (dir / "out").string(), "--requantize",
                    "--scale-fmt", "ue8m0", "--scale-dtype", scale_dtype, "--overwrite"});
    ASSERT_EQ(run.status, 0) << run.err;
    const Tensors out = read_model(dir / "out").tensors;
    ASSERT_EQ(values_of(out.at("a.weight_scale_inv")),
              std::vector{0x1p-6f});  // the next power of two above 0.0123
    EXPECT_EQ(out.at("a.weight_scale_inv").dtype,
              scale_dtype == std::string("f32") ? "F32" : "F8_E8M0");
    EXPECT_EQ(
        out.at("a.weight"),
        expected_quantized(make_tensor("F32", {128, 128}, weight.values), {.ue8m0 = true}).codes);

    const std::vector<float> back = values_of(dequantized(dir, "f32").at("a.weight"));
    for (std::size_t i = 0; i < back.size(); ++i) {
      const double before = weight.values[i];
      const double half_step = std::max(std::fabs(before) * 0x1p-4, 0x1p-6 * 0x1p-10);
      ASSERT_LE(std::fabs(back[i] - before), half_step) << i;
    }
  }
}

class Qnt09 : public ::testing::Test {
 protected:
  static constexpr std::size_t kNan = 5 * 256 + 7;
  static constexpr std::size_t kInfinity = 200 * 256 + 201;

  void SetUp() override {
    values_[kNan] = std::numeric_limits<float>::quiet_NaN();
    values_[kInfinity] = std::numeric_limits<float>::infinity();
  }
  TempDir dir_;
  std::vector<float> values_ = gaussian(kSquare, 91);
};

TEST_F(Qnt09, NonFiniteSourceStopsWithTensorAndIndex) {
  write_model(dir_ / "in", {{"a.weight", make_tensor("BF16", {256, 256}, values_)}}, kPlainConfig);
  for (const char* block : {"128,128", "256,256", "1,32"}) {
    const Outcome run = run_octavo({"quantize", (dir_ / "in").string(), (dir_ / "out").string(),
                                    "--weight-block-size", block});
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(only_line(run),
                AllOf(HasSubstr("a.weight[5, 7] is nan"), HasSubstr("--allow-non-finite")))
        << block;
    EXPECT_FALSE(fs::exists(dir_ / "out"));
  }
  values_[kNan] = 0;
  write_model(dir_ / "in", {{"a.weight", make_tensor("BF16", {256, 256}, values_)}}, kPlainConfig);
  const Outcome run = run_octavo({"quantize", (dir_ / "in").string(), (dir_ / "out").string()});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(only_line(run), HasSubstr("a.weight[200, 201] is inf"));
}

TEST_F(Qnt09, AllowedNonFiniteBecomesNanCodesAndSpoilsNoScale) {
  values_[kInfinity + 1] = -std::numeric_limits<float>::infinity();
  write_model(dir_ / "in", {{"a.weight", make_tensor("BF16", {256, 256}, values_)}}, kPlainConfig);
  const Outcome run = run_octavo({"quantize", (dir_ / "in").string(), (dir_ / "out").string(),
                                  "--allow-non-finite", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.json().at("non_finite"), 3);

  std::vector<float> finite = values_;
  for (float& value : finite) {
    if (!std::isfinite(value)) value = 0;
  }
  QuantizedTensors expected = expected_quantized(make_tensor("BF16", {256, 256}, finite), {});
  expected.codes.bytes[kNan] = 0x7F;
  expected.codes.bytes[kInfinity] = 0x7F;
  expected.codes.bytes[kInfinity + 1] = 0xFF;
  EXPECT_EQ(read_model(dir_ / "out").tensors,
            (Tensors{{"a.weight", expected.codes}, {"a.weight_scale_inv", expected.scales}}));
}

}  // namespace
}  // namespace octavo::tests
