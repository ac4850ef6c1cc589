#include "octavo/checkpoint/config_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/checkpoint/checkpoint_testing.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using testing::RawTensor;
using testing::safetensors_bytes;

class ConfigCountsTest : public testing::DirectoryTest {
 protected:
  // "CODE: MESSAGE" of each defect that check_config_counts() finds.
  std::vector<std::string> check(const std::vector<RawTensor>& tensors, const std::string& config,
                                 const std::string& hf_quant_config = "") const {
    write("model.safetensors", safetensors_bytes(tensors));
    write("config.json", config);
    if (!hf_quant_config.empty()) write("hf_quant_config.json", hf_quant_config);
    const Survey survey = survey_checkpoint(directory_).value();
    EXPECT_TRUE(survey.defects.empty());
    EXPECT_TRUE(survey.complete);
    Defects defects;
    check_config_counts(survey, defects);
    std::vector<std::string> found;
    for (const Defect& defect : defects)
      found.push_back(std::string(defect_name(defect.code)) + ": " + defect.message);
    return found;
  }
  static RawTensor bytes(const std::string& name, const std::string& dtype, Shape shape) {
    return {name, dtype, shape,
            std::string(byte_count(*dtype_from_name(dtype), shape).value(), '\1')};
  }
};

TEST_F(ConfigCountsTest, LayersUnderEachPrefix) {
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

TEST_F(ConfigCountsTest, NumbersInNamesThatOverflow) {
  for (const char* number :
       {"18446744073709551615", "18446744073709551616", "99999999999999999999999"}) {
    const std::string layer = std::string("model.layers.") + number + ".experts." + number + ".a";
    EXPECT_EQ(
        check({bytes(layer, "U8", {1})}, R"({"num_hidden_layers": 2, "num_experts": 2})").size(),
        0u)
        << number;
  }
}

TEST_F(ConfigCountsTest, PackedEmbeddingsSayNothingOfTheHiddenSize) {
  const std::string config = R"({"hidden_size": 64, "vocab_size": 16})";
  EXPECT_EQ(check({bytes("model.embed_tokens.weight", "U32", {16, 8})}, config).size(), 0u);
  EXPECT_EQ(check({bytes("model.embed_tokens.weight", "BF16", {16, 8})}, config).size(), 1u);
  EXPECT_EQ(check({bytes("model.embed_tokens.weight", "BF16", {15, 64})}, config).size(), 1u);
  EXPECT_EQ(check({bytes("model.embed_tokens.weight", "BF16", {17, 64})}, config).size(), 0u);
}

}  // namespace
}  // namespace octavo
