#include "octavo/checkpoint/names.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(ModuleName, WeightsBelongToTheirModule) {
  EXPECT_EQ(module_name("model.layers.0.mlp.gate_proj.weight"), "model.layers.0.mlp.gate_proj");
  EXPECT_EQ(module_name("model.layers.0.mlp.experts.gate_up_proj"),
            "model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(module_name("q_proj.bias"), "q_proj.bias");
  EXPECT_EQ(module_name("weight"), "weight");
  EXPECT_EQ(module_name(""), "");
}

struct Skip {
  const char* tensor;
  const char* reason;  // null: quantized
};

const Skip kSkips[] = {
    {"lm_head.weight", "output head"},
    {"model.language_model.lm_head.weight", "output head"},
    {"head.weight", "output head"},
    {"embed_out.weight", "output head"},
    {"model.embed_tokens.weight", "embedding"},
    {"model.language_model.embed_tokens.weight", "embedding"},
    {"embed.weight", "embedding"},
    {"transformer.wte.weight", "embedding"},
    {"wpe.weight", "embedding"},
    {"ple.ple_embedding.ngram_embedding.weight", "embedding"},
    {"model.norm.weight", "norm"},
    {"model.layers.0.input_layernorm.weight", "norm"},
    {"model.layers.0.post_attention_layernorm.weight", "norm"},
    {"model.layers.0.self_attn.q_norm.weight", "norm"},
    {"model.layers.0.self_attn.kv_a_layernorm.weight", "norm"},
    {"transformer.h.0.ln_1.weight", "norm"},
    {"transformer.ln_f.weight", "norm"},
    {"bert.encoder.layer.0.output.LayerNorm.weight", "norm"},
    {"blocks.0.norm1.weight", "norm"},
    {"blocks.0.ln.weight", "norm"},
    {"model.layers.61.enorm.weight", "norm"},
    {"model.layers.61.hnorm.weight", "norm"},
    {"model.layers.3.mlp.gate.weight", "router"},
    {"model.layers.3.mlp.gate.e_score_correction_bias", "router"},
    {"model.layers.3.block_sparse_moe.gate.weight", "router"},
    {"model.layers.3.block_sparse_moe.e_score_correction_bias", "router"},
    {"model.layers.3.mlp.shared_expert_gate.weight", "router"},
    {"model.layers.3.feed_forward.router.weight", "router"},
    {"layers.3.ffn.gate.weight", "router"},
    {"model.layers.3.self_attn.indexer.weights_proj.weight", "indexer weight projection"},
    {"model.layers.3.self_attn.compressor.wkv.weight", "compressor"},
    {"model.layers.61.eh_proj.weight", "multi-token prediction projection"},

    {"model.layers.3.mlp.gate_proj.weight", nullptr},
    {"model.layers.3.mlp.gate_up_proj.weight", nullptr},
    {"model.layers.3.mlp.experts.0.gate_proj.weight", nullptr},
    {"model.layers.3.mlp.experts.gate_up_proj", nullptr},
    {"model.layers.3.mlp.shared_expert.gate_proj.weight", nullptr},
    {"model.layers.3.mlp.shared_experts.down_proj.weight", nullptr},
    {"model.layers.3.block_sparse_moe.experts.7.w1.weight", nullptr},
    {"model.layers.3.self_attn.kv_a_proj_with_mqa.weight", nullptr},
    {"model.layers.3.self_attn.indexer.wq_b.weight", nullptr},
    {"model.layers.3.self_attn.indexer.wk.weight", nullptr},
    {"layers.3.attn.wkv.weight", nullptr},
    {"layers.3.ffn.experts.5.w2.weight", nullptr},
    {"transformer.h.0.attn.c_attn.weight", nullptr},
    {"transformer.h.0.mlp.c_fc.weight", nullptr},
    {"model.layers.3.mlp.normalizer.weight", nullptr},
    {"model.layers.3.head_proj.weight", nullptr},
    {"model.layers.3.lm_head_adapter.weight", nullptr},
    {"model.embedder_proj.weight", nullptr},
    {"model.layers.3.self_attn.compressors_proj.weight", nullptr},
};

TEST(DefaultSkips, Table) {
  for (const Skip& s : kSkips) {
    const std::optional<std::string_view> reason = default_skip_reason(s.tensor);
    EXPECT_EQ(reason.value_or("quantized"), s.reason != nullptr ? s.reason : "quantized")
        << s.tensor;
  }
}

struct Role {
  const char* tensor;
  const char* role;
};

TEST(TensorRole, Table) {
  const Role roles[] = {
      {"model.embed_tokens.weight", "embedding"},
      {"lm_head.weight", "head"},
      {"model.layers.0.input_layernorm.weight", "norm"},
      {"transformer.h.0.ln_1.bias", "bias"},
      {"model.layers.3.mlp.gate.weight", "router"},
      {"model.layers.3.mlp.gate.e_score_correction_bias", "router"},
      {"model.layers.3.mlp.experts.0.gate_proj.weight", "expert"},
      {"model.layers.3.mlp.experts.gate_up_proj", "expert"},
      {"model.layers.3.mlp.shared_experts.up_proj.weight", "expert"},
      {"model.layers.0.self_attn.q_proj.weight", "attention"},
      {"model.layers.0.self_attn.q_proj.bias", "bias"},
      {"layers.0.attn.wq_a.weight", "attention"},
      {"model.layers.0.mlp.gate_proj.weight", "mlp"},
      {"layers.0.ffn.w1.weight", "mlp"},
      {"model.layers.0.mlp.gate_proj.weight_scale_inv", "scale"},
      {"model.layers.0.mlp.gate_proj.weight_scale", "scale"},
      {"layers.0.ffn.w1.scale", "scale"},
      {"model.layers.0.mlp.experts.gate_up_proj_scale_inv", "scale"},
      {"model.rotary.inv_freq", "other"},
      {"x", "other"},
  };
  for (const Role& r : roles) EXPECT_EQ(tensor_role(r.tensor), r.role) << r.tensor;
}

TEST(FusedExperts, ByNameAndRank) {
  EXPECT_TRUE(is_fused_expert("model.layers.0.mlp.experts.gate_up_proj", {4, 8, 16}));
  EXPECT_TRUE(is_fused_expert("experts.down_proj.weight", {4, 8, 16}));
  EXPECT_FALSE(is_fused_expert("model.layers.0.mlp.experts.gate_up_proj", {8, 16}));
  EXPECT_FALSE(is_fused_expert("model.layers.0.mlp.experts.gate_up_proj_bias", {4, 8, 16}));
  EXPECT_FALSE(is_fused_expert("model.layers.0.mlp.shared_experts.up_proj", {4, 8, 16}));
  EXPECT_FALSE(is_fused_expert("vision.conv.weight", {4, 8, 16}));
}

TEST(WideUnasked, DefaultsButForMultiTokenPrediction) {
  EXPECT_TRUE(is_wide_unasked("lm_head.weight"));
  EXPECT_TRUE(is_wide_unasked("model.layers.0.mlp.gate.weight"));
  EXPECT_FALSE(is_wide_unasked("model.layers.0.mlp.gate_proj.weight"));
  EXPECT_FALSE(is_wide_unasked("model.layers.2.eh_proj.weight"));
}

TEST(Segments, Whole) {
  EXPECT_TRUE(has_segment("mlp.experts.0", "experts"));
  EXPECT_TRUE(has_segment("experts", "experts"));
  EXPECT_FALSE(has_segment("mlp.shared_experts.0", "experts"));
  EXPECT_FALSE(has_segment("mlp.experts_0", "experts"));
  EXPECT_EQ(last_segment("a.b.c"), "c");
  EXPECT_EQ(last_segment("a"), "a");
}

}  // namespace
}  // namespace octavo
