// MDL cases about rotary settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace octavo::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One model with YaRN beyond its original 32 positions, in the three spellings.
TEST(Mdl03, EverySpellingOfRotarySettingsIsOne) {
  const TinyModel model = tiny_model("llama_yarn");
  const nlohmann::json settings = model.config.at("rope_parameters");
  ASSERT_EQ(settings.at("rope_type"), "yarn");
  const double expected = quality(model).negative_log_likelihood;

  nlohmann::json inner = settings;
  inner.erase("rope_theta");
  TinyModel older = model;
  older.config.erase("rope_parameters");
  older.config["rope_theta"] = settings.at("rope_theta");
  older.config["rope_scaling"] = inner;
  EXPECT_EQ(quality(older).negative_log_likelihood, expected);

  inner["type"] = inner.at("rope_type");
  inner.erase("rope_type");
  older.config["rope_scaling"] = inner;
  EXPECT_EQ(quality(older).negative_log_likelihood, expected);

  older.config.erase("rope_scaling");
  EXPECT_NE(quality(older).negative_log_likelihood, expected);
}

TEST(Mdl03, UnknownRotaryTypesAreRefusedByName) {
  TinyModel model = tiny_model("llama_yarn");
  model.config["rope_parameters"]["rope_type"] = "spiral";
  EXPECT_THAT(refusal(model),
              AllOf(HasSubstr("rope_type spiral is not supported"), HasSubstr("yarn")));
}

// The rotary tables at positions 10, 5,000 and 100,000 are in octavo/models/rope_test.cc: here,
// that a model of such a config runs, and that its factor and mscale fields count.
TEST(Mdl04, LongYarnIsComputedAsItsFieldsSay) {
  TinyModel model = tiny_model("llama_yarn");
  nlohmann::json& rope = model.config["rope_parameters"];
  rope.update({{"factor", 64.0},
               {"original_max_position_embeddings", 4096},
               {"beta_fast", 32},
               {"beta_slow", 1},
               {"mscale", 1.0},
               {"mscale_all_dim", 1.0}});
  model.config["max_position_embeddings"] = 262144;
  const double equal = quality(model).negative_log_likelihood;
  // mscale / mscale_all_dim is 1: cosines and sines are as they are, as with the factor said.
  rope["attention_factor"] = 1.0;
  rope.erase("mscale");
  rope.erase("mscale_all_dim");
  EXPECT_EQ(quality(model).negative_log_likelihood, equal);
  rope.erase("attention_factor");
  const double usual = quality(model).negative_log_likelihood;
  EXPECT_NE(usual, equal);
  rope["attention_factor"] = 1.415888308335967;  // 0.1 ln(64) + 1
  EXPECT_EQ(quality(model).negative_log_likelihood, usual);
}

}  // namespace
}  // namespace octavo::tests
