// Commands that run a model: the same bits whatever should not matter, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace octavo::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Models : public ::testing::Test {
 protected:
  std::string written(const TinyModel& model, const char* name = "model") const {
    model.write(dir_ / name);
    return (dir_ / name).string();
  }
  std::vector<int> tokens(const std::string& model, const std::vector<std::string>& options,
                          std::string_view before = "") const {
    std::vector<std::string> arguments{"generate", model, "-p",    "Once upon a time there was",
                                       "-n",       "50",  "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome run = run_octavo(arguments, before);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.status == 0 ? run.json().at("tokens").get<std::vector<int>>() : std::vector<int>{};
  }
  const TempDir dir_;
};

TEST_F(Models, SameBitsForEveryLevelThreadAndChunk) {
  const std::string model = written(tiny_model("mistral"));
  for (const std::vector<std::string>& way :
       {std::vector<std::string>{"--activations", "f32", "--kv-cache-dtype", "f32"},
        {"--quantize", "ue8m0", "--kv-cache-dtype", "fp8"}}) {
    const double expected = quality(model, way).negative_log_likelihood;
    const std::vector<int> greedy = tokens(model, way);
    EXPECT_EQ(greedy.size(), 50u);
    std::vector<std::string> with = way;
    for (const char* option : {"--threads", "1", "--prompt-chunk", "1"}) with.emplace_back(option);
    for (const std::string& level : kernel_levels()) {
      SCOPED_TRACE(level);
      const std::string before = "OCTAVO_CPU=" + level + " ";
      EXPECT_EQ(quality(model, with, before).negative_log_likelihood, expected);
      EXPECT_EQ(tokens(model, with, before), greedy);
    }
  }
}

// A batch says what each prompt says alone.
TEST_F(Models, PromptsSideBySideSayWhatTheySayAlone) {
  const std::string model = written(tiny_model("qwen3"));
  const std::vector<std::string> prompts{"abc", "A longer prompt than the others", "x"};
  std::vector<std::string> arguments{"generate", model, "-n", "30", "--json"};
  for (const std::string& prompt : prompts) {
    arguments.emplace_back("-p");
    arguments.push_back(prompt);
  }
  const Outcome batch = run_octavo(arguments);
  ASSERT_EQ(batch.status, 0) << batch.err;
  const nlohmann::json sequences = batch.json().at("sequences");
  ASSERT_EQ(sequences.size(), prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Outcome alone = run_octavo({"generate", model, "-n", "30", "--json", "-p", prompts[i]});
    ASSERT_EQ(alone.status, 0) << alone.err;
    EXPECT_EQ(sequences[i].at("tokens"), alone.json().at("tokens"));
    EXPECT_EQ(sequences[i].at("text"), alone.json().at("text"));
  }
}

// Saved after quantizing at load: the bytes of `quantize`, and the same logits.
TEST_F(Models, SavedIsWhatQuantizeWrites) {
  const std::string model = written(tiny_model("llama_tied"));
  for (const char* scales : {"float", "ue8m0"}) {
    SCOPED_TRACE(scales);
    const std::string saved = (dir_ / (std::string("saved ") + scales)).string();
    const std::string converted = (dir_ / (std::string("converted ") + scales)).string();
    const std::vector<int> before = tokens(model, {"--quantize", scales, "--save", saved});
    const Outcome quantize = scales == std::string("float")
                                 ? run_octavo({"quantize", model, converted})
                                 : run_octavo({"quantize", model, converted, "--scale-fmt", "ue8m0",
                                               "--scale-dtype", "e8m0"});
    ASSERT_EQ(quantize.status, 0) << quantize.err;
    for (const char* file : {"model.safetensors", "config.json"}) {
      EXPECT_EQ(read_bytes(std::filesystem::path(saved) / file),
                read_bytes(std::filesystem::path(converted) / file));
    }
    EXPECT_EQ(tokens(saved, {}), before);
    EXPECT_EQ(quality(saved).negative_log_likelihood,
              quality(model, {"--quantize", scales}).negative_log_likelihood);
  }
}

TEST_F(Models, RefusesInOneLine) {
  const TinyModel tiny = tiny_model("llama3");
  const auto message = [](const std::vector<std::string>& arguments, int status = 1) {
    const Outcome run = run_octavo(arguments);
    EXPECT_EQ(run.status, status) << run.err;
    EXPECT_EQ(run.out, "");
    return only_line(run);
  };
  EXPECT_THAT(message({"generate", (dir_ / "none").string(), "-p", "a"}), HasSubstr("none"));

  TinyModel other = tiny;
  other.config["architectures"] = {"MambaForCausalLM"};
  EXPECT_THAT(refusal(other),
              AllOf(HasSubstr("MambaForCausalLM is not supported"), HasSubstr("LlamaForCausalLM")));
  TinyModel lacking = tiny;
  lacking.tensors.erase("model.layers.0.mlp.up_proj.weight");
  EXPECT_THAT(refusal(lacking), HasSubstr("model.layers.0.mlp.up_proj.weight"));
  TinyModel wrong = tiny;
  wrong.config["hidden_size"] = 95;
  EXPECT_NE(refusal(wrong), "");

  const std::string model = written(tiny);
  const std::string long_prompt(300, 'a');
  EXPECT_THAT(message({"generate", model, "-q", "-p", long_prompt}, 2),
              AllOf(HasSubstr("300"), HasSubstr("256")));
  const std::string invalid = "a\xFF\x62";
  EXPECT_THAT(message({"generate", model, "-q", "-p", "ab", "-p", invalid}, 2),
              HasSubstr("prompt 2: not valid UTF-8 at offset 1"));
  write_string(dir_ / "invalid", invalid);
  const std::string file = (dir_ / "invalid").string();
  EXPECT_THAT(message({"perplexity", model, "-q", "--file", file}, 1),
              HasSubstr(file + ": not valid UTF-8 at offset 1"));
  std::filesystem::remove(dir_ / "model" / "tokenizer.json");
  EXPECT_THAT(message({"generate", model, "-p", "a"}), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace octavo::tests
