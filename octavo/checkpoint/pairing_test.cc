#include "octavo/checkpoint/pairing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/checkpoint/checkpoint_testing.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using testing::floats;
using ::testing::HasSubstr;
using testing::is_one_line;
using ::testing::IsEmpty;
using testing::RawTensor;
using testing::safetensors_bytes;
using Role = Pairing::Role;

class PairingTest : public testing::DirectoryTest {
 protected:
  Checkpoint open(const std::vector<RawTensor>& tensors) const {
    write("model.safetensors", safetensors_bytes(tensors));
    return open_checkpoint(directory_).value();
  }
  static Role role(const Checkpoint& checkpoint, const Pairing& pairing, std::string_view name) {
    return pairing.roles.at(checkpoint.by_name.find(name)->second);
  }
  // What stops a conversion.
  Error problem(const std::vector<RawTensor>& tensors, const PairingOptions& options = {}) const {
    const Result<Pairing> pairing = pair_scales(open(tensors), options);
    if (!pairing || pairing->problems.empty()) {
      ADD_FAILURE() << "no problem";
      return {};
    }
    EXPECT_EQ(pairing->problems.size(), 1u);
    EXPECT_TRUE(is_one_line(pairing->problems[0].message));
    EXPECT_THAT(pairing->problems[0].message,
                HasSubstr((directory_ / "model.safetensors").string()));
    return to_error(pairing->problems[0]);
  }
};

std::string zeros(std::size_t bytes) { return std::string(bytes, '\0'); }

RawTensor codes(const std::string& name, const std::string& dtype = "F8_E4M3") {
  return {name, dtype, {4, 8}, zeros(32)};
}
RawTensor scale(const std::string& name, float value = 2) {
  return {name, "F32", {1, 1}, floats({value})};
}

TEST(ScaleName, OfAWeightAndOfAnyOtherParameter) {
  EXPECT_EQ(scale_name("model.layers.0.mlp.up_proj.weight"),
            "model.layers.0.mlp.up_proj.weight_scale_inv");
  EXPECT_EQ(scale_name("model.layers.0.mlp.experts.down_proj"),
            "model.layers.0.mlp.experts.down_proj_scale_inv");
}

TEST_F(PairingTest, EveryNameOfAScale) {
  const std::pair<const char*, const char*> names[] = {
      {"m.weight", "m.weight_scale_inv"},
      {"m.weight", "m.weight_scale"},
      {"m.weight", "m.scale"},
      {"m.experts.down_proj", "m.experts.down_proj_scale_inv"},
      {"m.experts.down_proj", "m.experts.down_proj_scales_inv"},
  };
  for (const auto& [weight, scale_of_it] : names) {
    SCOPED_TRACE(scale_of_it);
    const Checkpoint checkpoint = open({codes(weight), scale(scale_of_it)});
    const Result<Pairing> pairing = pair_scales(checkpoint, {});
    ASSERT_TRUE(pairing) << pairing.error().message;
    EXPECT_THAT(pairing->problems, IsEmpty());
    ASSERT_EQ(pairing->weights.size(), 1u);
    EXPECT_EQ(checkpoint.tensors[pairing->weights[0].tensor].info.name, weight);
    EXPECT_EQ(checkpoint.tensors[pairing->weights[0].scale.value()].info.name, scale_of_it);
    EXPECT_EQ(role(checkpoint, *pairing, weight), Role::weight);
    EXPECT_EQ(role(checkpoint, *pairing, scale_of_it), Role::scale);
    EXPECT_EQ(pairing->unpaired_weights, 0u);
    EXPECT_EQ(pairing->unpaired_scales, 0u);
  }
}

TEST_F(PairingTest, EveryTypeOfCodes) {
  const std::pair<const char*, Format> types[] = {{"F8_E4M3", Format::e4m3fn},
                                                  {"F8_E5M2", Format::e5m2},
                                                  {"F8_E4M3FNUZ", Format::e4m3fnuz},
                                                  {"F8_E5M2FNUZ", Format::e5m2fnuz}};
  for (const auto& [dtype, format] : types) {
    const Result<Pairing> pairing =
        pair_scales(open({codes("m.weight", dtype), scale("m.weight_scale_inv")}), {});
    ASSERT_TRUE(pairing);
    ASSERT_EQ(pairing->weights.size(), 1u) << dtype;
    EXPECT_EQ(pairing->weights[0].format, format);
    EXPECT_EQ(pairing->weights[0].shape, (Shape{4, 8}));
  }
}

TEST_F(PairingTest, PackedFp4) {
  // Two codes a byte: 4 rows of 64 in 32 bytes of I8, groups of 32 whatever the config says.
  write("config.json", R"({"quantization_config": {"weight_block_size": [128, 128]}})");
  for (const char* exponents : {"F8_E8M0", "U8"}) {
    const Result<Pairing> pairing = pair_scales(
        open({{"m.weight", "I8", {4, 32}, zeros(128)}, {"m.scale", exponents, {4, 2}, zeros(8)}}),
        {});
    ASSERT_TRUE(pairing);
    ASSERT_EQ(pairing->weights.size(), 1u) << exponents;
    EXPECT_EQ(pairing->weights[0].format, Format::e2m1fn);
    EXPECT_EQ(pairing->weights[0].shape, (Shape{4, 64}));
    EXPECT_EQ(to_string(pairing->weights[0].layout.block), "1x32");
  }
  const Result<Pairing> f4 = pair_scales(open({{"m.weight", "F4", {4, 64}, zeros(128)},
                                               {"m.weight_scale", "F8_E8M0", {4, 2}, zeros(8)}}),
                                         {});
  ASSERT_TRUE(f4);
  ASSERT_EQ(f4->weights.size(), 1u);
  EXPECT_EQ(f4->weights[0].shape, (Shape{4, 64})) << "shapes of F4 count elements";
}

TEST_F(PairingTest, IntegersAreNotFp4) {
  const Error error = problem({{"m.weight", "I8", {4, 8}, zeros(32)}, scale("m.weight_scale")});
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message, HasSubstr("integer"));
}

TEST_F(PairingTest, U8IsReadAsE4m3WhereAsked) {
  const std::vector<RawTensor> tensors = {codes("m.weight", "U8"), scale("m.weight_scale_inv")};
  const Error error = problem(tensors);
  EXPECT_EQ(error.code, ErrorCode::bad_model);
  EXPECT_THAT(error.message, HasSubstr("--u8-as-e4m3"));
  const Result<Pairing> pairing = pair_scales(open(tensors), {.block = {}, .u8_as_e4m3 = true});
  ASSERT_TRUE(pairing);
  ASSERT_EQ(pairing->weights.size(), 1u);
  EXPECT_EQ(pairing->weights[0].format, Format::e4m3fn);
}

TEST_F(PairingTest, Nvfp4IsRefusedByName) {
  // Whichever of the two comes first in the file, and whatever was asked for.
  const RawTensor weight = codes("m.weight", "U8");
  const RawTensor scales = {"m.weight_scale", "F8_E4M3", {4, 1}, zeros(4)};
  const RawTensor global = {"m.weight_scale_2", "F32", {}, floats({1})};
  for (const bool as_e4m3 : {false, true}) {
    for (const auto& tensors : {std::vector{weight, scales, global}, {scales, global, weight}}) {
      const Error error = problem(tensors, {.block = {}, .u8_as_e4m3 = as_e4m3});
      EXPECT_EQ(error.code, ErrorCode::unsupported);
      EXPECT_THAT(error.message, HasSubstr("NVFP4"));
      EXPECT_THAT(error.message, ::testing::Not(HasSubstr("--u8-as-e4m3")));
    }
  }
}

TEST_F(PairingTest, PlainTensorsStayPlain) {
  const Checkpoint checkpoint = open({{"m.weight", "BF16", {2, 2}, zeros(8)},
                                      {"n.weight", "U8", {4}, zeros(4)},
                                      {"gate.tid2eid", "I64", {1}, zeros(8)},
                                      {"norm.scale", "F32", {2}, zeros(8)}});
  const Result<Pairing> pairing = pair_scales(checkpoint, {});
  ASSERT_TRUE(pairing);
  EXPECT_THAT(pairing->weights, IsEmpty());
  EXPECT_THAT(pairing->problems, IsEmpty());
  EXPECT_THAT(pairing->roles, ElementsAre(Role::plain, Role::plain, Role::plain, Role::plain));
}

TEST_F(PairingTest, ActivationScalesBelongToTheirWeight) {
  const Checkpoint checkpoint = open(
      {codes("m.weight"), scale("m.weight_scale_inv"), scale("m.activation_scale"),
       codes("n.weight"), scale("n.weight_scale"), scale("n.input_scale"), scale("o.input_scale")});
  const Result<Pairing> pairing = pair_scales(checkpoint, {});
  ASSERT_TRUE(pairing);
  EXPECT_EQ(role(checkpoint, *pairing, "m.activation_scale"), Role::activation_scale);
  EXPECT_EQ(role(checkpoint, *pairing, "n.input_scale"), Role::activation_scale);
  EXPECT_EQ(role(checkpoint, *pairing, "o.input_scale"), Role::plain);
  EXPECT_EQ(
      pairing->weights[pairing->weight_of[checkpoint.by_name.find("n.weight")->second]].tensor,
      checkpoint.by_name.find("n.weight")->second);
}

TEST_F(PairingTest, OneScaleUnderTwoNames) {
  const Result<Pairing> same = pair_scales(
      open({codes("m.weight"), scale("m.weight_scale_inv"), scale("m.weight_scale")}), {});
  ASSERT_TRUE(same);
  EXPECT_THAT(same->problems, IsEmpty());
  EXPECT_THAT(same->roles, ElementsAre(Role::weight, Role::scale, Role::scale));
  // Equal values in another type and shape.
  const Result<Pairing> types = pair_scales(
      open({codes("m.weight"), scale("m.weight_scale_inv"), {"m.scale", "F8_E8M0", {}, "\x80"}}),
      {});
  ASSERT_TRUE(types);
  EXPECT_THAT(types->problems, IsEmpty());

  const Error error =
      problem({codes("m.weight"), scale("m.weight_scale_inv", 2), scale("m.weight_scale", 0.5f)});
  EXPECT_EQ(error.code, ErrorCode::bad_model);
  EXPECT_THAT(error.message, HasSubstr("m.weight_scale_inv"));
  EXPECT_THAT(error.message, HasSubstr("differ"));
}

TEST_F(PairingTest, TwoNamesThatDifferFarBehind) {
  // More scales than are compared at a time, and only the last one differs.
  constexpr std::uint64_t kRows = 300'000;
  std::vector<float> first(kRows, 1.0f), second = first;
  second.back() = 2;
  const Error error = problem({{"m.weight", "F8_E4M3", {kRows, 1}, zeros(kRows)},
                               {"m.weight_scale_inv", "F32", {kRows, 1}, floats(first)},
                               {"m.weight_scale", "F32", {kRows, 1}, floats(second)}});
  EXPECT_THAT(error.message, HasSubstr("differ"));
}

TEST_F(PairingTest, AWeightWithoutAScale) {
  const Error error = problem({codes("m.weight")});
  EXPECT_EQ(error.code, ErrorCode::bad_model);
  EXPECT_THAT(error.message, HasSubstr("m.weight"));
  EXPECT_THAT(error.message, HasSubstr("--missing-scale-as-one"));
  EXPECT_EQ(pair_scales(open({codes("m.weight")}), {}).unpaired_weights, 1u);

  const Result<Pairing> as_one =
      pair_scales(open({codes("m.weight")}), {.block = {}, .missing_scale_as_one = true});
  ASSERT_TRUE(as_one);
  EXPECT_THAT(as_one->problems, IsEmpty());
  ASSERT_EQ(as_one->weights.size(), 1u);
  EXPECT_FALSE(as_one->weights[0].scale);
  EXPECT_EQ(to_string(as_one->weights[0].layout.block), "4x8");
}

TEST_F(PairingTest, AScaleWithoutAWeight) {
  for (const char* name : {"m.weight_scale_inv", "m.weight_scale", "m.experts.up_proj_scale_inv",
                           "m.experts.up_proj_scales_inv"}) {
    const Error error = problem({scale(name)});
    EXPECT_EQ(error.code, ErrorCode::bad_model) << name;
    EXPECT_THAT(error.message, HasSubstr(name));
  }
  EXPECT_THAT(problem({{"m.scale", "F8_E8M0", {1, 1}, "\x7F"}}).message, HasSubstr("m.scale"));
  EXPECT_EQ(
      pair_scales(open({{"m.weight", "BF16", {2, 2}, zeros(8)}, scale("m.weight_scale_inv")}), {})
          .unpaired_scales,
      1u);
}

TEST_F(PairingTest, ScalesOfTypesThatAreNone) {
  const Error error = problem({codes("m.weight"), {"m.weight_scale_inv", "I32", {1, 1}, zeros(4)}});
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message, HasSubstr("I32"));
}

TEST_F(PairingTest, CodesInAVector) {
  EXPECT_EQ(problem({{"m.weight", "F8_E4M3", {8}, zeros(8)}, scale("m.weight_scale_inv")}).code,
            ErrorCode::unsupported);
}

TEST_F(PairingTest, TheBlockIsTheOptionsElseTheConfigsElse128) {
  const std::vector<RawTensor> tensors = {{"m.weight", "F8_E4M3", {192, 128}, zeros(192 * 128)},
                                          {"m.weight_scale_inv", "F32", {2, 1}, floats({1, 2})}};
  const auto block = [&](const PairingOptions& options) {
    const Result<Pairing> pairing = pair_scales(open(tensors), options);
    return pairing->problems.empty() ? to_string(pairing->weights.at(0).layout.block) : "refused";
  };
  EXPECT_EQ(block({}), "128x128");
  write("config.json", R"({"quantization_config": {"weight_block_size": [96, 128]}})");
  EXPECT_EQ(block({}), "96x128");
  EXPECT_EQ(block({.block = BlockSize{100, 200}}), "100x128");
  write("config.json", R"({"quantization_config": {"weight_block_size": [32, 32]}})");
  EXPECT_EQ(block({}), "refused") << "a ratio of shapes is no block";
  const Error error = problem(tensors);
  EXPECT_EQ(error.code, ErrorCode::bad_model);
  EXPECT_THAT(error.message, HasSubstr("--weight-block-size"));
  EXPECT_THAT(error.message, HasSubstr("m.weight"));
}

TEST_F(PairingTest, WeightAndScaleInDifferentShards) {
  write("a.safetensors", safetensors_bytes({codes("m.weight")}));
  write("b.safetensors", safetensors_bytes({scale("m.weight_scale_inv")}));
  write("model.safetensors.index.json",
        R"({"weight_map": {"m.weight": "a.safetensors", "m.weight_scale_inv": "b.safetensors"}})");
  const Checkpoint checkpoint = open_checkpoint(directory_).value();
  const Result<Pairing> pairing = pair_scales(checkpoint, {});
  ASSERT_TRUE(pairing);
  ASSERT_EQ(pairing->weights.size(), 1u);
  EXPECT_NE(checkpoint.tensors[pairing->weights[0].tensor].shard,
            checkpoint.tensors[*pairing->weights[0].scale].shard);
}

TEST_F(PairingTest, ScalesAreReadFromEveryType) {
  const Checkpoint checkpoint =
      open({{"f32", "F32", {5}, floats({1, -2, 0.1f, HUGE_VALF, 0x1p-149f})},
            {"f16", "F16", {5}, std::string("\x00\x3C\x01\x00\xFF\x7B\x00\x7C\x00\xC0", 10)},
            {"bf16", "BF16", {5}, std::string("\x80\x3F\x01\x00\x7F\x7F\x80\x7F\x00\xC0", 10)},
            {"e8m0", "F8_E8M0", {5}, std::string("\x7F\x00\x01\xFE\x80", 5)},
            {"u8", "U8", {5}, std::string("\x7F\x00\x01\xFE\x80", 5)}});
  const auto read = [&](std::string_view name, std::uint64_t first, std::size_t count) {
    std::vector<float> values(count, -7);
    EXPECT_TRUE(read_scales(checkpoint, *checkpoint.find(name), first, values));
    return values;
  };
  EXPECT_THAT(read("f32", 0, 5), ElementsAre(1, -2, 0.1f, HUGE_VALF, 0x1p-149f));
  EXPECT_THAT(read("f16", 0, 5), ElementsAre(1, 0x1p-24f, 65504, HUGE_VALF, -2));
  EXPECT_THAT(read("bf16", 0, 5), ElementsAre(1, 0x1p-133f, 0x1.fep127f, HUGE_VALF, -2));
  EXPECT_THAT(read("e8m0", 0, 5), ElementsAre(1, 0x1p-127f, 0x1p-126f, 0x1p127f, 2));
  EXPECT_THAT(read("u8", 0, 5), ElementsAre(1, 0x1p-127f, 0x1p-126f, 0x1p127f, 2));
  EXPECT_THAT(read("f32", 2, 1), ElementsAre(0.1f));
  EXPECT_THAT(read("bf16", 3, 2), ElementsAre(HUGE_VALF, -2));
  EXPECT_THAT(read("u8", 4, 1), ElementsAre(2));
  EXPECT_THROW(read("f32", 4, 2), ContractError);
}

// Wider elements than a float are not put into the place of one.
TEST_F(PairingTest, OtherTypesAreNoScales) {
  const Checkpoint checkpoint = open({{"i64", "I64", {2}, std::string(16, '\1')},
                                      {"f64", "F64", {2}, std::string(16, '\1')},
                                      {"c64", "C64", {2}, std::string(16, '\1')},
                                      {"i32", "I32", {2}, std::string(8, '\1')},
                                      {"i8", "I8", {2}, std::string(2, '\1')},
                                      {"bool", "BOOL", {2}, std::string(2, '\1')},
                                      {"f4", "F4", {2}, std::string(1, '\1')}});
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    std::vector<float> values(4, -7);  // two of them between two that stay
    const Result<void> got = read_scales(checkpoint, tensor, 0, std::span(values).subspan(1, 2));
    ASSERT_FALSE(got) << tensor.info.name;
    EXPECT_EQ(got.error().code, ErrorCode::unsupported);
    EXPECT_THAT(got.error().message, ::testing::HasSubstr(tensor.info.name + " ("));
    EXPECT_THAT(values, ElementsAre(-7, -7, -7, -7));
  }
}

}  // namespace
}  // namespace octavo
