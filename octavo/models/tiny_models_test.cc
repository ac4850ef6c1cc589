// The configs of the tiny models that Transformers wrote: tests/golden/models/make_models.py.
#include <gtest/gtest.h>

#include "octavo/checkpoint/checkpoint.h"
#include "octavo/models/config.h"

namespace octavo::models {
namespace {

struct TinyModel {
  const char* name;
  Family family;
  RopeType rope;
  std::size_t heads, kv_heads, head_dim;
  bool tied, qkv_bias, o_bias, mlp_bias, qk_norm;
  std::vector<std::optional<std::size_t>> windows;
};

TEST(TinyModels, ConfigsAndShapesAgree) {
  const std::optional<std::size_t> none;
  const TinyModel models[] = {
      {"llama3", Family::llama, RopeType::llama3, 6, 2, 16, 0, 0, 0, 0, 0, {none, none}},
      {"llama_tied", Family::llama, RopeType::standard, 5, 5, 16, 1, 0, 0, 0, 0, {none, none}},
      {"llama_yarn", Family::llama, RopeType::yarn, 4, 1, 16, 0, 1, 1, 1, 0, {none, none}},
      {"mistral", Family::mistral, RopeType::standard, 4, 2, 16, 0, 0, 0, 0, 0, {24, 24}},
      {"qwen2", Family::qwen2, RopeType::standard, 4, 2, 16, 0, 1, 0, 0, 0, {none, 24}},
      {"qwen3", Family::qwen3, RopeType::standard, 4, 2, 32, 0, 0, 0, 0, 1, {none, none}},
  };
  for (const TinyModel& model : models) {
    SCOPED_TRACE(model.name);
    const auto checkpoint = open_checkpoint(std::string(OCTAVO_GOLDEN_DIR "/models/") + model.name +
                                            "/model.safetensors");
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto config = read_model_config(checkpoint->config);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->family, model.family);
    EXPECT_EQ(config->rope.type, model.rope);
    EXPECT_EQ(config->num_attention_heads, model.heads);
    EXPECT_EQ(config->num_key_value_heads, model.kv_heads);
    EXPECT_EQ(config->head_dim, model.head_dim);
    EXPECT_EQ(config->sliding_window, model.windows);
    EXPECT_EQ(config->qkv_bias, model.qkv_bias);
    EXPECT_EQ(config->o_bias, model.o_bias);
    EXPECT_EQ(config->mlp_bias, model.mlp_bias);
    EXPECT_EQ(config->qk_norm, model.qk_norm);
    EXPECT_EQ(config->tie_word_embeddings, model.tied);
    // What the config promises is in the file, and nothing that it denies.
    const auto shape = [&](const std::string& name) {
      const CheckpointTensor* const tensor = checkpoint->find(name);
      return tensor == nullptr ? Shape{} : tensor->info.shape;
    };
    const std::string layer = "model.layers.1.";
    const std::size_t query = model.heads * model.head_dim;
    const std::size_t key = model.kv_heads * model.head_dim;
    const std::size_t hidden = config->hidden_size;
    const std::size_t inner = config->intermediate_size;
    const auto bias = [](bool has, std::size_t size) { return has ? Shape{size} : Shape{}; };
    EXPECT_EQ(shape("model.embed_tokens.weight"), (Shape{config->vocab_size, hidden}));
    EXPECT_EQ(shape("lm_head.weight"), model.tied ? Shape{} : (Shape{config->vocab_size, hidden}));
    EXPECT_EQ(shape(layer + "self_attn.q_proj.weight"), (Shape{query, hidden}));
    EXPECT_EQ(shape(layer + "self_attn.k_proj.weight"), (Shape{key, hidden}));
    EXPECT_EQ(shape(layer + "self_attn.o_proj.weight"), (Shape{hidden, query}));
    EXPECT_EQ(shape(layer + "mlp.down_proj.weight"), (Shape{hidden, inner}));
    EXPECT_EQ(shape(layer + "self_attn.v_proj.bias"), bias(model.qkv_bias, key));
    EXPECT_EQ(shape(layer + "self_attn.o_proj.bias"), bias(model.o_bias, hidden));
    EXPECT_EQ(shape(layer + "mlp.gate_proj.bias"), bias(model.mlp_bias, inner));
    EXPECT_EQ(shape(layer + "self_attn.q_norm.weight"), bias(model.qk_norm, model.head_dim));
    EXPECT_EQ(shape("model.layers.2.mlp.down_proj.weight"), Shape{});
  }
}

}  // namespace
}  // namespace octavo::models
