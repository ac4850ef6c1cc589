#include "octavo/checkpoint/quant_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<QuantConfig> read(const std::string& text) {
  return read_quant_config(Json::parse(text), "dir/config.json");
}

Result<QuantConfig> read_member(const std::string& member) {
  return read(R"({"quantization_config": {"quant_method": "fp8", )" + member + "}}");
}

TEST(QuantConfig, DeepSeek) {
  const auto config = read(
      R"({"quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                              "scale_fmt": "ue8m0", "weight_block_size": [128, 64]}, "hidden_size": 7168})");
  ASSERT_TRUE(config);
  EXPECT_TRUE(config->present);
  EXPECT_EQ(config->quant_method, "fp8");
  EXPECT_EQ(config->scale_fmt, "ue8m0");
  ASSERT_TRUE(config->weight_block_size);
  EXPECT_EQ(config->weight_block_size->rows, 128u);
  EXPECT_EQ(config->weight_block_size->cols, 64u);
  EXPECT_THAT(config->skip, IsEmpty());
  EXPECT_EQ(config->skip_key, "");
}

TEST(QuantConfig, None) {
  for (const char* text :
       {"{}", R"({"quantization_config": null})", R"({"text_config": {}})",
        R"({"text_config": null})", R"({"text_config": 3, "quantization_config": "fp8"})"}) {
    const auto config = read(text);
    ASSERT_TRUE(config) << text;
    EXPECT_FALSE(config->present) << text;
  }
}

TEST(QuantConfig, AllFourNamesOfTheSkipList) {
  for (const std::string key :
       {"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"}) {
    const auto config = read_member("\"" + key + R"(": ["lm_head", 3, "re:.*gate", null])");
    ASSERT_TRUE(config);
    EXPECT_EQ(config->skip_key, key);
    EXPECT_THAT(config->skip, ElementsAre("lm_head", "re:.*gate"))
        << "entries as written, other types passed over";
  }
}

TEST(QuantConfig, ASkipListThatIsNoListIsPassedOver) {
  const auto config =
      read_member(R"("modules_to_not_convert": null, "ignored_layers": ["lm_head"])");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->skip_key, "ignored_layers");
  const auto empty = read_member(R"("modules_to_not_convert": [])");
  ASSERT_TRUE(empty);
  EXPECT_THAT(empty->skip, IsEmpty());
}

TEST(QuantConfig, NoBlock) {
  for (const char* member : {R"("weight_block_size": null)", R"("fmt": "e4m3")"}) {
    const auto config = read_member(member);
    ASSERT_TRUE(config);
    EXPECT_TRUE(config->present);
    EXPECT_FALSE(config->weight_block_size);
  }
}

TEST(QuantConfig, ABlockThatIsNone) {
  for (const char* block :
       {"[128]", "[128, 128, 128]", "[]", "128", "\"128x128\"", "[0, 128]", "[128, 0]", "[-1, 128]",
        "[128, 1.5]", "[\"128\", 128]", "[null, 128]", "{\"rows\": 128, \"cols\": 128}", "true"}) {
    const auto config = read_member(std::string("\"weight_block_size\": ") + block);
    ASSERT_FALSE(config) << block;
    EXPECT_EQ(config.error().code, ErrorCode::bad_model);
    EXPECT_THAT(config.error().message, HasSubstr("dir/config.json"));
    EXPECT_THAT(config.error().message, HasSubstr("weight_block_size"));
    EXPECT_EQ(config.error().message.find('\n'), std::string::npos);
  }
}

TEST(QuantConfig, InTheTextConfigOfAMultimodalModel) {
  const auto inside =
      read(R"({"text_config": {"quantization_config": {"weight_block_size": [32, 32]}}})");
  ASSERT_TRUE(inside);
  EXPECT_TRUE(inside->present);
  EXPECT_EQ(inside->weight_block_size->rows, 32u);
  const auto both = read(R"({"quantization_config": {"weight_block_size": [64, 64]},
                            "text_config": {"quantization_config": {"weight_block_size": [32, 32]}}})");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->weight_block_size->rows, 64u) << "the top level counts";
}

TEST(QuantConfig, MembersOfAnotherTypeAreReadLeniently) {
  const auto config =
      read(R"({"quantization_config": {"quant_method": 8, "scale_fmt": null, "fmt": []}})");
  ASSERT_TRUE(config);
  EXPECT_TRUE(config->present);
  EXPECT_EQ(config->quant_method, "");
  EXPECT_EQ(config->scale_fmt, "");
}

TEST(HfQuantConfig, ModelOpt) {
  const auto config = read_hf_quant_config(
      Json::parse(
          R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})"),
      "f");
  ASSERT_TRUE(config);
  EXPECT_TRUE(config->present);
  EXPECT_EQ(config->skip_key, "exclude_modules");
  EXPECT_THAT(config->skip, ElementsAre("lm_head"));
  EXPECT_FALSE(read_hf_quant_config(Json::parse("{}"), "f")->present);
  const auto bad = read_hf_quant_config(Json::parse(R"({"quantization": []})"), "f");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::bad_file);
}

TEST(HfQuantConfig, NamesOfWholeRecipes) {
  const auto read_algo = [](const std::string& algo) {
    return read_hf_quant_config(
               Json::parse(R"({"quantization": {"kv_cache_quant_algo": "FP8", "quant_algo": ")" +
                           algo + "\"}}"),
               "dir/hf_quant_config.json")
        .value();
  };
  const QuantConfig blocks = read_algo("FP8_PB_WO");
  EXPECT_EQ(blocks.file, "hf_quant_config.json");
  EXPECT_EQ(blocks.quant_algo, "FP8_PB_WO");
  EXPECT_EQ(blocks.strategy, "block");
  EXPECT_EQ(blocks.weight_block_size, BlockSize(128, 128));
  EXPECT_EQ(blocks.kv_cache, "FP8");
  EXPECT_EQ(read_algo("FP8").strategy, "tensor");
  EXPECT_EQ(read_algo("FP8_PER_CHANNEL_PER_TOKEN").strategy, "channel");
  EXPECT_EQ(read_algo("NVFP4").strategy, "");
}

std::string group(const std::string& name, const std::string& weights) {
  return "\"" + name + R"(": {"targets": ["Linear"], "weights": )" + weights + "}";
}

TEST(CompressedTensors, OneGroupWhateverItsName) {
  for (const char* structure : {"\"128x64\"", "[128, 64]"}) {
    const auto config = read_member(
        R"("format": "float-quantized", "kv_cache_scheme": {"num_bits": 8, "type": "float"},
           "config_groups": {)" +
        group("FP8_BLOCK", R"({"num_bits": 8, "type": "float", "strategy": "block",
                               "block_structure": )" +
                               std::string(structure) + "}") +
        "}");
    ASSERT_TRUE(config) << structure;
    EXPECT_EQ(config->strategy, "block");
    EXPECT_EQ(config->weight_block_size, BlockSize(128, 64));
    EXPECT_EQ(config->format, "float-quantized");
    EXPECT_EQ(config->kv_cache, "float of 8 bits");
    EXPECT_THAT(config->notes, IsEmpty());
  }
}

const std::string kChannel = R"({"num_bits": 8, "type": "float", "strategy": "channel"})";

TEST(CompressedTensors, OtherStrategies) {
  const auto channel = read_member("\"config_groups\": {" + group("a", kChannel) + "}");
  ASSERT_TRUE(channel);
  EXPECT_EQ(channel->strategy, "channel");
  EXPECT_FALSE(channel->weight_block_size);
  const auto groups =
      read_member("\"config_groups\": {" + group("a", R"({"num_bits": 8, "type": "float",
                                                 "strategy": "group", "group_size": 32})") +
                  "}");
  ASSERT_TRUE(groups);
  EXPECT_EQ(groups->weight_block_size, BlockSize(1, 32));
  const auto bad =
      read_member("\"config_groups\": {" + group("g7", R"({"num_bits": 8, "type": "float",
                                               "strategy": "block", "block_structure": "128"})") +
                  "}");
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message,
              HasSubstr("dir/config.json: block_structure of config group g7"));
}

TEST(CompressedTensors, SeveralGroups) {
  const auto agree = read_member("\"config_groups\": {" + group("a", kChannel) + ", " +
                                 group("b", kChannel) + ", " + group("c", "null") + "}");
  ASSERT_TRUE(agree);
  EXPECT_EQ(agree->strategy, "channel");
  EXPECT_THAT(agree->notes, IsEmpty());
  const auto differ =
      read_member("\"config_groups\": {" + group("a", kChannel) + ", " +
                  group("b", R"({"num_bits": 4, "type": "int", "strategy": "group"})") + "}");
  ASSERT_TRUE(differ);
  EXPECT_EQ(differ->strategy, "");
  EXPECT_THAT(differ->notes,
              ElementsAre("its config_groups differ (a: float 8 bits, channel; b: int 4 bits, "
                          "group)",
                          "config group b is int of 4 bits, not FP8"));
}

TEST(QuantConfig, ExpertDtypeAtEitherLevel) {
  EXPECT_EQ(read_member(R"("expert_dtype": "fp4")")->expert_dtype, "fp4");
  EXPECT_EQ(read(R"({"expert_dtype": "fp4", "quantization_config": {}})")->expert_dtype, "fp4");
  EXPECT_EQ(
      read(R"({"text_config": {"expert_dtype": "fp8"}, "quantization_config": {}})")->expert_dtype,
      "fp8");
}

TEST(WrittenQuantConfig, HasWhatIsReadAndNothingElse) {
  const Json plain = Json::parse(write_quant_config({}, {}));
  EXPECT_EQ(plain,
            Json::parse(R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                   "weight_block_size": [128, 128]})"));

  BlockRecipe recipe{{1, 32}, ScaleRule::deepgemm, ScaleFormat::ue8m0};
  const std::vector<std::string> skip = {"lm_head", "a\"b\\", "model.layers.0.mlp.gate"};
  const std::string text = write_quant_config(recipe, skip);
  EXPECT_EQ(Json::parse(text), Json({{"activation_scheme", "dynamic"},
                                     {"fmt", "e4m3"},
                                     {"quant_method", "fp8"},
                                     {"scale_fmt", "ue8m0"},
                                     {"weight_block_size", {1, 32}},
                                     {"modules_to_not_convert", skip}}));
  const auto again = read(R"({"quantization_config": )" + text + "}");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->skip, skip);
  EXPECT_EQ(again->scale_fmt, "ue8m0");
  EXPECT_TRUE(again->weight_block_size == recipe.block);
}

}  // namespace
}  // namespace octavo
