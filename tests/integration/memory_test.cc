// What a model takes in memory while it is loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace octavo::tests {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kHidden = 1024, kIntermediate = 4096, kLayers = 8;

// 268 MB of BF16 zeros that take no disk space.
std::string write_wide_model(const std::filesystem::path& directory) {
  nlohmann::json config = tiny_model("llama_tied").config;
  config.update({{"hidden_size", kHidden},
                 {"intermediate_size", kIntermediate},
                 {"num_hidden_layers", kLayers},
                 {"num_attention_heads", 16},
                 {"num_key_value_heads", 16},
                 {"head_dim", 64},
                 {"tie_word_embeddings", true}});
  config.erase("layer_types");
  std::vector<SparseTensor> tensors;
  const auto add = [&](const std::string& name, const Dims& shape) {
    tensors.push_back({name, "BF16", shape, {}});
  };
  add("model.embed_tokens.weight", {160, kHidden});
  add("model.norm.weight", {kHidden});
  for (std::uint64_t i = 0; i < kLayers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm.weight", {kHidden});
    add(layer + "post_attention_layernorm.weight", {kHidden});
    for (const char* name : {"q", "k", "v", "o"})
      add(layer + "self_attn." + name + "_proj.weight", {kHidden, kHidden});
    for (const char* name : {"gate", "up"})
      add(layer + "mlp." + name + "_proj.weight", {kIntermediate, kHidden});
    add(layer + "mlp.down_proj.weight", {kHidden, kIntermediate});
  }
  std::filesystem::create_directory(directory);
  write_sparse_file(directory / "model.safetensors", tensors);
  write_string(directory / "config.json", config.dump());
  write_string(directory / "tokenizer.json", character_tokenizer());
  return directory.string();
}

// "memory: at most 187.3 MB while loading", in bytes.
double ceiling_of(const std::string& err) {
  constexpr std::string_view kHead = "memory: at most ";
  const auto head = err.find(kHead);
  if (head == std::string::npos) return 0;
  std::istringstream words(err.substr(head + kHead.size()));
  double megabytes = 0;
  std::string unit;
  return words >> megabytes >> unit && unit == "MB" ? 1e6 * megabytes : 0;
}

TEST(LoadMemory, QuantizingAtLoadStaysBelowThePrintedCeiling) {
  if (built_with_sanitizers()) GTEST_SKIP() << "sanitizers take memory of their own";
  const TempDir dir;
  const std::string model = write_wide_model(dir / "model");
  const MeasuredOutcome measured =
      run_octavo_measured({"generate", model, "-p", "a", "-n", "1", "--quantize", "float"});
  ASSERT_EQ(measured.run.status, 0) << measured.run.err;
  EXPECT_THAT(measured.run.err, HasSubstr("56 linear layers in FP8"));
  const double ceiling = ceiling_of(measured.run.err);
  std::printf("%.1f MB at most, %.1f MB said\n", 1e-6 * static_cast<double>(measured.peak_bytes),
              1e-6 * ceiling);
  EXPECT_LE(static_cast<double>(measured.peak_bytes), ceiling);
  // Far from holding the wide model.
  EXPECT_LT(ceiling,
            static_cast<double>(std::filesystem::file_size(dir / "model" / "model.safetensors")));
}

}  // namespace
}  // namespace octavo::tests
