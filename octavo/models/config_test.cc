#include "octavo/models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace octavo::models {
namespace {

using ::testing::HasSubstr;

// A config with these members, of Llama where they do not say otherwise.
Json config_of(const std::string& members) {
  Json json = Json::parse(members);
  if (!json.contains("architectures") && !json.contains("model_type"))
    json["architectures"] = {"LlamaForCausalLM"};
  return json;
}

ModelConfig read(const std::string& members) {
  const auto config = read_model_config(config_of(members));
  EXPECT_TRUE(config) << members << ": " << config.error().message;
  return config.value_or(ModelConfig{});
}

// "unsupported: MESSAGE" or "bad_model: MESSAGE".
std::string refusal(const std::string& members) {
  const auto config = read_model_config(config_of(members), "m/config.json");
  EXPECT_FALSE(config) << members;
  if (config) return "";
  EXPECT_EQ(config.error().message.find('\n'), std::string::npos);
  EXPECT_THAT(config.error().message, ::testing::StartsWith("m/config.json: "));
  return (config.error().code == ErrorCode::unsupported ? "unsupported: " : "bad_model: ") +
         config.error().message;
}

const char* const kArchitectures[] = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                                      "Qwen3ForCausalLM"};

// What Transformers takes where a config is silent: tests/golden/models/make_configs.py.
TEST(ModelConfig, DefaultsOfTransformers) {
  std::ifstream file(OCTAVO_GOLDEN_DIR "/models/config_defaults.json");
  ASSERT_TRUE(file);
  const Json families =
      Json::parse(std::string(std::istreambuf_iterator<char>(file), {})).at("families");
  ASSERT_EQ(families.size(), 4u);
  for (const char* architecture : kArchitectures) {
    SCOPED_TRACE(architecture);
    const ModelConfig config =
        read(R"({"architectures": [")" + std::string(architecture) + R"("]})");
    EXPECT_EQ(config.architecture, architecture);
    const Json& expected = families.at(std::string(to_string(config.family)));
    EXPECT_EQ(config.hidden_size, expected.at("hidden_size"));
    EXPECT_EQ(config.num_hidden_layers, expected.at("num_hidden_layers"));
    EXPECT_EQ(config.num_attention_heads, expected.at("num_attention_heads"));
    EXPECT_EQ(config.num_key_value_heads, expected.at("num_key_value_heads"));
    EXPECT_EQ(config.head_dim, expected.at("head_dim"));
    EXPECT_EQ(config.intermediate_size, expected.at("intermediate_size"));
    EXPECT_EQ(config.vocab_size, expected.at("vocab_size"));
    EXPECT_EQ(config.max_position_embeddings, expected.at("max_position_embeddings"));
    EXPECT_EQ(config.rms_norm_eps, expected.at("rms_norm_eps").get<float>());
    EXPECT_EQ(config.tie_word_embeddings, expected.at("tie_word_embeddings"));
    EXPECT_EQ(config.rope, RopeConfig{.theta = expected.at("rope_theta")});
    EXPECT_EQ(config.eos_token_ids.empty() ? Json() : Json(config.eos_token_ids[0]),
              expected.at("eos_token_id"));
    ASSERT_EQ(config.sliding_window.size(), config.num_hidden_layers);
    for (const auto& window : config.sliding_window)
      EXPECT_EQ(window ? Json(*window) : Json(), expected.at("sliding_window"));
  }
}

TEST(ModelConfig, BiasesAndNormsOfEachFamily) {
  const auto switches = [](const char* architecture, bool attention_bias, bool mlp_bias) {
    const ModelConfig c = read(Json{
        {"architectures", {architecture}},
        {"attention_bias", attention_bias},
        {"mlp_bias", mlp_bias}}.dump());
    return std::vector<bool>{c.qkv_bias, c.o_bias, c.mlp_bias, c.qk_norm};
  };
  using Flags = std::vector<bool>;
  EXPECT_EQ(switches("LlamaForCausalLM", false, false), (Flags{0, 0, 0, 0}));
  EXPECT_EQ(switches("LlamaForCausalLM", true, false), (Flags{1, 1, 0, 0}));
  EXPECT_EQ(switches("LlamaForCausalLM", false, true), (Flags{0, 0, 1, 0}));
  EXPECT_EQ(switches("MistralForCausalLM", true, true), (Flags{0, 0, 0, 0}));
  EXPECT_EQ(switches("Qwen2ForCausalLM", false, true), (Flags{1, 0, 0, 0}));
  EXPECT_EQ(switches("Qwen3ForCausalLM", false, true), (Flags{0, 0, 0, 1}));
  EXPECT_EQ(switches("Qwen3ForCausalLM", true, true), (Flags{1, 1, 0, 1}));
}

TEST(ModelConfig, HeadsAndTheirSizes) {
  EXPECT_EQ(read(R"({"hidden_size": 576, "num_attention_heads": 9})").head_dim, 64u);
  EXPECT_EQ(read(R"({"hidden_size": 80, "num_attention_heads": 3, "head_dim": 16})").head_dim, 16u);
  EXPECT_EQ(read(R"({"hidden_size": 576, "num_attention_heads": 9, "head_dim": null})").head_dim,
            64u);
  EXPECT_EQ(read(R"({"num_attention_heads": 8})").num_key_value_heads, 8u);
  EXPECT_EQ(read(R"({"num_attention_heads": 8, "num_key_value_heads": 2})").num_key_value_heads,
            2u);
  EXPECT_EQ(read(R"({"model_type": "mistral", "num_attention_heads": 16})").num_key_value_heads,
            8u);
  EXPECT_EQ(read(R"({"model_type": "mistral", "num_attention_heads": 16,
                     "num_key_value_heads": null})")
                .num_key_value_heads,
            16u);
}

TEST(ModelConfig, FamilyByArchitectureOrType) {
  EXPECT_EQ(read(R"({"model_type": "qwen3"})").family, Family::qwen3);
  EXPECT_EQ(read(R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"})").family,
            Family::qwen2);
  EXPECT_THAT(
      refusal(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"})"),
      HasSubstr("unsupported: m/config.json: architecture GPT2LMHeadModel is not supported; "
                "supported: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
                "Qwen3ForCausalLM"));
  EXPECT_THAT(refusal(R"({"model_type": "phi3"})"), HasSubstr("model_type phi3 is not supported"));
  EXPECT_THAT(refusal(R"({"architectures": [], "model_type": null})"),
              HasSubstr("neither architectures nor model_type"));
  EXPECT_THAT(refusal(R"({"architectures": ["LlamaForCausalLM"], "model_type": "mistral"})"),
              HasSubstr("architectures says LlamaForCausalLM, but model_type is mistral"));
  EXPECT_THAT(refusal(R"({"architectures": "LlamaForCausalLM"})"), HasSubstr("a list of texts"));
}

TEST(ModelConfig, SlidingWindows) {
  using Windows = std::vector<std::optional<std::size_t>>;
  const std::optional<std::size_t> none;
  EXPECT_EQ(read(R"({"num_hidden_layers": 2, "sliding_window": 24})").sliding_window,
            (Windows{none, none}));  // Llama has none
  EXPECT_EQ(read(R"({"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": 24})")
                .sliding_window,
            (Windows{24, 24}));
  EXPECT_EQ(read(R"({"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": null})")
                .sliding_window,
            (Windows{none, none}));
  EXPECT_EQ(read(R"({"model_type": "qwen2", "num_hidden_layers": 3, "sliding_window": 24,
                     "max_window_layers": 1})")
                .sliding_window,
            (Windows{none, none, none}));
  EXPECT_EQ(read(R"({"model_type": "qwen2", "num_hidden_layers": 3, "sliding_window": 24,
                     "max_window_layers": 1, "use_sliding_window": true})")
                .sliding_window,
            (Windows{none, 24, 24}));
  EXPECT_EQ(read(R"({"model_type": "qwen3", "num_hidden_layers": 3, "sliding_window": 24,
                     "use_sliding_window": true, "layer_types": ["sliding_attention",
                     "full_attention", "sliding_attention"]})")
                .sliding_window,
            (Windows{24, none, 24}));
  EXPECT_THAT(refusal(R"({"model_type": "qwen3", "num_hidden_layers": 1,
                          "layer_types": ["sliding_attention"]})"),
              HasSubstr("no sliding window is in use"));
  EXPECT_THAT(refusal(R"({"model_type": "mistral", "num_hidden_layers": 1,
                          "layer_types": ["full_attention"]})"),
              HasSubstr("sliding_window is for all layers"));
  EXPECT_THAT(refusal(R"({"model_type": "qwen3", "num_hidden_layers": 2,
                          "layer_types": ["full_attention"]})"),
              HasSubstr("layer_types has 1 entries, but num_hidden_layers is 2"));
  EXPECT_THAT(refusal(R"({"model_type": "qwen3", "num_hidden_layers": 1,
                          "layer_types": ["linear_attention"]})"),
              HasSubstr("unsupported: m/config.json: layer_types[0] linear_attention"));
}

TEST(ModelConfig, SpecialTokens) {
  EXPECT_EQ(read(R"({"eos_token_id": [128001, 128008]})").eos_token_ids,
            (std::vector<std::int32_t>{128001, 128008}));
  EXPECT_EQ(read(R"({"eos_token_id": null})").eos_token_ids.size(), 0u);
  EXPECT_THAT(refusal(R"({"eos_token_id": [1, "x"]})"), HasSubstr("eos_token_id is [1,\"x\"]"));
}

// STF-13 and its like: each value alone is enough.
TEST(ModelConfig, ValuesThatAreNone) {
  for (const char* members : {R"({"num_hidden_layers": 1000000000})", R"({"num_hidden_layers": 0})",
                              R"({"num_hidden_layers": -1})", R"({"num_hidden_layers": 2.5})",
                              R"({"num_hidden_layers": "2"})", R"({"num_hidden_layers": true})",
                              R"({"num_hidden_layers": [2]})"}) {
    EXPECT_THAT(refusal(members), HasSubstr("bad_model: m/config.json: num_hidden_layers is "));
    EXPECT_THAT(refusal(members), HasSubstr("a whole number from 1 to 16384 is expected"));
  }
  for (const char* key : {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                          "intermediate_size", "vocab_size", "max_position_embeddings"}) {
    for (const char* value : {"0", "18446744073709551615", "-4", "1e3", "{}"})
      EXPECT_THAT(refusal("{\"" + std::string(key) + "\": " + value + "}"), HasSubstr(key));
  }
  EXPECT_THAT(refusal(R"({"num_attention_heads": 8, "num_key_value_heads": 3})"),
              HasSubstr("num_key_value_heads 3 does not divide num_attention_heads 8"));
  EXPECT_THAT(refusal(R"({"hidden_size": 100, "num_attention_heads": 8})"),
              HasSubstr("hidden_size 100 is no multiple of num_attention_heads 8"));
  EXPECT_THAT(refusal(R"({"head_dim": 15})"), HasSubstr("heads have 15 dimensions"));
  EXPECT_THAT(refusal(R"({"hidden_size": 8, "num_attention_heads": 8})"),
              HasSubstr("heads have 1 dimensions"));
  EXPECT_THAT(refusal(R"({"hidden_act": "gelu"})"),
              HasSubstr("unsupported: m/config.json: hidden_act gelu is not supported; supported: "
                        "silu"));
  EXPECT_THAT(refusal(R"({"rms_norm_eps": -1e-6})"), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(refusal(R"({"rms_norm_eps": 1e39})"),
              HasSubstr("rms_norm_eps is 1e+39, which is beyond the range of f32"));
  EXPECT_THAT(refusal(R"({"tie_word_embeddings": "true"})"), HasSubstr("true or false"));
  EXPECT_THAT(refusal(R"({"model_type": "mistral", "sliding_window": 0})"),
              HasSubstr("sliding_window is 0"));
}

TEST(ModelConfig, RopeScaling) {
  const RopeConfig yarn = read(R"({"max_position_embeddings": 65536, "rope_theta": 1000000.0,
      "rope_scaling": {"type": "yarn", "factor": 64.0, "mscale": 1.0, "mscale_all_dim": 0.5,
                       "beta_fast": 24, "beta_slow": 0, "attention_factor": 1.5, "truncate": false,
                       "original_max_position_embeddings": 4096}})")
                              .rope;
  EXPECT_EQ(yarn, (RopeConfig{.type = RopeType::yarn,
                              .theta = 1000000,
                              .factor = 64,
                              .original_max_position_embeddings = 4096,
                              .beta_fast = 24,
                              .beta_slow = 1,
                              .mscale = 1,
                              .mscale_all_dim = 0.5,
                              .attention_factor = 1.5,
                              .truncate = false}));
  EXPECT_EQ(read(R"({"rope_scaling": {}, "rope_theta": 500000})").rope,
            RopeConfig{.theta = 500000});
  EXPECT_EQ(read(R"({"rope_scaling": null, "rope_parameters": {"rope_type": "default",
                     "rope_theta": 500000}})")
                .rope,
            RopeConfig{.theta = 500000});
  // Said twice, alike.
  EXPECT_EQ(read(R"({"rope_theta": 5e5, "rope_parameters": {"rope_type": "linear", "factor": 2,
                     "rope_theta": 500000}, "rope_scaling": {"type": "linear", "factor": 2.0}})")
                .rope,
            (RopeConfig{.type = RopeType::linear, .theta = 500000, .factor = 2}));
}

TEST(ModelConfig, RopeScalingThatIsNone) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"rope_scaling": {"rope_type": "longrope", "factor": 4}})",
       "unsupported: m/config.json: rope_scaling: rope_type longrope is not supported; supported: "
       "default, linear, dynamic, yarn, llama3"},
      {R"({"rope_parameters": {"rope_type": "warp"}})", "rope_parameters: rope_type warp"},
      {R"({"rope_scaling": {"factor": 8}})", "it has a factor, but no rope_type"},
      {R"({"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 8}})",
       "rope_type is yarn, but type is linear"},
      {R"({"rope_scaling": {"type": "linear"}})", "rope_type linear needs factor"},
      {R"({"rope_scaling": {"type": "dynamic", "factor": null}})",
       "rope_type dynamic needs factor"},
      {R"({"rope_scaling": {"type": "linear", "factor": 0}})", "a number above 0"},
      {R"({"rope_scaling": {"type": "linear", "factor": "2"}})", "a number is expected"},
      {R"({"rope_scaling": {"type": "yarn"}})", "needs factor or original_max_position_embeddings"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2}})",
       "beta_fast 1 is below beta_slow 2"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})",
       "rope_type llama3 needs low_freq_factor"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                            "high_freq_factor": 4}})",
       "high_freq_factor 4 is not above low_freq_factor 4"},
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2}, "head_dim": 2})",
       "needs a head_dim above 2"},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 2},
           "rope_parameters": {"rope_type": "linear", "factor": 4}})",
       "rope_parameters and rope_scaling say different things"},
      {R"({"rope_theta": 10000, "rope_parameters": {"rope_type": "default", "rope_theta": 500000}})",
       "rope_theta is 500000, but 10000 beside it"},
      {R"({"rope_theta": 0})", "rope_theta is 0"},
      {R"({"rope_theta": 1})", "a number above 1"},
      {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor 0.5 is not supported"},
      {R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})",
       "rotary parameters by layer type (full_attention) are not supported"},
      {R"({"rope_scaling": "yarn"})", "rope_scaling is neither an object nor null"},
      {R"({"rope_scaling": {"type": 3}})", "type is 3, but a text is expected"},
  };
  for (const auto& [members, message] : cases)
    EXPECT_THAT(refusal(members), HasSubstr(message)) << members;
}

}  // namespace
}  // namespace octavo::models
