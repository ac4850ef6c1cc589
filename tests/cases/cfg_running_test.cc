// CFG cases about running checkpoints whose scales and weights are written in other ways.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/tiny_model.h"

namespace octavo::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool is_scale(const std::string& name) { return name.ends_with(".weight_scale_inv"); }

// Block scales and one scale for all, both called weight_scale_inv: the shape says which.
TEST(Cfg05, ScalesMeanWhatTheirShapeSays) {
  const TinyModel blocks = fp8_model(tiny_model("llama3"), {"--weight-block-size", "32,32"});
  std::size_t scales = 0;
  for (const auto& [name, tensor] : blocks.tensors) scales += is_scale(name) ? 1 : 0;
  ASSERT_EQ(scales, 14u);
  const Quality expected = quality(blocks);
  EXPECT_THAT(expected.err, HasSubstr("14 linear layers in FP8"));

  // One scale for all, under both names, runs as well.
  TinyModel scalars = blocks;
  scalars.config["quantization_config"].erase("weight_block_size");
  for (const auto& [name, tensor] : blocks.tensors) {
    if (is_scale(name)) scalars.tensors[name] = make_tensor("F32", {}, std::vector<float>{0.004f});
  }
  TinyModel renamed = scalars;
  for (const auto& [name, tensor] : scalars.tensors) {
    if (!is_scale(name)) continue;
    renamed.tensors.erase(name);
    renamed.tensors[name.substr(0, name.find("_inv"))] = tensor;
  }
  const Quality one = quality(scalars);
  EXPECT_THAT(one.err, HasSubstr("14 linear layers in FP8"));
  EXPECT_NE(one.negative_log_likelihood, expected.negative_log_likelihood);
  EXPECT_EQ(quality(renamed).negative_log_likelihood, one.negative_log_likelihood);
}

void append_rows(Tensors& tensors, const std::string& to, const std::vector<std::string>& parts) {
  Tensor fused = tensors.at(parts.front());
  fused.shape[0] = 0;
  fused.bytes.clear();
  for (const std::string& part : parts) {
    const Tensor& tensor = tensors.at(part);
    fused.shape[0] += tensor.shape[0];
    fused.bytes.insert(fused.bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    tensors.erase(part);
  }
  tensors[to] = std::move(fused);
}

TEST(Cfg07, FusedOnDiskGivesTheSameLogits) {
  const TinyModel separate = fp8_model(tiny_model("llama3"), {"--weight-block-size", "32,32"});
  TinyModel fused = separate;
  for (const std::string mlp : {"model.layers.0.mlp.", "model.layers.1.mlp."}) {
    for (const std::string end : {".weight", ".weight_scale_inv"}) {
      append_rows(fused.tensors, mlp + "gate_up_proj" + end,
                  {mlp + "gate_proj" + end, mlp + "up_proj" + end});
    }
  }
  EXPECT_EQ(quality(fused).negative_log_likelihood, quality(separate).negative_log_likelihood);

  // A scale that went missing is an error, not other text.
  fused.tensors.erase("model.layers.1.mlp.gate_up_proj.weight_scale_inv");
  EXPECT_THAT(refusal(fused),
              AllOf(HasSubstr("model.layers.1.mlp.gate_up_proj.weight"), HasSubstr("no scale")));
}

Tensor f32(const std::vector<float>& values, const Dims& shape = {}) {
  return make_tensor("F32", shape, values);
}

TEST(Cfg09, BrokenScalesOfTheKvCacheAreRefusedWithTheirLayer) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::string name = "model.layers.1.self_attn.k_scale";
  const std::pair<Tensor, const char*> broken[] = {
      {f32({std::numeric_limits<float>::quiet_NaN()}), ": nan,"},
      {f32({kInf}), ": inf,"},
      {f32({0.0f}), ": 0,"},
      {f32({-1.0f}), ": -1,"},
      {f32(std::vector<float>(8, 1.0f), {8}), "[8]"}};
  for (const auto& [tensor, said] : broken) {
    TinyModel model = tiny_model("llama3");
    model.tensors[name] = tensor;
    model.tensors["model.layers.1.self_attn.v_scale"] = f32({0.07f});
    EXPECT_THAT(refusal(model),
                AllOf(HasSubstr(name), HasSubstr(said), HasSubstr("--ignore-kv-scales")));
    EXPECT_EQ(quality(model, {"--ignore-kv-scales"}).negative_log_likelihood,
              quality(tiny_model("llama3")).negative_log_likelihood);
  }
}

// Our cache has a scale for each token and head: those of a file are counted, and none is missed.
TEST(Cfg10, ScalesOfTheKvCacheAreToldOnce) {
  TinyModel model = tiny_model("llama3");
  const Quality without = quality(model, {"--kv-cache-dtype", "fp8"});
  EXPECT_EQ(count_of(without.err, "scales of queries"), 0u);
  EXPECT_EQ(count_of(without.err, "warning"), 0u);
  for (const std::string layer : {"model.layers.0.self_attn.", "model.layers.1.self_attn."}) {
    model.tensors[layer + "k_scale"] = f32({0.25f});
    model.tensors[layer + "v_scale"] = f32({0.5f});
  }
  const Quality with = quality(model, {"--kv-cache-dtype", "fp8"});
  EXPECT_EQ(count_of(with.err, "4 scales of queries, keys and values in the files (0.25 to 0.5)"),
            1u);
  EXPECT_EQ(count_of(with.err, "warning"), 0u);
  EXPECT_EQ(with.negative_log_likelihood, without.negative_log_likelihood);
}

TEST(Cfg11, EverySpellingOfKvScalesIsUnderstood) {
  const double expected = quality(tiny_model("llama3")).negative_log_likelihood;
  for (const char* name : {"k_proj.k_scale", "attn.k_scale", "k_scale", "kv_scale"}) {
    TinyModel model = tiny_model("llama3");
    model.tensors[std::string("model.layers.1.self_attn.") + name] = f32({0.125f});
    const Quality run = quality(model);
    EXPECT_THAT(run.err, HasSubstr("1 scale of queries, keys and values in the files (0.125 to"));
    EXPECT_EQ(run.negative_log_likelihood, expected);
  }
}

TEST(Cfg14, AValueScaleWithoutAKeyScaleIsNoReasonToStop) {
  TinyModel model = tiny_model("llama3");
  const double expected = quality(model, {"--kv-cache-dtype", "fp8"}).negative_log_likelihood;
  model.tensors["model.layers.0.self_attn.v_scale"] = f32({0.07f});
  EXPECT_EQ(quality(model, {"--kv-cache-dtype", "fp8"}).negative_log_likelihood, expected);
}

}  // namespace
}  // namespace octavo::tests
