#include "octavo/checkpoint/config_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/checkpoint/memory_checkpoint_testing.h"

namespace octavo {
namespace {

using testing::add_fp8;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::memory_checkpoint;
using testing::MemoryTensor;
using Kind = ConfigFact::Kind;

std::vector<ConfigFact> facts(const std::vector<MemoryTensor>& tensors, const std::string& config) {
  const Checkpoint checkpoint = memory_checkpoint(tensors, config);
  return check_config(checkpoint, pair_scales(checkpoint, {}));
}

std::vector<MemoryTensor> blocks() {
  std::vector<MemoryTensor> tensors;
  add_fp8(tensors, "a", 512, 256);
  add_fp8(tensors, "b", 64, 64);  // within one block
  return tensors;
}

std::vector<MemoryTensor> channels() {
  return {{"a.weight", DType::f8_e4m3, {256, 128}}, {"a.weight_scale", DType::bf16, {256, 1}}};
}

std::string quantization(const std::string& members) {
  return R"({"quantization_config": {)" + members + "}}";
}

TEST(ConfigCheck, AgreementIsSilent) {
  EXPECT_THAT(facts(blocks(), quantization(R"("quant_method": "fp8", "fmt": "e4m3",
      "activation_scheme": "dynamic", "scale_fmt": "float", "weight_block_size": [128, 128])")),
              IsEmpty());
  EXPECT_THAT(facts(channels(), quantization(R"("config_groups": {"x": {"weights": {"num_bits": 8,
                                        "type": "float", "strategy": "channel"}}})")),
              IsEmpty());
  EXPECT_THAT(facts({{"a.weight", DType::bf16, {8, 8}}}, "{}"), IsEmpty());
}

struct Case {
  std::vector<MemoryTensor> tensors;
  std::string config;
  Kind kind;
  bool contradicts;
  const char* words;
};

TEST(ConfigCheck, EachFactNamesTheFile) {
  const std::vector<MemoryTensor> wide = {{"a.weight", DType::bf16, {8, 8}}};
  const std::vector<MemoryTensor> e8m0 = {{"a.weight", DType::f8_e4m3, {256, 128}},
                                          {"a.weight_scale_inv", DType::f8_e8m0, {2, 1}}};
  const Case cases[] = {
      {wide, quantization(R"("quant_method": "fp8")"), Kind::claims_quantized, true,
       "no tensor is quantized"},
      {blocks(), "{}", Kind::lacks_quantization, true, "2 weights are quantized"},
      {channels(), quantization(R"("weight_block_size": [128, 128])"), Kind::block_size, true,
       "blocks of 128x128, but 1 of 1 quantized weights differ (first: a.weight"},
      {blocks(), quantization(R"("quant_method": "modelopt", "quant_algo": "FP8")"), Kind::strategy,
       true, "strategy \"tensor\", but 1 of 2"},
      {blocks(), quantization(R"("fmt": "e5m2")"), Kind::fmt, true, "fmt \"e5m2\""},
      {e8m0, quantization(R"("scale_fmt": "float")"), Kind::scale_fmt, true, "F8_E8M0"},
      {blocks(), quantization(R"("activation_scheme": "static")"), Kind::activation_scheme, true,
       ".input_scale"},
      {blocks(), quantization(R"("expert_dtype": "fp4")"), Kind::expert_dtype, true, "FP4"},
      {blocks(), quantization(R"("kv_cache_scheme": {"type": "float", "num_bits": 8})"),
       Kind::kv_cache, false, "float of 8 bits, 0 k_scale"},
      {channels(), quantization(R"("config_groups": {
           "a": {"weights": {"type": "float", "num_bits": 8, "strategy": "channel"}},
           "b": {"weights": {"type": "float", "num_bits": 8, "strategy": "tensor"}}})"),
       Kind::config, false, "a: float 8 bits, channel; b: float 8 bits, tensor"},
  };
  for (const Case& c : cases) {
    const std::vector<ConfigFact> found = facts(c.tensors, c.config);
    ASSERT_EQ(found.size(), 1u) << c.config;
    EXPECT_EQ(found[0].kind, c.kind) << c.config;
    EXPECT_EQ(found[0].contradicts, c.contradicts);
    EXPECT_THAT(found[0].message, AllOf(HasSubstr("model/config.json: "), HasSubstr(c.words)));
  }
}

TEST(AskedQuantMethod, MustBeTheConfigs) {
  const Checkpoint fp8 = memory_checkpoint({}, quantization(R"("quant_method": "fp8")"));
  EXPECT_TRUE(check_asked_quant_method(fp8, ""));
  EXPECT_TRUE(check_asked_quant_method(fp8, "fp8"));
  const auto other = check_asked_quant_method(fp8, "modelopt");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::bad_value);
  EXPECT_EQ(other.error().message,
            "found quant_method fp8 in model/config.json, asked for modelopt; supported: " +
                supported_quant_methods());
  const Checkpoint silent = memory_checkpoint({}, "{}");
  EXPECT_TRUE(check_asked_quant_method(silent, "fp8"));
  const auto unknown = check_asked_quant_method(silent, "gptq");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, AllOf(HasSubstr("gptq"), HasSubstr("supported: fp8")));
}

}  // namespace
}  // namespace octavo
