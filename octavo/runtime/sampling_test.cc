#include "octavo/runtime/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>

#include "octavo/base/json.h"

namespace octavo::runtime {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::int32_t pick(std::vector<float> logits, const SamplingOptions& options = {},
                  std::uint64_t index = 0, const std::vector<std::int32_t>& history = {}) {
  Sampler sampler(options);
  const auto token = sampler.sample(logits, history, index);
  EXPECT_TRUE(token) << token.error().message;
  return token.value_or(-1);
}

TEST(Sampling, GreedyTakesTheBestAndOfEqualsTheFirst) {
  EXPECT_EQ(pick({1, 3, 2}), 1);
  EXPECT_EQ(pick({-3, -1, -1, -2}), 1);
  EXPECT_EQ(pick({-kInfinity, -5, -kInfinity}), 1);
  EXPECT_EQ(pick({7}), 0);
}

// A penalty pulls down a logit of either sign, once, whatever else is set.
TEST(Sampling, RepetitionPenalty) {
  const SamplingOptions options{.repetition_penalty = 2};
  EXPECT_EQ(pick({4, 3, 0}, options, 0, {0}), 1);
  EXPECT_EQ(pick({4, 3, 0}, options, 0, {2}), 0);
  EXPECT_EQ(pick({-2, -3, -5}, options, 0, {0}), 1);
  EXPECT_EQ(pick({5, 2, 0}, options, 0, {0, 0, 0, 0}), 0);  // 2.5, not 5 / 16
  EXPECT_EQ(pick({4, 3, 0}, options, 0, {0, 99, -1}), 1);   // ids that are none say nothing
}

// tests/golden/runtime/make_sampling.py.
TEST(Sampling, ProbabilitiesOfTransformers) {
  std::ifstream file(OCTAVO_GOLDEN_DIR "/runtime/sampling.json");
  ASSERT_TRUE(file);
  const Json cases = Json::parse(std::string(std::istreambuf_iterator<char>(file), {})).at("cases");
  ASSERT_GE(cases.size(), 10u);
  constexpr std::size_t kDraws = 20000;
  for (const Json& c : cases) {
    const Json& given = c.at("options");
    SCOPED_TRACE(given.dump());
    const SamplingOptions options{.repetition_penalty = given.value("repetition_penalty", 1.0),
                                  .temperature = given.at("temperature"),
                                  .top_k = given.value("top_k", std::size_t{0}),
                                  .top_p = given.value("top_p", 1.0),
                                  .min_p = given.value("min_p", 0.0),
                                  .seed = 7};
    const auto logits = c.at("logits").get<std::vector<float>>();
    const auto history = c.at("history").get<std::vector<std::int32_t>>();
    const auto expected = c.at("probabilities").get<std::vector<double>>();
    std::vector<std::size_t> counts(logits.size());
    Sampler sampler(options);
    for (std::size_t i = 0; i < kDraws; ++i) {
      std::vector<float> copy = logits;
      ++counts.at(static_cast<std::size_t>(sampler.sample(copy, history, i).value()));
    }
    // Six standard deviations of a binomial count, and one of rounding; the seed is fixed.
    for (std::size_t id = 0; id < counts.size(); ++id) {
      const double mean = kDraws * expected[id];
      const double deviation = std::sqrt(mean * (1 - expected[id]));
      EXPECT_NEAR(static_cast<double>(counts[id]), mean, 6 * deviation + 1) << id;
      if (expected[id] == 0) {
        EXPECT_EQ(counts[id], 0u) << id;
      }
    }
  }
}

TEST(Sampling, EqualLogitsAreKeptFromTheLowestId) {
  const std::vector<float> equal(8, 1.5f);
  for (std::uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(pick(equal, {.temperature = 1, .top_k = 1}, i), 0);
    EXPECT_LT(pick(equal, {.temperature = 1, .top_k = 3}, i), 3);
    EXPECT_EQ(pick(equal, {.temperature = 1, .top_p = 0}, i), 0);
    EXPECT_LT(pick(equal, {.temperature = 1, .top_p = 0.25}, i), 2);
  }
}

// The same text on every machine: these ids follow from threefry and from additions and products in
// double.
TEST(Sampling, ASeedGivesTheSameChoices) {
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(i * 7919 % 1000) / 125.0f;
  const auto choices = [&](std::uint64_t seed) {
    std::vector<std::int32_t> ids;
    for (std::uint64_t i = 0; i < 6; ++i)
      ids.push_back(pick(logits, {.temperature = 1, .seed = seed}, i));
    return ids;
  };
  EXPECT_EQ(choices(0), choices(0));
  EXPECT_NE(choices(0), choices(1));
  // A choice depends on its index, not on the ones before it.
  EXPECT_EQ(pick(logits, {.temperature = 1, .seed = 3}, 5), choices(3)[5]);
  // What every index gives alone: the share of weights up to the id that the random number hits.
  // u = 0x6B20015999BA4EFE / 2^64 for seed 0, index 0.
  std::vector<long double> weights(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) weights[i] = expl(logits[i]);
  const long double total = std::accumulate(weights.begin(), weights.end(), 0.0L);
  const long double target = 0x6B20015999BA4EFEp-64L * total;
  long double sum = 0;
  std::size_t id = 0;
  while ((sum += weights[id]) <= target) ++id;
  EXPECT_EQ(choices(0)[0], static_cast<std::int32_t>(id));
}

// Temperatures near 0 overflow nothing, and unlikely tokens are not lost.
TEST(Sampling, ExtremeValues) {
  EXPECT_EQ(pick({1e38f, -1e38f, 9.9e37f}, {.temperature = 1e-300}), 0);
  EXPECT_EQ(pick({-kInfinity, 0, -kInfinity}, {.temperature = 1e9}), 1);
  for (std::uint64_t i = 0; i < 50; ++i)
    EXPECT_NE(pick({0, 0, -kInfinity}, {.temperature = 1e300}, i), 2);
}

TEST(Sampling, LogitsThatAreNoneAreRefused) {
  const auto refusal = [](std::vector<float> logits, const SamplingOptions& options) {
    Sampler sampler(options);
    const auto token = sampler.sample(logits, {}, 0);
    return token ? "" : token.error().message;
  };
  for (const SamplingOptions& options :
       {SamplingOptions{}, SamplingOptions{.temperature = 1, .top_k = 1}}) {
    EXPECT_THAT(refusal({0, std::nanf(""), 1}, options), HasSubstr("logit 1 is nan"));
    EXPECT_THAT(refusal({0, 1, -std::nanf("")}, options), HasSubstr("logit 2 is"));
    EXPECT_THAT(refusal({kInfinity, 1}, options), HasSubstr("logit 0 is inf"));
    EXPECT_THAT(refusal({-kInfinity, -kInfinity}, options), HasSubstr("no logit"));
    EXPECT_THAT(refusal({}, options), HasSubstr("no logit"));
  }
}

TEST(Sampling, OptionsThatAreNoneAreRefused) {
  const double nan = std::nan("");
  const std::pair<SamplingOptions, const char*> cases[] = {
      {{.repetition_penalty = 0},
       "repetition_penalty is 0, but a number from 1e-06 to 1e+06 is expected"},
      {{.repetition_penalty = 1e-45}, "repetition_penalty is 1e-45"},
      {{.repetition_penalty = 1e39}, "repetition_penalty is 1e+39"},
      {{.repetition_penalty = nan}, "repetition_penalty"},
      {{.temperature = -1}, "temperature is -1, but a number of at least 0 is expected"},
      {{.temperature = nan}, "temperature"},
      {{.top_p = 1.5}, "top_p is 1.5, but a number from 0 to 1 is expected"},
      {{.top_p = -0.1}, "top_p"},
      {{.min_p = 2}, "min_p is 2, but a number from 0 to 1 is expected"},
      {{.min_p = nan}, "min_p"},
  };
  for (const auto& [options, message] : cases) {
    const auto checked = check_sampling(options);
    ASSERT_FALSE(checked) << message;
    EXPECT_THAT(checked.error().message, HasSubstr(message));
    EXPECT_THROW(Sampler{options}, ContractError);
  }
  EXPECT_TRUE(check_sampling({}));
}

}  // namespace
}  // namespace octavo::runtime
