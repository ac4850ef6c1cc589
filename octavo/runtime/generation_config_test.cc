#include "octavo/runtime/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octavo::runtime {
namespace {

using ::testing::HasSubstr;

GenerationConfig read(const char* text) {
  const auto config = read_generation_config(Json::parse(text));
  EXPECT_TRUE(config) << config.error().message;
  return config.value_or(GenerationConfig{});
}

TEST(GenerationConfig, ReadsWhatIsThere) {
  const GenerationConfig config = read(
      R"({"bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "do_sample": true,
          "temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1,
          "max_new_tokens": 2048, "pad_token_id": 0, "transformers_version": "5.24.0"})");
  EXPECT_EQ(config.eos_token_ids, (std::vector<std::int32_t>{128001, 128008, 128009}));
  EXPECT_EQ(config.max_new_tokens, 2048u);
  EXPECT_EQ(config.not_built.size(), 0u);
  EXPECT_EQ(sampling_options(config), (SamplingOptions{.repetition_penalty = 1.1,
                                                       .temperature = 0.6,
                                                       .top_k = 20,
                                                       .top_p = 0.9,
                                                       .min_p = 0.05}));
}

TEST(GenerationConfig, DefaultsOfTransformers) {
  EXPECT_EQ(read("{}").eos_token_ids.size(), 0u);
  EXPECT_EQ(sampling_options(read("{}")), SamplingOptions{});
  EXPECT_EQ(sampling_options(read(R"({"temperature": 0.7, "top_k": 3})")), SamplingOptions{});
  EXPECT_EQ(sampling_options(read(R"({"do_sample": true})")),
            (SamplingOptions{.temperature = 1, .top_k = 50}));
  EXPECT_EQ(sampling_options(read(R"({"repetition_penalty": 1.3})")),
            (SamplingOptions{.repetition_penalty = 1.3}));
  EXPECT_EQ(read(R"({"eos_token_id": 2})").eos_token_ids, std::vector<std::int32_t>{2});
  EXPECT_EQ(read(R"({"eos_token_id": null, "top_k": null})").top_k, std::nullopt);
}

TEST(GenerationConfig, WhatIsNotBuiltIsNamed) {
  EXPECT_THAT(
      read(R"({"num_beams": 4, "no_repeat_ngram_size": 3, "suppress_tokens": [1],
                       "typical_p": 1.0, "bad_words_ids": []})")
          .not_built,
      ::testing::UnorderedElementsAre("num_beams 4", "no_repeat_ngram_size 3", "suppress_tokens"));
}

TEST(GenerationConfig, BadValuesAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"eos_token_id": "</s>"})", "eos_token_id is \"</s>\""},
      {R"({"eos_token_id": [2, -1]})", "eos_token_id is [2,-1]"},
      {R"({"eos_token_id": 4294967296})", "eos_token_id"},
      {R"({"temperature": -0.5})", "temperature is -0.5, but a number of at least 0"},
      {R"({"temperature": "hot"})", "temperature"},
      {R"({"top_k": -1})", "top_k is -1"},
      {R"({"top_k": 2.5})", "top_k is 2.5"},
      {R"({"top_p": 1.01})", "top_p is 1.01, but a number from 0 to 1"},
      {R"({"min_p": -1})", "min_p"},
      {R"({"repetition_penalty": 0})", "repetition_penalty is 0"},
      {R"({"repetition_penalty": 1e-300})",
       "repetition_penalty is 1e-300, but a number from 1e-06"},
      {R"({"repetition_penalty": 1e300})", "repetition_penalty is 1e+300"},
      {R"({"do_sample": 1})", "do_sample is 1, but true or false"},
      {R"({"max_new_tokens": 0})", "max_new_tokens is 0"},
  };
  for (const auto& [text, message] : cases) {
    const auto config = read_generation_config(Json::parse(text), "m/generation_config.json");
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code, ErrorCode::bad_model) << text;
    EXPECT_THAT(config.error().message, HasSubstr("m/generation_config.json: ")) << text;
    EXPECT_THAT(config.error().message, HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace octavo::runtime
