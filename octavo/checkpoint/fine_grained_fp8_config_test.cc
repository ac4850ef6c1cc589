#include "octavo/checkpoint/fine_grained_fp8_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

FineGrainedFp8Config read(const char* text) {
  const auto config = read_fine_grained_fp8_config(Json::parse(text));
  EXPECT_TRUE(config) << text << ": " << config.error().message;
  return config.value_or(FineGrainedFp8Config{});
}

std::string refusal(const char* text) {
  const auto config = read_fine_grained_fp8_config(Json::parse(text), "config.json");
  EXPECT_FALSE(config) << text;
  if (config) return "";
  EXPECT_EQ(config.error().code, ErrorCode::bad_value);
  return config.error().message;
}

TEST(FineGrainedFp8Config, Defaults) {
  const FineGrainedFp8Config config = read("{}");
  EXPECT_EQ(config, FineGrainedFp8Config{});
  EXPECT_EQ(config.quant_method, "fp8");
  EXPECT_EQ(config.activation_scheme, "dynamic");
  EXPECT_EQ(config.weight_block_size, (BlockSize{128, 128}));
  EXPECT_FALSE(config.dequantize);
  EXPECT_EQ(config.modules_to_not_convert, std::nullopt);
  EXPECT_EQ(config.modules_to_convert, std::nullopt);
  EXPECT_EQ(config.scale_fmt, ScaleFormat::float32);
  EXPECT_TRUE(validate(config));
}

TEST(FineGrainedFp8Config, ReadsEveryMember) {
  EXPECT_EQ(read(R"({"quant_method": "custom", "activation_scheme": "STATIC",
                     "weight_block_size": [64, 32], "dequantize": true, "scale_fmt": "ue8m0",
                     "modules_to_not_convert": ["lm_head"], "modules_to_convert": ["ngram"],
                     "expert_dtype": "fp4", "fmt": "e4m3", "weight_per_tensor": false})"),
            (FineGrainedFp8Config{.quant_method = "custom",
                                  .activation_scheme = "static",
                                  .weight_block_size = BlockSize{64, 32},
                                  .dequantize = true,
                                  .modules_to_not_convert = Names{"lm_head"},
                                  .modules_to_convert = Names{"ngram"},
                                  .scale_fmt = ScaleFormat::ue8m0,
                                  .expert_dtype = "fp4"}));
  EXPECT_EQ(read(R"({"weight_block_size": null})").weight_block_size, std::nullopt);
}

TEST(FineGrainedFp8Config, SkipListUnderItsOtherName) {
  EXPECT_EQ(read(R"({"ignored_layers": ["a"]})").modules_to_not_convert, Names{"a"});
  EXPECT_EQ(
      read(R"({"modules_to_not_convert": null, "ignored_layers": ["a"]})").modules_to_not_convert,
      Names{"a"});
  EXPECT_EQ(
      read(R"({"modules_to_not_convert": [], "ignored_layers": ["a"]})").modules_to_not_convert,
      Names{});
}

TEST(FineGrainedFp8Config, RefusesInTheOrderOfTransformers) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"activation_scheme": "Other"})",
       "config.json: activation_scheme is other, but dynamic or static is expected"},
      {R"({"activation_scheme": 3})", "activation_scheme is 3, but a text is expected"},
      {R"({"weight_block_size": [128]})",
       "config.json: weight_block_size is [128], but two numbers above 0 or null is expected"},
      {R"({"weight_block_size": [1, 2, 3]})", "weight_block_size is [1,2,3]"},
      {R"({"weight_block_size": 128})", "weight_block_size is 128"},
      {R"({"weight_block_size": []})", "weight_block_size is []"},
      {R"({"weight_block_size": [0, 128]})", "weight_block_size is [0,128]"},
      {R"({"weight_block_size": [128, -1]})", "weight_block_size is [128,-1]"},
      {R"({"weight_block_size": [128.0, 128]})", "weight_block_size is [128.0,128]"},
      {R"({"weight_block_size": [18446744073709551615, 1]})", "weight_block_size"},
      {R"({"scale_fmt": "UE8M0"})", "scale_fmt is UE8M0, but float or ue8m0 is expected"},
      {R"({"expert_dtype": "int4"})", "expert_dtype is int4, but fp8 or fp4 is expected"},
      {R"({"dequantize": "yes"})", "dequantize is \"yes\""},
      {R"({"modules_to_not_convert": "lm_head"})", "a list of texts is expected"},
      {R"({"modules_to_convert": [1]})", "a list of texts is expected"},
      {R"([])", "config.json is array, not an object"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(refusal(text), HasSubstr(message)) << text;
  // Each is reported before those after it.
  EXPECT_THAT(refusal(R"({"activation_scheme": "x", "weight_block_size": [1], "scale_fmt": "x"})"),
              HasSubstr("activation_scheme"));
  EXPECT_THAT(refusal(R"({"weight_block_size": [1], "scale_fmt": "x"})"),
              HasSubstr("weight_block_size"));
  EXPECT_THAT(refusal(R"({"scale_fmt": "x", "expert_dtype": "x"})"), HasSubstr("scale_fmt"));
}

TEST(FineGrainedFp8Config, ValidatesWhatAProgramSet) {
  EXPECT_THAT(validate({.activation_scheme = "Dynamic"}).error().message,
              HasSubstr("activation_scheme is Dynamic"));
  EXPECT_THAT(validate({.weight_block_size = BlockSize{128, 0}}).error().message,
              HasSubstr("weight_block_size is [128, 0]"));
  EXPECT_THAT(validate({.expert_dtype = "fp2"}).error().message, HasSubstr("expert_dtype is fp2"));
  EXPECT_TRUE(validate({.activation_scheme = "static", .weight_block_size = std::nullopt}));
}

TEST(FineGrainedFp8Config, JsonHasEveryMember) {
  EXPECT_EQ(to_json_string({.modules_to_not_convert = Names{"lm_head", "\xC3\xA9"},
                            .scale_fmt = ScaleFormat::ue8m0}),
            R"({
  "activation_scheme": "dynamic",
  "dequantize": false,
  "expert_dtype": "fp8",
  "modules_to_convert": null,
  "modules_to_not_convert": [
    "lm_head",
    "\u00e9"
  ],
  "quant_method": "fp8",
  "scale_fmt": "ue8m0",
  "weight_block_size": [
    128,
    128
  ]
}
)");
  for (const char* text :
       {"{}", R"({"weight_block_size": null, "activation_scheme": "static", "dequantize": true})",
        R"({"modules_to_not_convert": [], "modules_to_convert": ["a"], "scale_fmt": "ue8m0"})"}) {
    const FineGrainedFp8Config config = read(text);
    EXPECT_EQ(read_fine_grained_fp8_config(to_json(config)).value(), config) << text;
  }
}

TEST(FineGrainedFp8Config, UpdateSetsWhatExistsAndReturnsTheRest) {
  FineGrainedFp8Config config{.modules_to_not_convert = Names{"a"}};
  const auto rest =
      update(config, Json::parse(R"({"scale_fmt": "ue8m0", "device": "cpu", "dequantize": true})"));
  ASSERT_TRUE(rest);
  EXPECT_EQ(*rest, Json::parse(R"({"device": "cpu"})"));
  EXPECT_EQ(config, (FineGrainedFp8Config{.dequantize = true,
                                          .modules_to_not_convert = Names{"a"},
                                          .scale_fmt = ScaleFormat::ue8m0}));
  // null erases no list; a list replaces.
  ASSERT_TRUE(update(config, Json::parse(R"({"modules_to_not_convert": null})")));
  EXPECT_EQ(config.modules_to_not_convert, Names{"a"});
  ASSERT_TRUE(update(config, Json::parse(R"({"modules_to_not_convert": ["b"]})")));
  EXPECT_EQ(config.modules_to_not_convert, Names{"b"});
  // What is wrong changes nothing.
  const FineGrainedFp8Config before = config;
  EXPECT_FALSE(update(config, Json::parse(R"({"dequantize": false, "scale_fmt": "x"})")));
  EXPECT_EQ(config, before);
}

TEST(FineGrainedFp8Config, MergeKeepsTheCheckpointsConfig) {
  const FineGrainedFp8Config checkpoint{.weight_block_size = BlockSize{64, 64},
                                        .modules_to_not_convert = Names{"lm_head", "gate"},
                                        .scale_fmt = ScaleFormat::ue8m0};
  // Nothing asked for: nothing changes, no list is erased, no note.
  const auto same = merge(checkpoint, {});
  ASSERT_TRUE(same);
  EXPECT_EQ(same->config, checkpoint);
  EXPECT_THAT(same->notes, ElementsAre());

  const auto merged = merge(checkpoint, {.weight_block_size = BlockSize{32, 32},
                                         .dequantize = true,
                                         .modules_to_not_convert = Names{"foo", "gate"},
                                         .modules_to_convert = Names{"embedding"}});
  ASSERT_TRUE(merged);
  EXPECT_TRUE(merged->config.dequantize);
  EXPECT_EQ(merged->config.modules_to_not_convert, (Names{"lm_head", "gate", "foo"}));
  EXPECT_EQ(merged->config.weight_block_size, (BlockSize{64, 64}));
  EXPECT_EQ(merged->config.scale_fmt, ScaleFormat::ue8m0);
  EXPECT_EQ(merged->config.modules_to_convert, std::nullopt);
  EXPECT_THAT(
      merged->notes,
      ElementsAre("weight_block_size [32, 32] was asked for, but the checkpoint is quantized with "
                  "[64, 64]",
                  "modules_to_convert was asked for, but the checkpoint is quantized"));
}

TEST(FineGrainedFp8Config, MergeOfEdges) {
  // The caller's wish to dequantize counts, whatever was saved.
  EXPECT_FALSE(merge({.dequantize = true}, {})->config.dequantize);
  // A list beside none.
  EXPECT_EQ(merge({}, {.modules_to_not_convert = Names{"a", "a"}})->config.modules_to_not_convert,
            Names{"a"});
  EXPECT_EQ(merge({}, {})->config.modules_to_not_convert, std::nullopt);
  EXPECT_THAT(merge({}, {.activation_scheme = "static", .scale_fmt = ScaleFormat::ue8m0})->notes,
              ElementsAre(HasSubstr("scale_fmt ue8m0"), HasSubstr("activation_scheme static")));
  const auto other = merge({.quant_method = "gptq"}, {});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::bad_value);
  EXPECT_THAT(other.error().message, HasSubstr("quant_method is gptq, but fp8 was asked for"));
}

TEST(FineGrainedFp8Config, OptionsToQuantizeWith) {
  const auto options = quantize_options({.weight_block_size = BlockSize{32, 64},
                                         .modules_to_not_convert = Names{"foo"},
                                         .modules_to_convert = Names{"lm_head"},
                                         .scale_fmt = ScaleFormat::ue8m0});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->recipe.block, (BlockSize{32, 64}));
  EXPECT_EQ(options->recipe.rule, ScaleRule::transformers);
  EXPECT_EQ(options->recipe.scale_fmt, ScaleFormat::ue8m0);
  EXPECT_EQ(options->scale_dtype, DType::f8_e8m0);
  EXPECT_EQ(options->not_convert, Names{"foo"});
  EXPECT_EQ(options->convert, Names{"lm_head"});
  EXPECT_TRUE(options->default_skips);  // a list adds to the defaults
  EXPECT_EQ(quantize_options({})->scale_dtype, DType::f32);

  for (const FineGrainedFp8Config& config :
       {FineGrainedFp8Config{.activation_scheme = "static"},
        FineGrainedFp8Config{.weight_block_size = std::nullopt},
        FineGrainedFp8Config{.expert_dtype = "fp4"}}) {
    const auto refused = quantize_options(config);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  }
  EXPECT_EQ(quantize_options({.activation_scheme = "x"}).error().code, ErrorCode::bad_value);
}

}  // namespace
}  // namespace octavo
