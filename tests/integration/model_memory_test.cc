// What a model takes while it runs: at most 1.1 times weights and KV cache, and a constant, which
// docs/cli.md states.
#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace octavo::tests {
namespace {

// Program and tokenizer, the pieces that a model is loaded in, and what allocators keep.
constexpr std::uint64_t kConstant = 48'000'000;
constexpr std::uint64_t kHidden = 512, kInner = 2048, kLayers = 12, kHeads = 8, kKvHeads = 4,
                        kHeadDim = 64, kVocabulary = 160;

// Weights of zeros: a file that takes no disk space, which is more than a third larger than the
// constant in FP8 as well.
class ModelMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (built_with_sanitizers()) GTEST_SKIP() << "the sanitizers take memory of their own";
    std::vector<SparseTensor> tensors;
    const auto add = [&](const std::string& name, Dims shape) {
      std::uint64_t count = 1;
      for (const std::uint64_t size : shape) count *= size;
      weights_ += 2 * count;
      tensors.push_back({name, "BF16", std::move(shape), {}});
    };
    const auto add_linear = [&](const std::string& name, std::uint64_t rows, std::uint64_t cols) {
      add(name + ".weight", {rows, cols});
      fp8_ += rows * cols + 4 * (rows / 128) * (cols / 128) - 2 * rows * cols;
    };
    add("model.embed_tokens.weight", {kVocabulary, kHidden});
    add("model.norm.weight", {kHidden});
    for (std::uint64_t i = 0; i < kLayers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      add(layer + "input_layernorm.weight", {kHidden});
      add(layer + "post_attention_layernorm.weight", {kHidden});
      add_linear(layer + "self_attn.q_proj", kHeads * kHeadDim, kHidden);
      add_linear(layer + "self_attn.k_proj", kKvHeads * kHeadDim, kHidden);
      add_linear(layer + "self_attn.v_proj", kKvHeads * kHeadDim, kHidden);
      add_linear(layer + "self_attn.o_proj", kHidden, kHeads * kHeadDim);
      add_linear(layer + "mlp.gate_proj", kInner, kHidden);
      add_linear(layer + "mlp.up_proj", kInner, kHidden);
      add_linear(layer + "mlp.down_proj", kHidden, kInner);
    }
    fp8_ += weights_;
    model_ = (dir_ / "model").string();
    std::filesystem::create_directories(model_);
    write_sparse_file(dir_ / "model/model.safetensors", tensors);
    const nlohmann::json config{{"architectures", {"LlamaForCausalLM"}},
                                {"model_type", "llama"},
                                {"hidden_size", kHidden},
                                {"intermediate_size", kInner},
                                {"num_hidden_layers", kLayers},
                                {"num_attention_heads", kHeads},
                                {"num_key_value_heads", kKvHeads},
                                {"head_dim", kHeadDim},
                                {"vocab_size", kVocabulary},
                                {"max_position_embeddings", 1024},
                                {"rms_norm_eps", 1e-5},
                                {"tie_word_embeddings", true}};
    write_string(dir_ / "model/config.json", config.dump());
    write_string(dir_ / "model/tokenizer.json", character_tokenizer());
  }

  // A prompt of more than a chunk, and what follows.
  void expect_memory(const std::string& model, std::uint64_t weights, std::uint64_t kv_bytes,
                     const std::vector<std::string>& options) const {
    constexpr std::uint64_t kPrompt = 600, kNew = 20;
    std::vector<std::string> arguments{
        "generate",           model,    "-p", std::string(kPrompt, 'a'), "-n",
        std::to_string(kNew), "--json", "-q"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const auto [run, peak] = run_octavo_measured(arguments);
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.json().at("tokens").size(), kNew);
    const std::uint64_t kv = (kPrompt + kNew) * kLayers * 2 * kKvHeads * kHeadDim * kv_bytes;
    EXPECT_LE(peak, (weights + kv) * 11 / 10 + kConstant) << weights << " + " << kv;
    EXPECT_GE(peak, weights + kv);  // what is counted is there
    RecordProperty("beyond_weights_and_kv", std::to_string(peak - weights - kv));
  }

  const TempDir dir_;
  std::string model_;
  std::uint64_t weights_ = 0, fp8_ = 0;  // bytes
};

TEST_F(ModelMemory, IsWeightsKvAndAConstant) {
  expect_memory(model_, weights_, 2, {});
  expect_memory(model_, weights_, 4, {"--activations", "f32", "--kv-cache-dtype", "f32"});
}

// Never with the wide model in memory.
TEST_F(ModelMemory, OfAModelQuantizedAtLoadIsThatOfItsCodes) {
  expect_memory(model_, fp8_, 2, {"--quantize", "float"});
  const std::string codes = (dir_ / "codes").string();
  const Outcome run = run_octavo({"quantize", model_, codes});
  ASSERT_EQ(run.status, 0) << run.err;
  std::filesystem::copy(dir_ / "model/tokenizer.json", dir_ / "codes/tokenizer.json",
                        std::filesystem::copy_options::overwrite_existing);
  expect_memory(codes, fp8_, 2, {});
  expect_memory(codes, weights_, 2, {"--dequantize"});
}

}  // namespace
}  // namespace octavo::tests
