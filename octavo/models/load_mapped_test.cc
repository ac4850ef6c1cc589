// Weights that are left in their files: the same bits as packed ones, whatever the files are like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/models/models_testing.h"

namespace octavo::models {
namespace {

using namespace octavo::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Tokens kTokens{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};

LoadOptions placed(WeightPlacement weights, LoadOptions options = {}) {
  options.weights = weights;
  return options;
}

class LoadMapped : public DirectoryTest {
 protected:
  std::filesystem::path quantized(const std::filesystem::path& from, BlockSize block) const {
    QuantizeOptions options;
    options.recipe.block = block;
    const Checkpoint source = must(open_checkpoint(from));
    const std::filesystem::path to = directory_ / "quantized";
    std::filesystem::remove_all(to);
    must(quantize_checkpoint(source, must(plan_quantize(source, options)), options, {}, to));
    return to;
  }

  // The files in a directory, tensors at offsets of this remainder by 4 (of one another they are
  // multiples of 4 apart, but for what tests add).
  std::filesystem::path written(ModelFiles files, std::size_t remainder) const {
    const std::filesystem::path to = directory_ / "written";
    for (std::size_t lead = 1; lead <= 8; ++lead) {
      files.add({"a.rotary_emb.inv_freq", "U8", {lead}, std::string(lead, 'x')});
      std::filesystem::remove_all(to);
      files.write(to);
      if (must(open_checkpoint(to)).find("lm_head.weight")->info.offset % 4 == remainder) break;
    }
    EXPECT_EQ(must(open_checkpoint(to)).find("lm_head.weight")->info.offset % 4, remainder);
    return to;
  }

  // The logits are the same in every way to run, and as many weights as said are left in the files.
  static void expect_same(const std::filesystem::path& model, std::size_t mapped,
                          const LoadOptions& options = {}) {
    const LoadedModel packed = load(model, placed(WeightPlacement::packed, options));
    const LoadedModel left = load(model, placed(WeightPlacement::mapped, options));
    EXPECT_EQ(packed.report.placement.mapped_weights, 0u);
    EXPECT_TRUE(packed.model.mapped_files.empty());
    const std::size_t all = packed.report.placement.packed_weights;
    EXPECT_EQ(left.report.placement.mapped_weights, mapped);
    EXPECT_EQ(left.report.placement.packed_weights, all - mapped);
    EXPECT_EQ(left.model.mapped_files.size(), mapped == 0 ? 0u : 1u);
    EXPECT_EQ(left.report.fp8_layers, packed.report.fp8_layers);
    for (const auto& [activations, kv, chunk, threads] :
         {std::tuple{nn::ActivationType::fp8, Format::bf16, 512, 2},
          {nn::ActivationType::bf16, Format::e4m3fn, 1, 1},
          {nn::ActivationType::f32, Format::f32, 7, 3}}) {
      const RunOptions run{activations, kv, static_cast<std::size_t>(chunk), threads};
      EXPECT_EQ(hash_of(run_alone(left.model, kTokens, run)),
                hash_of(run_alone(packed.model, kTokens, run)));
    }
  }
};

TEST_F(LoadMapped, GivesTheBitsOfPackedWeights) {
  for (const char* name : kTinyModels) {
    SCOPED_TRACE(name);
    const std::filesystem::path model = golden_models() / name;
    const bool tied = name == std::string("llama_tied");
    const std::size_t all =
        14 + (load(model).model.embed_tokens.has_value() ? std::size_t{2} : std::size_t{1});
    EXPECT_TRUE(!tied || all == 15);
    expect_same(model, all);
    for (const BlockSize block : {BlockSize{}, BlockSize{32, 32}, BlockSize{1, 128}}) {
      expect_same(quantized(model, block), all);
    }
    // What is made while loading is in no file.
    expect_same(model, all - 14, quantizing(QuantizeOptions{}));
    expect_same(quantized(model, {}), all - 14, dequantizing());
  }
}

// Blocks of 128 rows over gate and up of 96: the second block has rows of both.
TEST_F(LoadMapped, PartsOfFusedWeightsAreLeftToo) {
  ModelFiles files = read_files(golden_models() / "llama3");
  for (const std::string layer : {"model.layers.0.mlp.", "model.layers.1.mlp."}) {
    RawTensor fused = files.at(layer + "gate_proj.weight");
    const RawTensor& up = files.at(layer + "up_proj.weight");
    fused.name = layer + "gate_up_proj.weight";
    fused.shape[0] += up.shape[0];
    fused.bytes += up.bytes;
    files.tensors.erase(layer + "gate_proj.weight");
    files.tensors.erase(layer + "up_proj.weight");
    files.add(fused);
  }
  const std::filesystem::path fused = written(files, 0);
  expect_same(fused, 16);
  expect_same(quantized(fused, {}), 16);
}

// Products take BF16 at even addresses only.
TEST_F(LoadMapped, MisalignedTensorsArePacked) {
  const ModelFiles files = read_files(golden_models() / "llama3");
  expect_same(written(files, 0), 16);
  expect_same(written(files, 2), 16);
  expect_same(written(files, 1), 0);
  expect_same(written(files, 3), 0);
  // Bytes have no wrong address: only the embeddings and the head are packed.
  expect_same(written(read_files(quantized(golden_models() / "llama3", {})), 1), 14);
}

TEST_F(LoadMapped, F16IsPackedAsF32) {
  ModelFiles files = read_files(golden_models() / "llama3");
  RawTensor& gate = files.at("model.layers.0.mlp.gate_proj.weight");
  gate.dtype = "F16";
  gate.bytes = std::string(gate.bytes.size(), '\x11');
  expect_same(written(files, 0), 15);
}

// Mapped only where the packed weights, with keys and values beside them, do not fit.
TEST_F(LoadMapped, AutomaticDecidesByMemory) {
  const std::filesystem::path model = golden_models() / "llama3";
  LoadOptions options;
  options.kv_cache = Format::f32;
  EXPECT_EQ(load(model, options).report.placement.mapped_weights, 0u);  // this machine has enough
  const std::uint64_t weights = must(open_checkpoint(model)).tensor_bytes;
  options.available_bytes = weights;
  const PlacementReport left = load(model, options).report.placement;
  EXPECT_EQ(left.mapped_weights, 16u);
  EXPECT_EQ(left.packed_weights, 0u);
  EXPECT_EQ(left.packed_bytes, weights);
  EXPECT_EQ(left.available_bytes, weights);
  const ModelConfig& config = load(model).model.config;
  EXPECT_EQ(left.kv_bytes,
            ops::kv_cache_bytes({config.num_hidden_layers, config.num_key_value_heads,
                                 config.head_dim, config.max_position_embeddings, Format::f32}));
  options.available_bytes = weights + left.kv_bytes - 1;
  EXPECT_EQ(load(model, options).report.placement.mapped_weights, 16u);
  options.available_bytes++;
  const PlacementReport packed = load(model, options).report.placement;
  EXPECT_EQ(packed.mapped_weights, 0u);
  EXPECT_EQ(packed.available_bytes, 0u);
}

TEST_F(LoadMapped, RefusesWhatNeitherMemoryNorAFileHolds) {
  const Checkpoint model = must(open_checkpoint(golden_models() / "llama3"));
  LoadOptions options = quantizing(QuantizeOptions{});
  options.available_bytes = 10'000;
  const auto refused = load_model(model, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_value);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("llama3"), HasSubstr("10.0 kB are available"),
                    HasSubstr("octavo quantize"), HasSubstr("--weights packed")));
  EXPECT_TRUE(is_one_line(refused.error().message));
  EXPECT_TRUE(load_model(model, placed(WeightPlacement::packed, options)));
}

// What is packed for its odd address alone counts as well: 7 + 7 matrices, embeddings and the head.
TEST_F(LoadMapped, RefusesMisalignedWeightsThatMemoryDoesNotHold) {
  const ModelFiles files = read_files(golden_models() / "llama3");
  LoadOptions options;
  options.available_bytes = 50'000;
  const std::filesystem::path aligned = written(files, 2);
  EXPECT_EQ(load(aligned, options).report.placement.mapped_weights, 16u);
  const Checkpoint misaligned = must(open_checkpoint(written(files, 1)));
  EXPECT_GT(misaligned.tensor_bytes, options.available_bytes);
  const auto refused = load_model(misaligned, options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("odd addresses"), HasSubstr("50.0 kB are available")));
  EXPECT_TRUE(load_model(misaligned, placed(WeightPlacement::packed, options)));
}

TEST_F(LoadMapped, AFileThatShrankIsAnError) {
  const std::filesystem::path model = directory_ / "model";
  read_files(golden_models() / "llama3").write(model);
  const Checkpoint checkpoint = must(open_checkpoint(model));
  std::filesystem::resize_file(model / "model.safetensors", 5000);
  const auto refused = load_model(checkpoint, placed(WeightPlacement::mapped));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_file);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("model.safetensors: truncated"), HasSubstr("5000 now")));
}

}  // namespace
}  // namespace octavo::models
