#include "octavo/checkpoint/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace octavo {
namespace {

using ::testing::HasSubstr;

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

struct Match {
  const char* entry;
  const char* tensor;
  bool matches;
};

const Match kMatches[] = {
    // whole segments, anywhere
    {"mlp.gate", "model.layers.0.mlp.gate.weight", true},
    {"mlp.gate", "model.layers.0.mlp.gate_proj.weight", false},
    {"mlp.gate", "model.layers.0.mlp.gate.x.weight", true},
    {"gate", "model.layers.0.mlp.gate.weight", true},
    {"gate", "model.layers.0.mlp.shared_expert_gate.weight", false},
    {"gate", "model.layers.0.mlp.gate_proj.weight", false},
    {"lm_head", "lm_head.weight", true},
    {"lm_head", "my_lm_head.weight", false},
    {"model.layers.1", "model.layers.1.mlp.up_proj.weight", true},
    {"model.layers.1", "model.layers.10.mlp.up_proj.weight", false},
    {"layers.1.mlp", "model.layers.1.mlp.up_proj.weight", true},
    {"model.layers.1.mlp.up_proj", "model.layers.1.mlp.up_proj.weight", true},
    {"model.layers.1.mlp.up_proj.x", "model.layers.1.mlp.up_proj.weight", false},
    {"e_score_correction_bias", "model.layers.0.mlp.gate.e_score_correction_bias", true},
    {"", "lm_head.weight", false},
    // ".weight" at the end
    {"lm_head.weight", "lm_head.weight", true},
    {"mlp.gate.weight", "model.layers.0.mlp.gate.weight", true},
    {"mlp.gate.weight", "model.layers.0.mlp.gate_proj.weight", false},
    // dots are dots, other characters themselves
    {"mlp.gate", "model.mlpxgate.weight", false},
    {"layers.0.a+b", "model.layers.0.a+b.weight", true},
    {"(", "model.x.weight", false},
    // wrappers
    {"model.language_model.layers.0.mlp", "model.layers.0.mlp.up_proj.weight", true},
    {"model.layers.0.mlp", "model.language_model.layers.0.mlp.up_proj.weight", true},
    {"model.layers.0.mlp", "language_model.model.layers.0.mlp.up_proj.weight", true},
    {"language_model.model.layers.0.mlp", "model.language_model.layers.0.mlp.up_proj.weight", true},
    {"language_model.lm_head", "lm_head.weight", true},
    {"model.vision_tower", "vision_tower.blocks.0.fc.weight", true},
    {"model.vision_tower", "model.vision_tower.blocks.0.fc.weight", true},
    {"model.visual", "model.visual_proj.weight", false},
    // a wrapper by itself names all that is in it
    {"language_model", "model.language_model.layers.0.mlp.up_proj.weight", true},
    {"language_model", "model.visual.blocks.0.fc.weight", false},
    // globs
    {"model.layers.1.*", "model.layers.1.mlp.up_proj.weight", true},
    {"model.layers.1.*", "model.layers.10.mlp.up_proj.weight", false},
    {"model.layers.*.mlp.gate", "model.layers.12.mlp.gate.weight", true},
    {"model.layers.*.mlp.gate", "model.layers.12.mlp.gate_proj.weight", false},
    {"*.gate", "model.layers.0.mlp.gate.weight", true},
    {"*.gate", "model.layers.0.mlp.gate_proj.weight", false},
    {"*gate*", "model.layers.0.mlp.gate_proj.weight", true},
    {"*lm_head*", "lm_head.weight", true},
    {"*", "anything.weight", true},
    {"*_proj.weight", "model.layers.0.mlp.up_proj.weight", true},
    {"layers.*a*b*c", "layers.1.xaxbxbxc.weight", true},
    {"layers.*a*b*c", "layers.1.xaxcxb.weight", false},
    // a glob ends at the end of any segment, as an entry without a star does
    {"model.layers.*.self_attn", "model.layers.3.self_attn.q_proj.weight", true},
    {"model.layers.*.self_attn", "model.layers.3.self_attn_norm.weight", false},
    // regular expressions, of the whole module name
    {"re:.*gate", "model.layers.0.mlp.gate.weight", true},
    {"re:.*gate", "model.layers.0.mlp.gate_proj.weight", false},
    {"re:gate", "model.layers.0.mlp.gate.weight", false},
    {"re:.*layers\\.[0-2]\\..*", "model.layers.2.mlp.up_proj.weight", true},
    {"re:.*layers\\.[0-2]\\..*", "model.layers.12.mlp.up_proj.weight", false},
    {"re:a|ab", "ab.weight", true},
};

TEST(NamePattern, Table) {
  for (const Match& m : kMatches) {
    const Result<NamePattern> pattern = NamePattern::parse(m.entry);
    ASSERT_TRUE(pattern) << m.entry;
    EXPECT_EQ(pattern->text(), m.entry);
    EXPECT_EQ(pattern->matches(m.tensor), m.matches) << "\"" << m.entry << "\" and " << m.tensor;
  }
}

TEST(NamePattern, BadRegularExpressions) {
  for (const char* entry : {"re:(", "re:[a", "re:*", "re:a{2,1}"}) {
    const Result<NamePattern> pattern = NamePattern::parse(entry);
    ASSERT_FALSE(pattern) << entry;
    EXPECT_EQ(pattern.error().code, ErrorCode::bad_value);
    EXPECT_THAT(pattern.error().message, HasSubstr(entry));
    EXPECT_EQ(pattern.error().message.find('\n'), std::string::npos);
  }
  const auto patterns = parse_patterns({"lm_head", "re:("});
  ASSERT_FALSE(patterns);
  EXPECT_EQ(patterns.error().code, ErrorCode::bad_value);
}

TEST(NamePattern, MatchingIsBoundedInTime) {
  const std::string name = std::string(40'000, 'a') + "b.weight";
  const auto start = std::chrono::steady_clock::now();
  // Unbounded, the first would take longer than the universe has; the limit of 10 s is far from
  // both.
  for (const char* entry : {"re:(a+)+c", "re:(a|aa)+c", "re:(.*)*x(.*)*x", "*a*a*a*a*a*a*a*c"}) {
    const Result<NamePattern> pattern = NamePattern::parse(entry);
    ASSERT_TRUE(pattern);
    EXPECT_FALSE(pattern->matches(name)) << entry;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(NamePattern, NamesThatAreNotUtf8DoNotMatch) {
  EXPECT_FALSE(NamePattern::parse("re:.*")->matches("a\xFF.weight"));
  EXPECT_TRUE(NamePattern::parse("re:\xC3\xA9.")->matches("\xC3\xA9\xC3\xA9.weight"))
      << "a dot is a character";
}

TEST(FindMatch, TheFirstThatMatches) {
  const auto patterns = parse_patterns({"lm_head", "re:.*up_proj", "mlp"});
  ASSERT_TRUE(patterns);
  const NamePattern* found = find_match(*patterns, "model.layers.0.mlp.up_proj.weight");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->text(), "re:.*up_proj");
  EXPECT_EQ(find_match(*patterns, "model.layers.0.self_attn.q_proj.weight"), nullptr);
}

}  // namespace
}  // namespace octavo
