// CFG cases about running checkpoints whose scales and weights are written in other ways.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace octavo::tests
