// The ways in which FP8 checkpoints are written: what scales mean, fused weights, extra layers,
// configs that contradict the tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "octavo/models/models_testing.h"
#include "octavo/ops/weight_packer.h"

namespace octavo::models {
namespace {

using namespace octavo::testing;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Tokens kTokens{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};

class LoadLayouts : public DirectoryTest {
 protected:
  ModelFiles fp8(BlockSize block, const std::string& name = "llama3") const {
    QuantizeOptions options;
    options.recipe.block = block;
    const Checkpoint source = must(open_checkpoint(golden_models() / name));
    const std::filesystem::path quantized = directory_ / "quantized";
    std::filesystem::remove_all(quantized);
    must(quantize_checkpoint(source, must(plan_quantize(source, options)), options, {}, quantized));
    return read_files(quantized);
  }
  Result<LoadedModel> try_load(const ModelFiles& files, const LoadOptions& options = {}) const {
    const std::filesystem::path directory = directory_ / "model";
    std::filesystem::remove_all(directory);
    files.write(directory);
    const auto checkpoint = open_checkpoint(directory);
    if (!checkpoint) return std::unexpected(checkpoint.error());
    return load_model(*checkpoint, options);
  }
  std::string hash(const ModelFiles& files, const LoadOptions& options = {}) const {
    return hash_of(run_alone(must(try_load(files, options)).model, kTokens, {}));
  }
  std::string refusal(const ModelFiles& files, const LoadOptions& options = {}) const {
    const auto model = try_load(files, options);
    EXPECT_FALSE(model) << "loaded";
    return model ? "" : model.error().message;
  }
};

bool is_scale(const std::string& name) { return name.ends_with("weight_scale_inv"); }

// Rows of `parts` in one tensor of this name; of their scales too where they stay whole blocks.
void fuse(ModelFiles& files, const std::string& to, const std::vector<std::string>& parts) {
  RawTensor fused = files.at(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const RawTensor& part = files.at(parts[i]);
    fused.shape[0] += part.shape[0];
    fused.bytes += part.bytes;
  }
  fused.name = to;
  for (const std::string& part : parts) files.tensors.erase(part);
  files.add(std::move(fused));
}

void fuse_layers(ModelFiles& files, const std::string& suffix) {
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    fuse(files, layer + "mlp.gate_up_proj" + suffix,
         {layer + "mlp.gate_proj" + suffix, layer + "mlp.up_proj" + suffix});
    fuse(files, layer + "self_attn.qkv_proj" + suffix,
         {layer + "self_attn.q_proj" + suffix, layer + "self_attn.k_proj" + suffix,
          layer + "self_attn.v_proj" + suffix});
  }
}

// CFG-07: one tensor for gate and up, one for q, k and v, split where the config says, once.
TEST_F(LoadLayouts, FusedWeightsGiveTheSameLogits) {
  for (const char* name : {"llama3", "llama_yarn", "qwen2"}) {
    SCOPED_TRACE(name);
    ModelFiles wide = read_files(golden_models() / name);
    const std::string expected = hash(wide);
    fuse_layers(wide, ".weight");
    if (wide.tensors.contains("model.layers.0.self_attn.q_proj.bias")) {
      for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
        fuse(wide, layer + "self_attn.qkv_proj.bias",
             {layer + "self_attn.q_proj.bias", layer + "self_attn.k_proj.bias",
              layer + "self_attn.v_proj.bias"});
        if (!wide.tensors.contains(layer + "mlp.gate_proj.bias")) continue;
        fuse(wide, layer + "mlp.gate_up_proj.bias",
             {layer + "mlp.gate_proj.bias", layer + "mlp.up_proj.bias"});
      }
    }
    EXPECT_EQ(hash(wide), expected);
  }
}

TEST_F(LoadLayouts, FusedWeightsHaveTheRowsOfTheirParts) {
  ModelFiles files = read_files(golden_models() / "llama3");
  fuse_layers(files, ".weight");
  RawTensor& fused = files.at("model.layers.0.mlp.gate_up_proj.weight");
  fused.shape[0] += 1;
  fused.bytes += std::string(96 * 2, '\0');
  EXPECT_THAT(refusal(files), AllOf(HasSubstr("gate_up_proj.weight (BF16 [193, 96])"),
                                    HasSubstr("config.json says [192, 96]")));
  // The config calls for a bias, which must come with the fused weight.
  files = read_files(golden_models() / "qwen2");
  fuse_layers(files, ".weight");
  EXPECT_THAT(refusal(files), HasSubstr("self_attn.qkv_proj.bias"));
}

// Every part of llama3 is whole blocks of 32 rows.
TEST_F(LoadLayouts, FusedFp8WeightsGiveTheSameLogits) {
  ModelFiles files = fp8({32, 32});
  const std::string expected = hash(files);
  fuse_layers(files, ".weight");
  fuse_layers(files, ".weight_scale_inv");
  EXPECT_EQ(must(try_load(files)).report.fp8_layers, 14u);
  EXPECT_EQ(hash(files), expected);
}

// Blocks of 128 rows over gate and up of 96 rows each: the second block has rows of both, and up
// begins within the first one.
TEST_F(LoadLayouts, FusedBlocksNeedNotEndWithTheirPart) {
  ModelFiles files = read_files(golden_models() / "llama3");
  fuse_layers(files, ".weight");
  const std::filesystem::path fused = directory_ / "fused";
  files.write(fused);
  const Checkpoint source = must(open_checkpoint(fused));
  const QuantizeOptions options;
  must(quantize_checkpoint(source, must(plan_quantize(source, options)), options, {},
                           directory_ / "fused fp8"));
  const LoadedModel codes = load(directory_ / "fused fp8");
  EXPECT_EQ(codes.report.fp8_layers, 14u);

  // Its values, row by row: dequantized, then cut.
  DequantizeOptions to_f32;
  to_f32.dtype = DType::f32;
  const Checkpoint quantized = must(open_checkpoint(directory_ / "fused fp8"));
  must(dequantize_checkpoint(quantized, must(plan_dequantize(quantized, to_f32)), to_f32, {},
                             directory_ / "wide"));
  const ModelFiles wide = read_files(directory_ / "wide");
  const RawTensor& values = wide.tensors.at("model.layers.0.mlp.gate_up_proj.weight");
  const ops::PackedWeight& up = codes.model.layers[0].up_proj.weight;
  ASSERT_EQ(up.n, 96u);
  std::vector<float> row(up.k), expected(up.k);
  for (std::int32_t i = 0; i < 96; ++i) {
    ops::gather_rows(up, &i, 1, row.data(), row.size());
    std::memcpy(expected.data(),
                values.bytes.data() + (96 + static_cast<std::size_t>(i)) * up.k * sizeof(float),
                up.k * sizeof(float));
    ASSERT_EQ(row, expected) << i;
  }
  // Quantized at load: the same, as the converter would have written it.
  EXPECT_EQ(hash_of(run_alone(must(load_model(source, quantizing(options))).model, kTokens, {})),
            hash_of(run_alone(codes.model, kTokens, {})));
}

// CFG-05: a block grid, one scale for all, or one per row, whatever they are called.
TEST_F(LoadLayouts, ScalesMeanWhatTheirShapeSays) {
  const ModelFiles blocks = fp8({32, 32});
  const std::string expected = hash(blocks);
  for (const std::string suffix : {".weight_scale", ".scale"}) {
    ModelFiles renamed = blocks;
    for (const auto& [name, tensor] : blocks.tensors) {
      if (!is_scale(name)) continue;
      renamed.rename(name, name.substr(0, name.find(".weight_scale_inv")) + suffix);
    }
    EXPECT_EQ(hash(renamed), expected) << suffix;
  }

  // One scale for all: as 0-D, [1] and [1, 1], under each name.
  std::optional<std::string> one;
  for (const std::string suffix : {".weight_scale_inv", ".weight_scale"}) {
    for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{}, {1}, {1, 1}}) {
      ModelFiles files = blocks;
      files.config["quantization_config"].erase("weight_block_size");
      for (const auto& [name, tensor] : blocks.tensors) {
        if (!is_scale(name)) continue;
        files.tensors.erase(name);
        files.add({name.substr(0, name.find(".weight_scale_inv")) + suffix, "F32", shape,
                   floats({0.004f})});
      }
      const LoadedModel model = must(try_load(files));
      EXPECT_EQ(model.report.fp8_layers, 14u);
      const ops::PackedScales& scale = model.model.layers[1].down_proj.weight.scale;
      EXPECT_THAT(scale.data, ElementsAre(0.004f));
      EXPECT_EQ(scale.width, 0u);
      const std::string logits = hash(files);
      if (!one) one = logits;
      EXPECT_EQ(logits, *one) << suffix;
    }
  }
  EXPECT_NE(*one, expected);
}

TEST_F(LoadLayouts, ScalesPerRow) {
  ModelFiles files = fp8({1, 128});
  const std::string expected = hash(files);
  files.config["quantization_config"].erase("weight_block_size");
  EXPECT_EQ(hash(files), expected);
}

// DEQ-09: the tensors count, and one line says that the config does not agree.
TEST_F(LoadLayouts, TensorsCountWhereTheConfigDisagrees) {
  const ModelFiles quantized = fp8({});
  ModelFiles claims = read_files(golden_models() / "llama3");
  const std::string wide = hash(claims);
  claims.config["quantization_config"] = quantized.config.at("quantization_config");
  EXPECT_EQ(hash(claims), wide);
  const LoadedModel model = must(try_load(claims));
  EXPECT_EQ(model.report.fp8_layers, 0u);
  EXPECT_THAT(model.report.notes,
              ElementsAre(AllOf(HasSubstr("config.json: it says quant_method \"fp8\""),
                                HasSubstr("the tensors count"))));

  ModelFiles silent = quantized;
  silent.config.erase("quantization_config");
  EXPECT_EQ(hash(silent), hash(quantized));
  EXPECT_THAT(must(try_load(silent)).report.notes,
              ElementsAre(AllOf(HasSubstr("no quantization_config"), HasSubstr("tensors count"))));
  EXPECT_THAT(must(try_load(quantized)).report.notes, IsEmpty());
}

// DEQ-12: multi-token prediction layers are left out, in one line with their count.
TEST_F(LoadLayouts, PredictionLayersAreLeftOutAndCounted) {
  ModelFiles files = fp8({});
  const std::string expected = hash(files);
  const ModelFiles before = files;
  files.config["num_nextn_predict_layers"] = 1;
  std::size_t extra = 0;
  const auto add = [&](RawTensor tensor, const std::string& name) {
    tensor.name = name;
    files.add(std::move(tensor));
    ++extra;
  };
  for (const auto& [name, tensor] : before.tensors) {
    const std::string first = "model.layers.0.";
    if (name.starts_with(first)) add(tensor, "model.layers.2." + name.substr(first.size()));
  }
  for (const char* name : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"}) {
    add(before.tensors.at("model.norm.weight"), std::string("model.layers.2.") + name);
  }
  for (const char* name : {"eh_proj.weight", "shared_head.head.weight", "embed_tokens.weight"}) {
    add(before.tensors.at("lm_head.weight"), std::string("model.layers.2.") + name);
  }
  EXPECT_EQ(hash(files), expected);
  EXPECT_THAT(must(try_load(files)).report.notes,
              ElementsAre(AllOf(HasSubstr(std::to_string(extra) + " tensors of 1 "),
                                HasSubstr("multi-token prediction"))));
  // Without the config's word they are unexpected.
  files.config.erase("num_nextn_predict_layers");
  EXPECT_THAT(refusal(files), AllOf(HasSubstr("model.layers.2."), HasSubstr("is in the files")));
}

// What cannot be paired is named; --missing-scale-as-one is asked for, never assumed.
TEST_F(LoadLayouts, CodesWithoutScales) {
  ModelFiles files = fp8({});
  const std::string weight = "model.layers.1.mlp.down_proj.weight";
  files.tensors.erase(weight + "_scale_inv");
  EXPECT_THAT(refusal(files), AllOf(HasSubstr(weight), HasSubstr("no scale for it")));
  LoadOptions options;
  options.pairing.missing_scale_as_one = true;
  EXPECT_THAT(must(try_load(files, options)).model.layers[1].down_proj.weight.scale.data,
              Contains(1.0f));

  files = fp8({});
  files.tensors.erase(weight);
  EXPECT_THAT(refusal(files), HasSubstr(weight));
  files = fp8({});
  files.at(weight + "_scale_inv").shape = {2, 1};
  files.at(weight + "_scale_inv").bytes += files.at(weight + "_scale_inv").bytes;
  EXPECT_THAT(refusal(files), HasSubstr(weight));
}

}  // namespace
}  // namespace octavo::models
