// Against Transformers: tests/golden/models/make_configs.py.
#include "octavo/models/rope.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

namespace octavo::models {
namespace {

Json read_golden(const std::string& name) {
  std::ifstream file(OCTAVO_GOLDEN_DIR "/models/" + name);
  EXPECT_TRUE(file) << name << " is missing";
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

float float_of(const Json& bits) { return std::bit_cast<float>(bits.get<std::int32_t>()); }

std::vector<float> floats_of(const Json& bits) {
  std::vector<float> values;
  for (const Json& b : bits) values.push_back(float_of(b));
  return values;
}

double ulp(float x) {
  return std::nextafter(std::fabs(x), std::numeric_limits<float>::infinity()) - std::fabs(x);
}

// How far frequencies may be apart, relative to their size, where one side's powers are rounded
// correctly and the other's (PyTorch's SLEEF) have an error below 1 ulp: 3 u for a power, 2 u for
// each operation after it, u = 2^-24.
double frequency_bound(const RopeConfig& rope) {
  constexpr double u = 0x1p-24;
  switch (rope.type) {
    case RopeType::standard:
      return 5 * u;
    case RopeType::linear:
      return 7 * u;
    // The growth of the base: a power and a product; it enters a power with an exponent below 1.
    case RopeType::dynamic:
      return (5 + 5) * u;
    // Two terms above 0, each a reciprocal of a product, a product; their sum.
    case RopeType::yarn:
      return (3 + 2 + 2 + 2 + 2) * u;
    case RopeType::llama3: {
      // (1 - s) f / factor + s f. The error of f is 5 u; that of s, at most 1, comes from
      // original / wave, at most high, with f's error and four operations, and from two more
      // operations.
      const double span = rope.high_freq_factor - rope.low_freq_factor;
      const double blend = rope.high_freq_factor / span * (5 + 8) * u + 4 * u;
      return (5 + 8) * u + rope.factor * blend;
    }
  }
  return 0;
}

TEST(Rope, FrequenciesAndTablesOfTransformers) {
  const Json cases = read_golden("rope.json").at("cases");
  ASSERT_GE(cases.size(), 10u);
  std::size_t same_bits = 0;
  std::size_t all = 0;
  for (const Json& c : cases) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const auto config = read_model_config(c.at("config"));
    ASSERT_TRUE(config) << config.error().message;
    const RopeFrequencies ours =
        rope_frequencies(*config, c.at("sequence_length").get<std::size_t>());
    const std::vector<float> expected = floats_of(c.at("inv_freq"));
    ASSERT_EQ(ours.inv_freq.size(), expected.size());
    ASSERT_EQ(expected.size(), config->head_dim / 2);
    EXPECT_EQ(ours.attention_scaling, float_of(c.at("attention_scaling")));
    const double bound = frequency_bound(config->rope);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(std::fabs(ours.inv_freq[i] - expected[i]), bound * expected[i]) << i;
      same_bits += ours.inv_freq[i] == expected[i] ? 1 : 0;
    }
    all += expected.size();

    // The same frequencies, so that what is compared is the table alone: their error is below
    // 1 ulp, ours half an ulp; then each is scaled and rounded.
    const RopeFrequencies theirs{expected, ours.attention_scaling};
    for (const Json& table : c.at("tables")) {
      const auto position = table.at("position").get<std::size_t>();
      std::vector<float> cos(expected.size());
      std::vector<float> sin(expected.size());
      rope_cos_sin(theirs, position, cos.data(), sin.data());
      const std::vector<float> expected_cos = floats_of(table.at("cos"));
      const std::vector<float> expected_sin = floats_of(table.at("sin"));
      const auto within = [&](float value, float other) {
        const double scale = theirs.attention_scaling;
        const double error = 1.5 * ulp(other / theirs.attention_scaling) * scale + ulp(other);
        return std::fabs(value - other) <= error;
      };
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(within(cos[i], expected_cos[i])) << position << " cos " << i;
        EXPECT_TRUE(within(sin[i], expected_sin[i])) << position << " sin " << i;
      }
    }
  }
  RecordProperty("frequencies", static_cast<int>(all));
  RecordProperty("frequencies_with_the_same_bits", static_cast<int>(same_bits));
}

// The three spellings of one setting give the same bits.
TEST(Rope, SpellingsAreEqual) {
  const auto frequencies = [](const char* text) {
    Json json = Json::parse(text);
    json["architectures"] = {"LlamaForCausalLM"};
    json["max_position_embeddings"] = 16384;
    const auto config = read_model_config(json);
    EXPECT_TRUE(config) << config.error().message;
    return rope_frequencies(*config, 1);
  };
  const RopeFrequencies plain = frequencies(R"({"rope_theta": 500000})");
  const RopeFrequencies a = frequencies(
      R"({"rope_parameters": {"rope_type": "yarn", "factor": 4, "rope_theta": 500000,
                              "original_max_position_embeddings": 4096}})");
  const RopeFrequencies b = frequencies(
      R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
          "original_max_position_embeddings": 4096}})");
  const RopeFrequencies c = frequencies(
      R"({"rope_theta": 500000.0, "original_max_position_embeddings": 4096,
          "rope_scaling": {"type": "yarn", "factor": 4.0}})");
  EXPECT_EQ(a.inv_freq, b.inv_freq);
  EXPECT_EQ(a.inv_freq, c.inv_freq);
  EXPECT_EQ(a.attention_scaling, b.attention_scaling);
  EXPECT_EQ(a.attention_scaling, c.attention_scaling);
  EXPECT_NE(a.inv_freq, plain.inv_freq);
  EXPECT_NE(a.attention_scaling, plain.attention_scaling);
}

TEST(Rope, DynamicGrowsWithTheSequenceOnlyBeyondTheMaximum) {
  const auto config = read_model_config(Json::parse(
      R"({"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 64,
          "rope_scaling": {"type": "dynamic", "factor": 2}})"));
  ASSERT_TRUE(config) << config.error().message;
  const auto at = [&](std::size_t length) { return rope_frequencies(*config, length).inv_freq; };
  EXPECT_EQ(at(1), at(64));
  EXPECT_NE(at(64), at(65));
  EXPECT_LT(at(128).back(), at(65).back());
  EXPECT_EQ(at(128).front(), 1.0f);  // the shortest wave stays
}

}  // namespace
}  // namespace octavo::models
