// DEQ cases about running what was converted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace octavo::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Deq09, ConfigsThatContradictTheTensorsAreNamedAndTheTensorsCount) {
  const TinyModel wide = tiny_model("llama3"), fp8 = fp8_model(wide);
  const Quality plain = quality(wide);
  EXPECT_THAT(plain.err, Not(HasSubstr("the tensors count")));
  TinyModel claims = wide;
  claims.config["quantization_config"] = fp8.config.at("quantization_config");
  const Quality claimed = quality(claims);
  EXPECT_EQ(claimed.negative_log_likelihood, plain.negative_log_likelihood);
  EXPECT_EQ(count_of(claimed.err, "the tensors count"), 1u);
  EXPECT_THAT(claimed.err,
              AllOf(HasSubstr("quant_method \"fp8\""), HasSubstr("0 linear layers in FP8")));

  TinyModel silent = fp8;
  silent.config.erase("quantization_config");
  const Quality unsaid = quality(silent);
  EXPECT_EQ(unsaid.negative_log_likelihood, quality(fp8).negative_log_likelihood);
  EXPECT_EQ(count_of(unsaid.err, "the tensors count"), 1u);
}

TEST(Deq12, PredictionLayersAreSkippedWithACount) {
  const TinyModel fp8 = fp8_model(tiny_model("llama3"));
  TinyModel more = fp8;
  more.config["num_nextn_predict_layers"] = 1;
  const std::string extra = "model.layers.2.";
  std::size_t count = 0;
  for (const auto& [name, tensor] : fp8.tensors) {
    if (!name.starts_with("model.layers.1.")) continue;
    more.tensors[extra + name.substr(extra.size())] = tensor;
    ++count;
  }
  for (const char* name : {"enorm", "hnorm"}) {
    more.tensors[extra + name + ".weight"] = fp8.tensors.at("model.norm.weight");
  }
  for (const char* name : {"eh_proj", "shared_head.head"}) {
    more.tensors[extra + name + ".weight"] = fp8.tensors.at("lm_head.weight");
  }
  const Quality run = quality(more);
  EXPECT_EQ(run.negative_log_likelihood, quality(fp8).negative_log_likelihood);
  EXPECT_THAT(run.err, HasSubstr(std::to_string(count + 4) + " tensors of 1 multi-token"));
  EXPECT_EQ(count_of(run.err, "multi-token prediction"), 1u);
}

TEST(Deq19, Fp8RunsAsItIs) {
  for (const char* name : {"llama3", "llama_tied", "qwen3"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const TinyModel wide = tiny_model(name), fp8 = fp8_model(wide);
    wide.write(dir / "wide");
    fp8.write(dir / "fp8");
    const Outcome inspect = run_octavo({"inspect", (dir / "fp8").string()});
    EXPECT_EQ(inspect.status, 0) << inspect.err;
    const auto tokens = [&](const char* model, std::vector<std::string> options) {
      std::vector<std::string> arguments{
          "generate", (dir / model).string(), "-p", "In the ", "-n", "40", "--json"};
      arguments.insert(arguments.end(), options.begin(), options.end());
      const Outcome run = run_octavo(arguments);
      EXPECT_EQ(run.status, 0) << run.err;
      EXPECT_THAT(run.err, HasSubstr("14 linear layers in FP8 and 1 wide"));
      return run.json().at("tokens");
    };
    EXPECT_EQ(tokens("fp8", {}), tokens("wide", {"--quantize", "float"}));
    EXPECT_EQ(tokens("fp8", {}).size(), 40u);
    EXPECT_EQ(quality(dir / "fp8").negative_log_likelihood,
              quality(dir / "wide", {"--quantize", "float"}).negative_log_likelihood);
  }
}

}  // namespace
}  // namespace octavo::tests
