#include "octavo/checkpoint/config_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/checkpoint/checkpoint_testing.h"

namespace octavo {
namespace {

using testing::floats;
using ::testing::HasSubstr;
using testing::RawTensor;
using testing::safetensors_bytes;

class ConfigCheckTest : public testing::DirectoryTest {
 protected:
  // "CODE: MESSAGE" of each defect that check_config() finds.
  std::vector<std::string> check(const std::vector<RawTensor>& tensors, const std::string& config,
                                 const std::string& hf_quant_config = "") const {
    write("model.safetensors", safetensors_bytes(tensors));
    write("config.json", config);
    if (!hf_quant_config.empty()) write("hf_quant_config.json", hf_quant_config);
    const Survey survey = survey_checkpoint(directory_).value();
    EXPECT_TRUE(survey.defects.empty());
    EXPECT_TRUE(survey.complete);
    Defects defects;
    check_config(survey, pair_scales(survey.checkpoint, {}).value(), defects);
    std::vector<std::string> found;
    for (const Defect& defect : defects)
      found.push_back(std::string(defect_name(defect.code)) + ": " + defect.message);
    return found;
  }
  static RawTensor bytes(const std::string& name, const std::string& dtype, Shape shape) {
    return {name, dtype, shape,
            std::string(byte_count(*dtype_from_name(dtype), shape).value(), '\1')};
  }
  static RawTensor one_scale(const std::string& name) { return {name, "F32", {1}, floats({1})}; }
};

TEST_F(ConfigCheckTest, LayersUnderEachPrefix) {
  for (const char* prefix : {"model.layers.", "model.language_model.layers.",
                             "language_model.model.layers.", "language_model.layers.", "layers."}) {
    const std::vector<RawTensor> tensors = {bytes(std::string(prefix) + "0.a", "U8", {1}),
                                            bytes(std::string(prefix) + "10.a", "U8", {1})};
    EXPECT_EQ(check(tensors, R"({"num_hidden_layers": 11})").size(), 0u) << prefix;
    const auto found = check(tensors, R"({"num_hidden_layers": 10})");
    ASSERT_EQ(found.size(), 1u) << prefix;
    EXPECT_THAT(found[0], HasSubstr("config-value: " + (directory_ / "config.json").string() +
                                    ": num_hidden_layers is 10, but tensors have 11 layers"));
  }
  // Layers of another tower, and names without a number, say nothing.
  EXPECT_EQ(check({bytes("vision.layers.40.a", "U8", {1}), bytes("model.layers.norm", "U8", {1}),
                   bytes("model.layers.7", "U8", {1})},
                  R"({"num_hidden_layers": 2})")
                .size(),
            0u);
}

TEST_F(ConfigCheckTest, NumbersInNamesThatOverflow) {
  for (const char* number :
       {"18446744073709551615", "18446744073709551616", "99999999999999999999999"}) {
    const std::string layer = std::string("model.layers.") + number + ".experts." + number + ".a";
    EXPECT_EQ(
        check({bytes(layer, "U8", {1})}, R"({"num_hidden_layers": 2, "num_experts": 2})").size(),
        0u)
        << number;
  }
}

TEST_F(ConfigCheckTest, PackedEmbeddingsSayNothingOfTheHiddenSize) {
  const std::string config = R"({"hidden_size": 64, "vocab_size": 16})";
  EXPECT_EQ(check({bytes("model.embed_tokens.weight", "U32", {16, 8})}, config).size(), 0u);
  EXPECT_EQ(check({bytes("model.embed_tokens.weight", "BF16", {16, 8})}, config).size(), 1u);
  EXPECT_EQ(check({bytes("model.embed_tokens.weight", "BF16", {15, 64})}, config).size(), 1u);
  EXPECT_EQ(check({bytes("model.embed_tokens.weight", "BF16", {17, 64})}, config).size(), 0u);
}

TEST_F(ConfigCheckTest, QuantizedOrNot) {
  const std::vector<RawTensor> wide = {bytes("a.weight", "BF16", {2, 2})};
  const std::vector<RawTensor> fp8 = {bytes("a.weight", "F8_E4M3", {2, 2}),
                                      one_scale("a.weight_scale")};
  const std::string says_fp8 = R"({"quantization_config": {"quant_method": "fp8"}})";
  EXPECT_EQ(check(wide, "{}").size(), 0u);
  EXPECT_EQ(check(fp8, says_fp8).size(), 0u);
  EXPECT_THAT(check(wide, says_fp8),
              ::testing::ElementsAre(HasSubstr("config-claims-quantized: ")));
  EXPECT_THAT(check(fp8, "{}"), ::testing::ElementsAre(HasSubstr("config-lacks-quantization: ")));
  EXPECT_EQ(check(fp8, "{}", R"({"quantization": {"quant_algo": "FP8"}})").size(), 0u);
  EXPECT_THAT(check(wide, R"({"quantization_config": {"quant_method": "gptq"}})"),
              ::testing::ElementsAre(HasSubstr("unsupported-format: ")));
}

}  // namespace
}  // namespace octavo
