// QNT cases about which tensors are quantized, and what the written config says of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Names = std::set<std::string>;

constexpr Extent kSquare{256, 256};

Outcome quantize_run(const TempDir& dir, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"quantize", (dir / "in").string(), (dir / "out").string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_octavo(arguments);
}

Names quantized_in(const Tensors& tensors) {
  Names names;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.dtype != "F8_E4M3") continue;
    EXPECT_TRUE(tensors.contains(name + "_scale_inv")) << name;
    names.insert(name);
  }
  return names;
}

Names skip_list(const nlohmann::json& config) {
  const auto list =
      config.at("quantization_config").value("modules_to_not_convert", std::vector<std::string>{});
  const Names names(list.begin(), list.end());
  EXPECT_EQ(names.size(), list.size()) << "an entry is there twice";
  return names;
}

void expect_kept(const Tensors& before, const Tensors& after, const Names& names) {
  for (const std::string& name : names) EXPECT_TRUE(after.at(name) == before.at(name)) << name;
}

TEST(Qnt04, FusedExperts) {
  const TempDir dir;
  const std::string experts = "model.layers.0.mlp.experts.";
  Tensors source = {
      {"model.layers.0.self_attn.q_proj.weight", bf16_weight(kSquare, 40)},
      {"model.layers.0.self_attn.o_proj.weight", bf16_weight(kSquare, 41)},
      {"model.layers.0.input_layernorm.weight", make_tensor("BF16", {256}, gaussian({1, 256}, 42))},
      {"model.layers.0.odd.stack", make_tensor("BF16", {2, 128, 128}, gaussian({256, 128}, 43))},
      {experts + "gate_up_proj", make_tensor("BF16", {4, 256, 128}, gaussian({1024, 128}, 44))},
      {experts + "down_proj", make_tensor("BF16", {4, 128, 128}, gaussian({512, 128}, 45))}};
  write_model(dir / "in", source, kPlainConfig);
  const Outcome run = quantize_run(dir, {"--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Tensors out = read_model(dir / "out").tensors;
  const Names expected_names = {experts + "gate_up_proj", experts + "down_proj",
                                "model.layers.0.self_attn.q_proj.weight",
                                "model.layers.0.self_attn.o_proj.weight"};
  EXPECT_EQ(quantized_in(out), expected_names);
  EXPECT_EQ(out.at(experts + "gate_up_proj_scale_inv").shape, (Dims{4, 2, 1}));
  EXPECT_EQ(out.at(experts + "down_proj_scale_inv").shape, (Dims{4, 1, 1}));
  for (const std::string& name : expected_names) {  // slice by slice
    const QuantizedTensors expected = expected_quantized(source.at(name), {});
    EXPECT_TRUE(out.at(name) == expected.codes) << name;
    EXPECT_TRUE(out.at(name + "_scale_inv") == expected.scales) << name;
  }
  expect_kept(source, out, {"model.layers.0.odd.stack", "model.layers.0.input_layernorm.weight"});
  const nlohmann::json report = run.json();
  EXPECT_EQ(report.at("quantized"), 4);
  EXPECT_EQ(report.at("kept"), 2);
  ASSERT_EQ(report.at("skipped").size(), 1u);
  EXPECT_EQ(report.at("skipped").at(0).at("name"), "model.layers.0.odd.stack");
  EXPECT_NE(report.at("skipped").at(0).at("reason"), "");

  const Outcome text = quantize_run(dir, {"--overwrite"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("quantized   4"), HasSubstr("kept        2"),
                              HasSubstr("model.layers.0.odd.stack")));
}

class Qnt05 : public ::testing::Test {
 protected:
  const std::string layer_ = "model.layers.0.";
  const Tensors source_ = {
      {layer_ + "mlp.gate.weight", bf16_weight({64, 256}, 50)},
      {layer_ + "mlp.gate.e_score_correction_bias",
       make_tensor("F32", {64}, gaussian({1, 64}, 51))},
      {layer_ + "mlp.gate_proj.weight", bf16_weight({512, 256}, 52)},
      {layer_ + "self_attn.q_proj.weight", bf16_weight(kSquare, 53)},
      {layer_ + "self_attn.q_proj.bias", make_tensor("BF16", {256}, gaussian({1, 256}, 54))},
      {layer_ + "self_attn.indexer.wq_b.weight", bf16_weight(kSquare, 55)},
      {layer_ + "self_attn.indexer.weights_proj.weight", bf16_weight({64, 256}, 56)},
      {layer_ + "self_attn.compressor.wkv.weight", bf16_weight(kSquare, 57)},
      {layer_ + "input_layernorm.weight", make_tensor("BF16", {256}, gaussian({1, 256}, 58))},
      {"model.embed_tokens.weight", bf16_weight({512, 256}, 59)},
      {"model.norm.weight", make_tensor("BF16", {256}, gaussian({1, 256}, 60))},
      {"lm_head.weight", bf16_weight({512, 256}, 61)}};
  const Names quantized_ = {layer_ + "mlp.gate_proj.weight", layer_ + "self_attn.q_proj.weight",
                            layer_ + "self_attn.indexer.wq_b.weight"};
  const Names matrices_kept_ = {layer_ + "mlp.gate", layer_ + "self_attn.indexer.weights_proj",
                                layer_ + "self_attn.compressor.wkv", "model.embed_tokens",
                                "lm_head"};
};

TEST_F(Qnt05, FragileWeightsStayWideAndGateProjDoesNot) {
  const TempDir dir;
  write_model(dir / "in", source_, kPlainConfig);
  const Outcome run = quantize_run(dir);
  ASSERT_EQ(run.status, 0) << run.err;
  const Model model = read_model(dir / "out");
  EXPECT_EQ(quantized_in(model.tensors), quantized_);
  for (const auto& [name, tensor] : source_) {
    if (!quantized_.contains(name)) expect_kept(source_, model.tensors, {name});
  }
  EXPECT_EQ(skip_list(model.config), matrices_kept_);
  for (const std::string& name : matrices_kept_) EXPECT_THAT(run.out, HasSubstr(name + ".weight"));
}

TEST_F(Qnt05, PlanSaysWhy) {
  const TempDir dir;
  write_model(dir / "in", source_, kPlainConfig);
  const Outcome run = run_octavo({"quantize", (dir / "in").string(), "--plan", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  std::map<std::string, std::string> reasons;
  const nlohmann::json plan = run.json();
  for (const auto& tensor : plan.at("tensors")) reasons[tensor.at("name")] = tensor.at("reason");
  EXPECT_EQ(reasons.size(), source_.size());
  EXPECT_EQ(reasons.at(layer_ + "mlp.gate.weight"), "router");
  EXPECT_EQ(reasons.at("lm_head.weight"), "output head");
  EXPECT_EQ(reasons.at("model.embed_tokens.weight"), "embedding");
  EXPECT_EQ(reasons.at(layer_ + "self_attn.indexer.weights_proj.weight"),
            "indexer weight projection");
  EXPECT_EQ(reasons.at(layer_ + "self_attn.compressor.wkv.weight"), "compressor");
}

// (name, source) of a model with tied embeddings.
struct Tied {
  const char* what;
  bool head;
  bool same;
};

TEST(Qnt08, TiedEmbeddings) {
  for (const Tied& tied : {Tied{"embedding alone", false, false}, Tied{"equal head", true, true},
                           Tied{"other head", true, false}}) {
    SCOPED_TRACE(tied.what);
    const TempDir dir;
    const Tensor embedding = bf16_weight({512, 256}, 80);
    Tensors source = {{"model.embed_tokens.weight", embedding},
                      {"model.layers.0.mlp.up_proj.weight", bf16_weight(kSquare, 81)}};
    if (tied.head) {
      source["lm_head.weight"] = embedding;
      if (!tied.same) source["lm_head.weight"].bytes.back() ^= 1;
    }
    write_model(dir / "in", source, R"({"tie_word_embeddings": true, "torch_dtype": "bfloat16"})");
    const Outcome run = quantize_run(dir);
    ASSERT_EQ(run.status, 0) << run.err;
    const Model model = read_model(dir / "out");
    EXPECT_EQ(model.tensors.contains("lm_head.weight"), tied.head);
    EXPECT_EQ(model.tensors.at("model.embed_tokens.weight"), embedding);
    if (tied.head) {
      EXPECT_EQ(model.tensors.at("lm_head.weight"), source.at("lm_head.weight"));
    }
    const bool differs = tied.head && !tied.same;
    EXPECT_EQ(model.config.at("tie_word_embeddings"), !differs);
    if (differs) {
      EXPECT_THAT(only_line(run), AllOf(HasSubstr("warning"), HasSubstr("tie_word_embeddings"),
                                        HasSubstr("lm_head")));
    } else {
      EXPECT_EQ(run.err, "");
    }
    ASSERT_EQ(quantize_run(dir, {"--overwrite"}).status, 0);
    EXPECT_EQ(read_model(dir / "out").tensors, model.tensors);

    // The dequantized model, quantized again, has the same set.
    ASSERT_EQ(run_octavo({"dequantize", (dir / "out").string(), (dir / "wide").string()}).status,
              0);
    ASSERT_EQ(run_octavo({"quantize", (dir / "wide").string(), (dir / "again").string()}).status,
              0);
    EXPECT_EQ(read_model(dir / "again").tensors, model.tensors);
  }
}

TEST(Qnt12, WrittenListIsWhatWasLeftWide) {
  const TempDir dir;
  Tensors source;
  for (int layer = 0; layer < 11; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    const auto seed = 300 + 10 * static_cast<std::uint64_t>(layer);
    source[at + "linear_attn.in_proj_qkv.weight"] = bf16_weight({128, 128}, seed);
    source[at + "linear_attn.out_proj.weight"] = bf16_weight({128, 128}, seed + 1);
    source[at + "mlp.shared_expert_gate.weight"] = bf16_weight({128, 128}, seed + 2);
    source[at + "mlp.up_proj.weight"] = bf16_weight({128, 128}, seed + 3);
    source[at + "mlp.up_proj_other.weight"] = bf16_weight({128, 128}, seed + 4);
    source[at + "norm.weight"] = make_tensor("BF16", {128}, gaussian({1, 128}, seed + 5));
  }
  write_model(dir / "in", source, kPlainConfig);
  const Outcome run =
      quantize_run(dir, {"--modules-to-not-convert", "linear_attn,model.layers.1.mlp.up_proj"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Model first = read_model(dir / "out");

  Names expected;
  for (const auto& [name, tensor] : source) {
    const bool pattern =
        name.find("linear_attn") != name.npos || name == "model.layers.1.mlp.up_proj.weight";
    EXPECT_EQ(first.tensors.at(name).dtype == "BF16",
              pattern || name.find("gate") != name.npos || name.find(".norm") != name.npos)
        << name;
    const bool wide_matrix =
        tensor.shape.size() >= 2 && !first.tensors.contains(name + "_scale_inv");
    if (wide_matrix) expected.insert(name.substr(0, name.size() - std::string(".weight").size()));
  }
  EXPECT_EQ(skip_list(first.config), expected);

  // The written config over the wide weights, and nothing else that says what to skip.
  write_model(dir / "again", source, first.config.dump(2));
  const Outcome second = run_octavo(
      {"quantize", (dir / "again").string(), (dir / "out2").string(), "--no-default-skips"});
  ASSERT_EQ(second.status, 0) << second.err;
  const Model again = read_model(dir / "out2");
  EXPECT_EQ(again.tensors, first.tensors);
  EXPECT_EQ(skip_list(again.config), expected);
}

TEST(Qnt12, AllFourKeysAreRead) {
  for (const char* key :
       {"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"}) {
    const TempDir dir;
    write_model(
        dir / "in",
        {{"a.q.weight", bf16_weight(kSquare, 121)}, {"a.k.weight", bf16_weight(kSquare, 122)}},
        R"({"quantization_config": {"quant_method": "fp8", ")" + std::string(key) +
            R"(": ["a.k"]}})");
    const Outcome run = quantize_run(dir);
    ASSERT_EQ(run.status, 0) << run.err;
    const Model model = read_model(dir / "out");
    EXPECT_EQ(quantized_in(model.tensors), Names{"a.q.weight"}) << key;
    EXPECT_EQ(skip_list(model.config), Names{"a.k"});
    if (key != std::string("modules_to_not_convert")) {
      EXPECT_FALSE(model.config.at("quantization_config").contains(key));
    }
  }
}

TEST(Qnt13, OddSmallTensorsStayAsTheyAre) {
  const TempDir dir;
  const std::string layer = "model.layers.0.";
  const Tensors source = {
      {layer + "mlp.shared_expert_gate.weight", bf16_weight({1, 256}, 130)},
      {layer + "linear_attn.conv1d.weight",
       make_tensor("BF16", {64, 1, 4}, gaussian({64, 4}, 131))},
      {layer + "self_attn.q_proj.bias", make_tensor("BF16", {256}, gaussian({1, 256}, 132))},
      {layer + "linear_attn.A_log", make_tensor("F32", {16}, gaussian({1, 16}, 133))},
      {layer + "self_attn.q_proj.weight", bf16_weight(kSquare, 134)}};
  write_model(dir / "in", source, kPlainConfig);
  const Outcome run = quantize_run(dir, {"--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Model model = read_model(dir / "out");
  EXPECT_EQ(model.tensors.size(), source.size() + 1);
  EXPECT_EQ(quantized_in(model.tensors), Names{layer + "self_attn.q_proj.weight"});
  for (const auto& [name, tensor] : source) {
    if (name != layer + "self_attn.q_proj.weight") expect_kept(source, model.tensors, {name});
  }
  EXPECT_EQ(skip_list(model.config),
            (Names{layer + "mlp.shared_expert_gate", layer + "linear_attn.conv1d"}));
  Names skipped;
  const nlohmann::json report = run.json();
  for (const auto& entry : report.at("skipped")) skipped.insert(entry.at("name"));
  EXPECT_EQ(skipped,
            (Names{layer + "mlp.shared_expert_gate.weight", layer + "linear_attn.conv1d.weight"}));
}

}  // namespace
}  // namespace octavo::tests
