// DEQ cases about scales: names, dtypes, grids, absence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Extent kSquare{256, 256};

Outcome dequantize_run(const TempDir& dir, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"dequantize", (dir / "in").string(),
                                        (dir / "out").string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_octavo(arguments);
}

nlohmann::json entry_of(const nlohmann::json& inspected, const std::string& name) {
  for (const auto& tensor : inspected.at("tensors")) {
    if (tensor.at("name") == name) return tensor;
  }
  ADD_FAILURE() << name << " is not listed";
  return {};
}

class Deq01 : public ::testing::Test {
 protected:
  void SetUp() override {
    write_model(dir_ / "in",
                {{"a.weight", weight_.codes},
                 {"a.weight_scale_inv", weight_.scales},
                 {"mtp.0.e_proj.weight", {"F8_E4M3", {256, 256}, orphan_}}},
                kFp8Config);
  }
  TempDir dir_;
  Fp8Weight weight_ = fp8_weight(kSquare, 11);
  Bytes orphan_ = random_codes(kSquare, Fp8::e4m3fn, 12);
};

TEST_F(Deq01, MissingScaleStopsBeforePublishing) {
  const Outcome run = dequantize_run(dir_);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(only_line(run),
              AllOf(HasSubstr("mtp.0.e_proj.weight"), HasSubstr("--missing-scale-as-one")));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

TEST_F(Deq01, MissingScaleIsOneWhenAskedFor) {
  const Outcome run = dequantize_run(dir_, {"--missing-scale-as-one", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.json().at("dequantized"), 2);
  EXPECT_THAT(run.json().at("warnings").dump(), HasSubstr("1 weights without a scale"));
  EXPECT_THAT(run.err, HasSubstr("1 weights without a scale"));

  const std::vector<float> values =
      dequantize(orphan_, Fp8::e4m3fn, kSquare, std::vector{1.0f}, 256, 256);
  EXPECT_EQ(read_model(dir_ / "out").tensors,
            (Tensors{{"a.weight", as_bf16(weight_)},
                     {"mtp.0.e_proj.weight", make_tensor("BF16", {256, 256}, values)}}));
}

TEST(Deq02, ScaleSuffixAndExponentBytes) {
  const TempDir dir;
  const std::vector<float> scales = {0x1p-12f, 0x1p-10f, 0x1p-9f,
                                     0x1p-7f};  // bytes 115, 117, 118, 120
  const Fp8Weight weight = fp8_weight(kSquare, 21, scales);
  const Tensor exponents{"F8_E8M0", {2, 2}, {115, 117, 118, 120}};
  write_model(
      dir / "in",
      {{"layers.0.attn.wo_b.weight", weight.codes}, {"layers.0.attn.wo_b.scale", exponents}},
      kPlainConfig);
  const Outcome run = dequantize_run(dir);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(read_model(dir / "out").tensors,
            (Tensors{{"layers.0.attn.wo_b.weight", as_bf16(weight)}}));
}

TEST(Deq02, UnknownScaleNameIsAnErrorAndNoBareCast) {
  for (const char* name : {"layers.0.attn.wo_b.scales", "layers.0.attn.wo_a.scale"}) {
    const TempDir dir;
    const Fp8Weight weight = fp8_weight(kSquare, 22);
    write_model(dir / "in", {{"layers.0.attn.wo_b.weight", weight.codes}, {name, weight.scales}},
                kPlainConfig);
    const Outcome run = dequantize_run(dir);
    EXPECT_EQ(run.status, 1) << name;
    EXPECT_THAT(only_line(run), HasSubstr("layers.0.attn.wo_b.weight"));
    EXPECT_FALSE(fs::exists(dir / "out"));
  }
}

TEST(Deq03, LastBlockRowOfRaggedWeight) {
  const TempDir dir;
  const Extent matrix{576, 7168};
  const Fp8Weight weight = fp8_weight(matrix, 31);
  const std::string module = "model.layers.0.self_attn.kv_a_proj_with_mqa";
  ASSERT_EQ(weight.scales.shape, (Dims{5, 56}));
  write_model(dir / "in",
              {{module + ".weight", weight.codes}, {module + ".weight_scale_inv", weight.scales}},
              kFp8Config);
  const Outcome run = dequantize_run(dir);
  ASSERT_EQ(run.status, 0) << run.err;
  const Tensors out = read_model(dir / "out").tensors;
  EXPECT_EQ(out.size(), 1u);
  EXPECT_TRUE(out.at(module + ".weight") == as_bf16(weight));
}

TEST(Deq04, ScaleGridOfOneRow) {
  const TempDir dir;
  const Extent matrix{128, 512};
  const std::vector<float> scales = {0.5f, 2.0f, 4.0f, 8.0f};
  const Fp8Weight weight = fp8_weight(matrix, 41, scales);
  const std::string module = "model.layers.0.self_attn.indexer.wk";
  write_model(dir / "in",
              {{module + ".weight", weight.codes}, {module + ".weight_scale_inv", weight.scales}},
              kFp8Config);

  const nlohmann::json inspected = run_octavo({"inspect", (dir / "in").string(), "--json"}).json();
  EXPECT_EQ(inspected.at("summary").at("scales"), 1);
  EXPECT_EQ(inspected.at("summary").at("unpaired"), 0);
  const nlohmann::json scale = entry_of(inspected, module + ".weight").at("scale");
  EXPECT_EQ(scale.at("name"), module + ".weight_scale_inv");
  EXPECT_EQ(scale.at("block"), (nlohmann::json{128, 128}));

  const Outcome run = dequantize_run(dir);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(read_model(dir / "out").tensors, (Tensors{{module + ".weight", as_bf16(weight)}}));
}

TEST(Deq05, HalfPrecisionScales) {
  const std::vector<float> scales = {0.5f, 0.75f, 1.25f, 0.015625f};  // exact in F16, BF16 and F32
  const Fp8Weight weight = fp8_weight(kSquare, 51, scales);
  for (const char* dtype : {"F16", "BF16", "F32"}) {
    const TempDir dir;
    write_model(
        dir / "in",
        {{"a.weight", weight.codes}, {"a.weight_scale_inv", make_tensor(dtype, {2, 2}, scales)}},
        kFp8Config);
    EXPECT_THAT(run_octavo({"inspect", (dir / "in").string()}).out,
                HasSubstr(std::string(dtype) + " [2, 2]"));
    const Outcome run = dequantize_run(dir);
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(read_model(dir / "out").tensors, (Tensors{{"a.weight", as_bf16(weight)}})) << dtype;
  }
}

TEST(Deq06, BothNamesAndBothDtypesMeanTheSame) {
  const std::vector<float> scales = power_of_two_scales(4);
  const Fp8Weight weight = fp8_weight(kSquare, 61, scales);
  for (const bool exponents : {false, true}) {
    for (const char* suffix : {".weight_scale", ".weight_scale_inv"}) {
      const TempDir dir;
      const Tensor tensor = exponents ? e8m0_tensor({2, 2}, scales) : weight.scales;
      write_model(dir / "in", {{"a.weight", weight.codes}, {std::string("a") + suffix, tensor}},
                  kFp8Config);
      const Outcome run = dequantize_run(dir);
      ASSERT_EQ(run.status, 0) << run.err;
      EXPECT_EQ(read_model(dir / "out").tensors, (Tensors{{"a.weight", as_bf16(weight)}}))
          << suffix << exponents;
    }
  }
}

TEST(Deq06, TwoNamesMustAgree) {
  const std::vector<float> scales = power_of_two_scales(4);
  const Fp8Weight weight = fp8_weight(kSquare, 62, scales);
  {
    const TempDir dir;
    write_model(dir / "in",
                {{"a.weight", weight.codes},
                 {"a.weight_scale", e8m0_tensor({2, 2}, scales)},
                 {"a.weight_scale_inv", weight.scales}},
                kFp8Config);
    const Outcome run = dequantize_run(dir);
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(read_model(dir / "out").tensors, (Tensors{{"a.weight", as_bf16(weight)}}));
  }
  std::vector<float> other = scales;
  other[3] *= 2;
  const TempDir dir;
  write_model(dir / "in",
              {{"a.weight", weight.codes},
               {"a.weight_scale", make_tensor("F32", {2, 2}, other)},
               {"a.weight_scale_inv", weight.scales}},
              kFp8Config);
  const Outcome run = dequantize_run(dir);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(only_line(run),
              HasSubstr("a.weight_scale_inv and a.weight_scale are both there and differ"));
  EXPECT_FALSE(fs::exists(dir / "out"));
}

TEST(Deq08, BytesWithScalesAreRefused) {
  const TempDir dir;
  const Fp8Weight weight = fp8_weight(kSquare, 81);
  const Tensor bytes{"U8", weight.codes.shape, weight.codes.bytes};
  write_model(dir / "in", {{"w.weight", bytes}, {"w.weight_scale_inv", weight.scales}}, kFp8Config);
  const Outcome refused = dequantize_run(dir);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(only_line(refused),
              AllOf(HasSubstr("w.weight"), HasSubstr("--u8-as-e4m3"),
                    HasSubstr("U8 tensor with a block-scale sibling; looks like FP8 bytes")));
  EXPECT_FALSE(fs::exists(dir / "out"));

  const Outcome run = dequantize_run(dir, {"--u8-as-e4m3"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(read_model(dir / "out").tensors, (Tensors{{"w.weight", as_bf16(weight)}}));
}

TEST(Deq18, WideTensorOfAnFp8ModelStaysWide) {
  const TempDir dir;
  const Fp8Weight weight = fp8_weight(kSquare, 181);
  const Tensor wide = bf16_weight(kSquare, 182);
  const std::string eh_proj = "model.layers.2.eh_proj.weight";
  write_model(dir / "in",
              {{"model.layers.2.mlp.up_proj.weight", weight.codes},
               {"model.layers.2.mlp.up_proj.weight_scale_inv", weight.scales},
               {eh_proj, wide}},
              kFp8Config);
  const nlohmann::json entry =
      entry_of(run_octavo({"inspect", (dir / "in").string(), "--json"}).json(), eh_proj);
  EXPECT_EQ(entry.at("dtype"), "BF16");
  EXPECT_TRUE(entry.at("scale").is_null());
  for (const char* dtype : {"bf16", "f16", "f32"}) {
    const Outcome run = dequantize_run(dir, {"--dtype", dtype, "--overwrite", "--clamp"});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(read_model(dir / "out").tensors.at(eh_proj), wide) << dtype;
  }
}

TEST(Deq20, OverflowOfF16IsCountedAndStops) {
  const TempDir dir;
  // Block row 0: 448 x 156.25 = 70,000 and 1 x 156.25; block row 1: 1 x 2^-26 = 1.5e-8, which F16
  // rounds to zero.
  const std::vector<float> scales = {156.25f, 0x1p-26f};
  const Extent matrix{256, 128};
  Bytes codes(matrix.count(), 0x38);  // 1.0
  codes[5] = 0x7E;
  codes[9] = 0xFE;
  codes[200] = 0x7E;
  const Fp8Weight weight{{"F8_E4M3", {256, 128}, codes},
                         make_tensor("F32", {2, 1}, scales),
                         dequantize(codes, Fp8::e4m3fn, matrix, scales, 128, 128)};
  write_model(dir / "in", {{"big.weight", weight.codes}, {"big.weight_scale_inv", weight.scales}},
              kFp8Config);

  const Outcome failed = dequantize_run(dir, {"--dtype", "f16"});
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(only_line(failed),
              AllOf(HasSubstr("big.weight"), HasSubstr("3 elements"), HasSubstr("--clamp")));
  EXPECT_FALSE(fs::exists(dir / "out"));

  const Outcome clamped = dequantize_run(dir, {"--dtype", "f16", "--clamp", "--json"});
  ASSERT_EQ(clamped.status, 0) << clamped.err;
  const nlohmann::json counts = clamped.json().at("counts").at(0);
  EXPECT_EQ(counts.at("name"), "big.weight");
  EXPECT_EQ(counts.at("overflow"), 3);
  EXPECT_EQ(counts.at("underflow"), 128 * 128);
  std::vector<float> expected = weight.values;
  for (float& value : expected) value = std::clamp(value, -65504.0f, 65504.0f);
  EXPECT_EQ(read_model(dir / "out").tensors,
            (Tensors{{"big.weight", make_tensor("F16", {256, 128}, expected)}}));

  const Outcome plain =
      dequantize_run(dir, {"--overwrite", "--json"});  // BF16 is the default and holds them all
  ASSERT_EQ(plain.status, 0) << plain.err;
  EXPECT_TRUE(plain.json().at("counts").empty());
  EXPECT_EQ(read_model(dir / "out").tensors, (Tensors{{"big.weight", as_bf16(weight)}}));
}

}  // namespace
}  // namespace octavo::tests
